"""Bounds of values: what a producer may bring, refused by the functions in words."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.types.json import Jsonb

from sqlalchemy_fairqueue.sql.files import latest_version
from sqlalchemy_fairqueue.sql.grants import function_roles
from tests.sql.client import HOUR, Kernel, refused
from tests.sql.kernel.verbs import limit, pause
from tests.sql.life.verbs import keep_history, redrive, wait
from tests.sql.load.loads import make_stage, merge

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.installed

_LAST = 253402300799999999
# 1e131071 takes 8 bytes in jsonb, and 131,072 as text
_ENDLESS = "jsonb_build_object('a', (select jsonb_agg(cast('1e131071' as numeric)) from generate_series(1, {})))"


@pytest.mark.parametrize(
    "count", [1, 100, pytest.param(8190, marks=pytest.mark.whole), pytest.param(8300, marks=pytest.mark.whole)]
)
@pytest.mark.parametrize("channels", [["a"], ["a", "b"]], ids=["one", "two"])
def test_endless_headers(kernel: Kernel, count: int, channels: list[str]) -> None:
    """Headers that print as up to a gigabyte are refused in words, alone and among others."""
    sql = f"""
        select * from fq_enqueue('q', %(channels)s::text[], %(kinds)s::text[], array_fill(''::bytea, array[{{0}}]),
          array_fill({_ENDLESS.format(count)}, array[{{0}}]), array_fill(null::bigint, array[{{0}}]),
          array_fill(null::bigint, array[{{0}}]), array_fill(null::integer, array[{{0}}]),
          array_fill(null::text, array[{{0}}]), array_fill(null::integer, array[{{0}}]))
    """
    with refused(match="message 1 of fq_enqueue has a bad value: headers is longer") as error:
        kernel.rows(sql.format(len(channels)), channels=channels, kinds=channels)
    assert "65,536 bytes" in (error.value.diag.message_hint or "")


@pytest.mark.parametrize(
    ("headers", "fits"),
    [
        ({"a": "x" * 65_524}, True),
        ({"a": "x" * 65_529}, False),
        pytest.param({"a": [1.5] * 3_000_000}, False, marks=pytest.mark.whole),
        ({"a": [0] * 21_800}, True),
        ({"a": [1e300] * 3}, True),
        ({"a": [-1e301] * 300}, False),
    ],
    ids=["most", "more", "floats", "integers", "long numbers", "many long numbers"],
)
def test_headers_fit(kernel: Kernel, headers: object, *, fits: bool) -> None:
    """The bytes of the text count, however it is stored."""
    assert kernel.value("select fq_headers_fit(%(headers)s)", headers=Jsonb(headers)) is fits


def test_errors_are_cut(kernel: Kernel) -> None:
    """The text of an error never keeps its attempt from being settled."""
    kernel.enqueue("a", "a", max_attempts=[1, 5])
    for hand in kernel.dequeue(2).hands:
        kernel.retry(hand, error="\U0001f600" * 300_000)
    kernel.enqueue("a")
    for hand in kernel.dequeue(2).hands:
        kernel.bury(hand, reason="r" * 2_000_000, error="e" * 2_000_000)
    found = kernel.rows("select length(reason) as reason, length(error) as error from fq_dead_letter order by died_at")
    assert [row["error"] for row in found] == [262_144] * 3
    assert [row["reason"] for row in found][1:] == [262_144] * 2


@pytest.mark.parametrize("count", [1, 3])
def test_signals_of_a_channel_that_is_not_there(kernel: Kernel, count: int) -> None:
    """They are deleted, and wake no consumer again and again."""
    kernel.rows("insert into fq_signal (queue, channel_id) select 'q', 99 from generate_series(1, %(n)s)", n=count)
    assert kernel.dequeue(10).due_in is None
    assert kernel.value("select count(*) from fq_signal") == 0
    kernel.enqueue("a")
    kernel.rows("insert into fq_signal (queue, channel_id) select 'q', 99 from generate_series(1, %(n)s)", n=count)
    assert kernel.dequeue(10).channels == ["a"]
    assert kernel.value("select count(*) from fq_signal") == 0


@pytest.mark.parametrize("name", ["", "x" * 513, "ä" * 257, None], ids=["none", "long", "long in bytes", "null"])
def test_names(kernel: Kernel, name: Any) -> None:
    """Names of queues and channels have 1 to 512 bytes, whatever the verb; a consumer has a name."""
    elsewhere = replace(kernel, queue=name)
    nobody = replace(kernel, name=None)  # type: ignore[arg-type]
    for verb in (
        *(elsewhere.configure_queue, partial(limit, elsewhere, 1), partial(wait, elsewhere), partial(wait, nobody)),
        *(partial(pause, elsewhere), partial(pause, elsewhere, "a"), partial(pause, kernel, name or "", new=True)),
        *(partial(elsewhere.enqueue, "a"), partial(elsewhere.enqueue, "a", keys=["k"])),
        *(partial(kernel.enqueue, name), partial(kernel.enqueue, name, keys=["k"]), partial(kernel.configure, name)),
    ):
        with refused():
            verb()


def test_arguments(kernel: Kernel) -> None:
    """A number, a name or a choice that makes no sense is refused, whatever the verb, and nothing changes."""
    kernel.enqueue("a")
    (hand,) = kernel.dequeue().hands
    dequeues = [(0, 1), (100_001, 1), (1, 0), (1, 366 * 24 * HOUR), (None, 1), (1, None)]
    sql = [
        *(f"select fq_erase_channel('q', 'a', {args})" for args in ("0, 0", "null, 0", "1, -1", "1, null")),
        *(f"select from fq_dequeue('q', 9, 1000000, 'me', p_max_bytes => {size})" for size in (0, -1)),
        *(f"select from fq_dequeue({args})" for args in ("'q', 1, 1, null", "null, 1, 1, 'me'")),
    ]
    calls: list[Callable[[], object]] = [
        *(partial(kernel.dequeue, most, lease=lease) for most, lease in dequeues),
        *(partial(kernel.extend, 1, lease) for lease in (None, 0, -1, 366 * 24 * HOUR)),
        *(partial(verb, hand, delay=delay) for verb in (kernel.release, kernel.retry) for delay in (-1, 2**63 - 1)),
        *(partial(wait, kernel, wait=time) for time in (None, -1, 2**62)),
        *(partial(redrive, kernel, limit=most) for most in (0, None)),
        *(partial(keep_history, kernel, days) for days in (None, -1, 1000)),
        *(partial(merge, kernel, "nowhere", 0, job=job) for job in ("", "j" * 513)),
        *(partial(kernel.rows, one) for one in sql),
        partial(merge, kernel, "nowhere", 0, on="perhaps"),
        partial(make_stage, kernel, -1),
        partial(limit, kernel, 0),
    ]
    for call in calls:
        with refused():
            call()
    assert kernel.complete(hand) == {}


@pytest.mark.parametrize("size", [513, 2_000_000])
def test_names_of_consumers(kernel: Kernel, size: int) -> None:
    """A consumer's name has at most 512 bytes, since leases, letters and the history keep it; errors show its start."""
    kernel.enqueue("a")
    for call in (
        "select * from fq_dequeue('q', 1, 1000000, repeat('c', %(n)s))",
        "select * from fq_wait('q', repeat('c', %(n)s), null, 1000000)",
    ):
        with refused(match=r"has .*consumer c{80}[^c]") as error:
            kernel.rows(call, n=size)
        assert "512 bytes" in (error.value.diag.message_hint or "")
    assert kernel.rows("select message_id from fq_dequeue('q', 1, 1000000, repeat('c', 512))")


def test_a_lease_whose_consumer_has_an_endless_name(kernel: Kernel) -> None:
    """It expires as others do: the letter of a message without further attempts names the consumer's first part."""
    kernel.enqueue("a", "b", max_attempts=[1, 5])
    assert len(kernel.dequeue(2).hands) == 2
    kernel.rows("update fq_lease set consumer = repeat('c', 2000000), expires_at = fq_now() - 1")
    assert kernel.dequeue(2).channels == ["b"]
    assert kernel.value("select length(reason) from fq_dead_letter") < 600


def test_limits_of_pages(kernel: Kernel) -> None:
    """Each function with a limit that a role may call, but for stages, refuses one below 1 in words of its own."""
    kernel.enqueue("a")
    functions = kernel.rows(
        "select p.proname as name, p.proargnames[1:p.pronargs] as arguments,"
        " array(select format_type(t, null) from unnest(p.proargtypes) with ordinality u(t, i) order by i) as types"
        " from pg_proc p where 'p_limit' = any (p.proargnames[1:p.pronargs])"
    )
    roles = function_roles(latest_version())
    functions = [one for one in functions if {*roles.get(one["name"], ())} - {"loader"}]
    assert len(functions) > 5
    for function in functions:
        values = {"p_queue": "'q'", "p_limit": "0", "p_scan": "1", "p_count": "1"}
        named = dict(zip(function["arguments"], function["types"], strict=True))
        arguments = ", ".join(f"{name} => {values.get(name, 'null')}::{type_}" for name, type_ in named.items())
        with refused():
            kernel.rows(f"select * from {function['name']}({arguments})")


@pytest.mark.parametrize(
    "bad",
    ["repeat('c', 513), null, null", "null, '{1,0}', null", "null, null, '3'", f"null, null, {_ENDLESS.format(1)}"],
)
def test_audits(kernel: Kernel, bad: str) -> None:
    """What the table does not keep is refused in words."""
    with refused():
        kernel.rows(f"select fq_record_audit('q', 'pause', 'me', {bad})")


def test_a_snapshot_that_is_none(kernel: Kernel) -> None:
    """A text that is no snapshot is refused, and only its beginning is repeated."""
    with refused(match=r"fq_completions has snapshot x{100}\n") as raised:
        kernel.rows("select * from fq_completions(repeat('x', 2000000), '{q}')")
    assert len(str(raised.value)) < 1000
