"""fq_configure_channel and fq_set_queue: policies take effect with the commit and are right from the first
call.
"""

import re
from functools import partial
from itertools import product
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from sqlalchemy_fairqueue.sql.files import NEEDED_VERSION
from tests.fixtures.waits import Waits
from tests.sql.client import HOUR, Kernel, OpenKernel, on

BAD: list[dict[str, Any]] = [
    {"max_concurrency": 0},
    {"interval": -1},
    {"interval": None},
    {"burst": 0},
    {"weight": 0},
    {"weight": 10_001},
    {"interval": 365 * 24 * HOUR, "burst": 1_000_000},
]


def test_a_bad_policy_is_refused(kernel: Kernel) -> None:
    """A policy that cannot be kept is refused with QF001 for a channel and for a queue."""
    for wrong, configure in product(BAD, (partial(kernel.configure, "a"), kernel.configure_queue)):
        with pytest.raises(psycopg.Error) as refusal:
            configure(**wrong)
        assert refusal.value.sqlstate == "QF001"


_WRONG: list[tuple[object, str, str]] = [
    ({"wieght": 3}, "a policy has no field wieght", "its fields are max_concurrency, rate_interval"),
    ({"weight": "3"}, 'a policy has weight "3"', "weight is 1 to 10000"),
    ({"weight": 2.5}, "a policy has weight 2.5", "weight is 1 to 10000"),
    ({"weight": None}, "a policy has weight null", "weight is 1 to 10000"),
    ({"max_backlog": True}, "a policy has max_backlog true", "max_backlog is 1 to 2147483647 or null"),
    ({"max_backlog": 2**31}, "a policy has max_backlog 2147483648", "max_backlog is 1 to 2147483647 or null"),
    ({"on_full": "wait"}, 'a policy has on_full "wait"', "on_full is raise or drop"),
    ([3], "the changes of a policy are [3]", "give a JSON object"),
]


_WRONG_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"histroy": True}, "a queue has no field histroy"),
    ({"history": None}, "a queue has history null"),
    ({"history_retention": 0}, "a queue has history_retention 0"),
    ({"result_retention": 1.5}, "a queue has result_retention 1.5"),
    ({"forget_channels_after": "1"}, 'a queue has forget_channels_after "1"'),
    ({"dead_letter_retention_by_kind": {"parse": 0}}, "a queue has dead_letter_retention 0"),
    ({"dead_letter_retention_by_kind": {"": 1}}, "kind is "),
    ({"dead_letter_retention_by_kind": 1}, "the settings of a queue are "),
    ({"fair_by": "luck"}, 'a queue has fair_by "luck"'),
    ({"default_plan": "gold"}, "queue q has no plan gold"),
]


def test_settings_are_checked(kernel: Kernel) -> None:
    """A setting that there is not, or a value that it cannot have, is refused with QF001."""
    for settings, told in _WRONG_SETTINGS:
        with pytest.raises(psycopg.Error, match=re.escape(told)) as refusal:
            kernel.set_queue(**settings)
        assert refusal.value.sqlstate == "QF001"


def test_changes_are_checked(kernel: Kernel) -> None:
    """Whatever calls the functions, a change is refused that names no field, or a value that cannot be kept."""
    calls = (
        "select fq_configure_channel('q', 'a', %(changes)s)",
        "select fq_set_queue('q', jsonb_build_object('defaults', %(changes)s::jsonb))",
        "select fq_set_queue('q', '{\"defaults\": {}}', %(changes)s)",
        "select fq_make_channels('q', '{a}', %(changes)s)",
    )
    for call, (changes, problem, hint) in product(calls, _WRONG):
        with pytest.raises(psycopg.Error) as refusal:
            kernel.rows(call, changes=Jsonb(changes))
        assert (refusal.value.sqlstate, refusal.value.diag.message_primary) == ("QF001", problem), call
        assert hint in (refusal.value.diag.message_hint or "")


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


def test_a_bad_name_is_refused(kernel: Kernel) -> None:
    """Names of channels and queues have 1 to 512 bytes."""
    for name in (None, "", "x" * 513):
        queue = Kernel(kernel.connection, queue=name)  # type: ignore[arg-type]
        for configure in (partial(kernel.configure, name), queue.configure_queue):
            with pytest.raises(psycopg.Error) as refusal:
                configure()
            assert refusal.value.sqlstate == "QF001"


def test_an_open_configuration_stops_its_channel_only(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """Until a configuration commits its channel is passed by, the others are served, and nobody waits for it."""
    kernel.enqueue("a", "b")
    admin = open_kernel()
    admin.configure("a", 1)
    assert waits.unhindered(on(lambda consumer: consumer.dequeue(10).channels)) == ["b"]
    waits.unhindered(on(lambda producer: producer.enqueue("a", "a")))
    admin.commit()
    assert kernel.dequeue(10).channels == ["a"]


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


def test_the_schema_says_its_version(kernel: Kernel) -> None:
    """The installed schema says its version."""
    assert kernel.value("select fq_version()") == NEEDED_VERSION
