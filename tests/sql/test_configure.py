"""fq_configure_channel and fq_set_queue: policies take effect with the commit and are right from the first
call.
"""

import re
from functools import partial
from itertools import product
from typing import Any

from psycopg.types.json import Jsonb

from tests.fixtures.waits import Waits
from tests.sql.client import HOUR, Kernel, OpenKernel, on, refused

_WRONG: list[tuple[object, str]] = [
    ({"max_concurrency": 0}, "max_concurrency 0"),
    ({"rate_interval": -1}, "rate_interval -1"),
    ({"rate_interval": None}, "rate_interval null"),
    ({"rate_burst": 0}, "rate_burst 0"),
    ({"rate_interval": 365 * 24 * HOUR, "rate_burst": 1_000_000}, "rate_interval"),
    ({"wieght": 3}, "wieght"),
    ({"weight": "3"}, 'weight "3"'),
    ({"weight": 2.5}, "weight 2.5"),
    ({"weight": None}, "weight null"),
    ({"weight": 10_001}, "weight 10001"),
    ({"max_backlog": True}, "max_backlog true"),
    ({"max_backlog": 2**31}, "max_backlog 2147483648"),
    ({"on_full": "wait"}, 'on_full "wait"'),
    ([3], "[3]"),
]
_WRONG_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"histroy": True}, "histroy"),
    ({"history": None}, "history null"),
    ({"history_retention": 0}, "history_retention 0"),
    ({"result_retention": 1.5}, "result_retention 1.5"),
    ({"forget_channels_after": "1"}, 'forget_channels_after "1"'),
    ({"dead_letter_retention_by_kind": {"parse": 0}}, "dead_letter_retention 0"),
    ({"dead_letter_retention_by_kind": {"": 1}}, "kind is "),
    ({"dead_letter_retention_by_kind": 1}, "settings"),
    ({"fair_by": "luck"}, 'fair_by "luck"'),
    ({"default_plan": "gold"}, "gold"),
]


def test_settings_are_checked(kernel: Kernel) -> None:
    """A setting that there is not, or a value that it cannot have, is refused with QF001."""
    for settings, told in _WRONG_SETTINGS:
        with refused(match=re.escape(told)):
            kernel.set_queue(**settings)


def test_changes_are_checked(kernel: Kernel) -> None:
    """Whatever calls the functions, a change is refused that names no field, or a value that cannot be kept."""
    none = "'{null}'"
    calls = (
        "select fq_configure_channel('q', 'a', %(changes)s)",
        "select fq_set_queue('q', jsonb_build_object('defaults', %(changes)s::jsonb))",
        "select fq_set_queue('q', '{\"defaults\": {}}', %(changes)s)",
        "select fq_make_channels('q', '{a}', %(changes)s)",
        f"select fq_enqueue('q', '{{a}}', '{{k}}', '{{x}}', {', '.join([none] * 6)}, %(changes)s)",
    )
    for call, (changes, told) in product(calls, _WRONG):
        with refused(match=re.escape(told)) as error:
            kernel.rows(call, changes=Jsonb(changes))
        assert error.value.diag.message_hint
    assert kernel.value("select count(*) from fq_channel") == 0


def test_what_a_change_does_not_name_stays(kernel: Kernel) -> None:
    """A change by SQL leaves the other fields of a channel, and whatever else its state row has."""
    kernel.enqueue("a", "a")
    kernel.configure("a", 3, interval=5, burst=7, weight=9)
    kernel.dequeue()
    before = kernel.state("a")
    kernel.rows("select fq_configure_channel('q', 'a', '{\"max_backlog\": 8}')")
    # The next hearing finds its place anew.
    changed = {"max_backlog": 8, "row_version": before["row_version"] + 1}
    assert kernel.state("a") == before | changed


def test_configuring_waits_for_a_completion_and_counts_what_is_left(
    kernel: Kernel, open_kernel: OpenKernel, waits: Waits
) -> None:
    """Setting a limit waits for an open completion in the channel; the count is of what is really out afterwards."""
    for end, out in (("commit", 1), ("rollback", 2)):
        kernel.enqueue(end, end, end)
        one, _ = kernel.dequeue(2).hands
        business = open_kernel()
        business.complete(one)
        rival = waits.start(on(partial(Kernel.configure, channel=end, max_concurrency=2))).blocked()
        getattr(business, end)()
        rival.result()
        assert kernel.state(end)["current_concurrency"] == out
        assert len(kernel.dequeue(10).hands) == 2 - out
        kernel.rows("delete from fq_message")


def test_a_message_that_changes_meanwhile_is_counted(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """A message out whose row another transaction is changing is waited for and counted."""
    kernel.enqueue("a", "a")
    kernel.dequeue()
    user = open_kernel()
    user.rows("update fq_message set headers = '{}' where lease_id is not null")
    rival = waits.start(on(lambda admin: admin.configure("a", 1))).blocked()
    user.commit()
    rival.result()
    assert kernel.state("a")["current_concurrency"] == 1
    assert kernel.dequeue().hands == []
