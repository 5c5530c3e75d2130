"""fq_enqueue: what is added, what is refused, what waits."""

from itertools import repeat

import psycopg
import pytest

from tests.fixtures.waits import Waits
from tests.sql.client import Kernel, OpenKernel, on, refused

FAR = 253402300799999999


def test_a_call_leaves_one_signal_a_channel(kernel: Kernel) -> None:
    """However many messages a call adds to a channel, it leaves one signal there, about the first of them."""
    added = kernel.enqueue("a", "a", "b", "a", delays=[5, 3, None, 4])
    signals = kernel.rows("select message_id from fq_signal order by message_id")
    assert [row["message_id"] for row in signals] == [added[1].message_id, added[2].message_id]


@pytest.mark.whole
def test_a_content_that_nobody_could_dequeue_is_refused(kernel: Kernel) -> None:
    """It would stand first in its channel for ever, and fail each dequeue that comes to it."""
    kernel.enqueue("a")
    with refused("QF011", match="content is 268435457 bytes"):
        kernel.rows(
            "select * from fq_enqueue('q', '{a}', '{k}', array[convert_to(repeat('x', 268435457), 'UTF8')], '{null}',"
            " '{null}', '{null}', '{null}', '{null}', '{null}')"
        )
    assert kernel.value("select count(*) from fq_message") == 1


def test_arrays_of_different_lengths_are_refused(kernel: Kernel) -> None:
    """Arrays that do not match are refused; no arrays at all add nothing."""
    with pytest.raises(psycopg.Error, match="differ in length"):
        kernel.enqueue("a", "b", kinds=["one"])
    assert kernel.rows(f"select * from fq_enqueue('q', {', '.join(repeat('null', 9))})") == []


@pytest.mark.parametrize("keys", [None, ["x", None, "y"]], ids=["in one statement", "one by one"])
def test_one_value_for_all(kernel: Kernel, keys: list[str | None] | None) -> None:
    """Headers and a group of one element hold for each message, whichever way they are added, replaced ones too."""
    channels = ["a", "b", "a"]
    kernel.enqueue(*channels, keys=keys, headers=['{"h": 1}'])
    assert [row["headers"] for row in kernel.rows("select headers from fq_message")] == [{"h": 1}] * 3
    kernel.enqueue(*channels, headers=[None])
    assert kernel.value("select count(*) from fq_message where headers is null") == 3
    with pytest.raises(psycopg.Error, match="message 1 of fq_enqueue has a bad value: headers is longer"):
        kernel.enqueue(*channels, keys=keys, headers=[f'{{"h": "{"x" * 65_536}"}}'])
    for length in (2, 4):
        with pytest.raises(psycopg.Error, match="differ in length"):
            kernel.enqueue(*channels, headers=[None] * length)


@pytest.mark.parametrize("keys", ["array[null, null]", "array['x', 'y']"], ids=["in one statement", "one by one"])
def test_one_group_for_all(kernel: Kernel, keys: str) -> None:
    """A group of one element is that of each message; others must be as many as the messages."""
    call = (
        f"select * from fq_enqueue('q', '{{a,b}}', '{{k,k}}', '{{x,x}}', '{{null}}', '{{null,null}}', '{{null,null}}',"
        f" '{{null,null}}', {keys}::text[], '{{null,null}}', p_groups => %(groups)s::uuid[])"
    )
    groups = [f"00000000-0000-0000-0000-00000000000{number}" for number in range(3)]
    kernel.rows(call, groups=groups[:1])
    assert [str(row["group_id"]) for row in kernel.rows("select group_id from fq_message")] == groups[:1] * 2
    with pytest.raises(psycopg.Error, match="differ in length"):
        kernel.rows(call, groups=groups)


def test_extreme_values_are_kept(kernel: Kernel) -> None:
    """The longest names, the lowest priority and the latest time are taken and harm nobody."""
    kernel.enqueue("x" * 512, kinds=["k" * 512], keys=["y" * 512])
    kernel.enqueue("low", "never", priorities=[2**31 - 1, None], ats=[None, FAR])
    assert len(kernel.drain()) == 2
    assert kernel.enqueue("never")[0].created
    assert kernel.dequeue().channels == ["never"]


def test_a_key_waits_for_whoever_is_adding_the_same(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """A key that an open transaction adds is waited for: taken if it commits, free if it rolls back."""
    for end, created in ((psycopg.Connection.commit, False), (psycopg.Connection.rollback, True)):
        kernel.drain()
        business = open_kernel()
        business.enqueue("a", keys=["k"])
        rival = waits.start(on(lambda second: second.enqueue("a", keys=["k"]))).blocked()
        end(business.connection)
        assert rival.result()[0].created is created
