"""fq_enqueue: what a message does to the one that holds its key, alone and in a batch, in turn and at once."""

import psycopg
import pytest

from tests.fixtures.waits import Waits
from tests.sql.client import Kernel, OpenKernel, on, refused
from tests.sql.kernel.verbs import unbalanced
from tests.sql.life.verbs import lock_messages, outcomes


@pytest.mark.usefixtures("cloned")
def test_a_message_that_is_replaced_again_and_again_in_a_call(open_kernel: OpenKernel) -> None:
    """Only the last of many in a row rewrites it: a version of the row for each would slow down all that come after."""
    kernel = open_kernel()
    contents = [str(number).encode() for number in range(50)]
    results = kernel.enqueue(*["a"] * 50, keys=["k"] * 50, on=["replace"] * 50, contents=contents)
    assert outcomes(results) == ["created"] + ["replaced"] * 49
    assert kernel.value("select content from fq_message") == b"49"
    assert kernel.value("select pg_stat_get_xact_tuples_updated('fq_message'::regclass)") == 1


def test_a_replacement_leaves_one_signal_that_adds_nothing(kernel: Kernel) -> None:
    """The channel hears of the new turn order of a replaced message, and its backlog does not grow."""
    kernel.enqueue("a", keys=["k"])
    kernel.hear()
    (again,) = kernel.enqueue("a", keys=["k"], on="replace")
    (signal,) = kernel.rows("select message_id, added from fq_signal")
    assert signal == {"message_id": again.message_id, "added": 0}


@pytest.mark.parametrize("wrong", ["other", ""])
def test_a_policy_that_is_none_is_refused(kernel: Kernel, wrong: str) -> None:
    """A policy other than skip, raise and replace is refused with QF001, alone and in a batch; too few of them too."""
    for policies in ([wrong], ["skip", "skip"], []):
        with refused():
            kernel.enqueue("a", on=policies)
    with refused():
        kernel.enqueue("a", "a", on=["skip", wrong])
    assert kernel.value("select count(*) from fq_message") == 0


def test_two_replacements_at_once_keep_one_message(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """The second waits for the first; the message is one, and the last one's content stays."""
    (held,) = kernel.enqueue("a", keys=["k"])
    first = open_kernel()
    assert outcomes(first.enqueue("a", keys=["k"], on="replace", contents=[b"first"])) == ["replaced"]
    rival = waits.start(on(lambda second: second.enqueue("a", keys=["k"], on="replace", contents=[b"second"])))
    rival.blocked()
    first.commit()
    assert outcomes(rival.result()) == ["replaced"]
    assert kernel.rows("select id, content from fq_message") == [{"id": held.message_id, "content": b"second"}]
    assert unbalanced(kernel) == []


def test_replace_waits_for_a_dequeue_in_flight(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """A message that is just being taken is waited for: taken, it keeps its content and a new message comes; not taken
    after all, it is rewritten.
    """
    for end, outcome in ((psycopg.Connection.rollback, "replaced"), (psycopg.Connection.commit, "created")):
        kernel.enqueue("a", keys=["k"], on="replace", contents=[b"old"])
        consumer = open_kernel()
        assert len(consumer.dequeue().hands) == 1
        rival = waits.start(on(lambda second: second.enqueue("a", keys=["k"], on="replace", contents=[b"new"])))
        rival.blocked()
        end(consumer.connection)
        assert outcomes(rival.result()) == [outcome]
        assert unbalanced(kernel) == []
    assert [row["content"] for row in kernel.rows("select content from fq_message order by id")] == [b"old", b"new"]


@pytest.mark.parametrize("verb", ["complete", "release", "retry", "bury"])
def test_replace_waits_for_whoever_settles(kernel: Kernel, open_kernel: OpenKernel, waits: Waits, verb: str) -> None:
    """A message that is just being settled is waited for: given back it is rewritten, ended it leaves its key."""
    kernel.enqueue("a", keys=["k"])
    (hand,) = kernel.dequeue().hands
    worker = open_kernel()
    assert getattr(worker, verb)(hand) == {}
    rival = waits.start(on(lambda second: second.enqueue("a", keys=["k"], on="replace"))).blocked()
    worker.commit()
    assert outcomes(rival.result()) == ["replaced" if verb in {"release", "retry"} else "created"]
    assert kernel.value("select count(*) from fq_message") == 1
    assert unbalanced(kernel) == []


def test_a_holder_settles_while_its_key_is_taken_away(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """Completing a message whose key an open transaction takes away waits for it and then counts."""
    kernel.enqueue("a", keys=["k"])
    (hand,) = kernel.dequeue().hands
    business = open_kernel()
    assert outcomes(business.enqueue("a", keys=["k"], on="replace")) == ["created"]
    rival = waits.start(on(lambda worker: worker.complete(hand))).blocked()
    business.commit()
    assert rival.result() == {}
    assert kernel.value("select count(*) from fq_message") == 1


def test_replacing_and_cancelling_in_opposite_orders_do_not_deadlock(
    kernel: Kernel, open_kernel: OpenKernel, waits: Waits
) -> None:
    """Keys in one order, ids in the other: the replaced messages are locked in the order of their ids.

    Locked in the order of their keys, the call would hold the second and wait for the first, which the cancel holds.
    """
    (first,), (second,) = kernel.enqueue("a", keys=["z"]), kernel.enqueue("a", keys=["b"])
    gate = open_kernel()
    lock_messages(gate, first.message_id)
    rival = waits.start(on(lambda business: business.enqueue("a", "a", keys=["b", "z"], on="replace"))).blocked()
    assert waits.unhindered(on(lambda free: free.cancel(second.message_id))) == {}
    gate.rollback()
    assert outcomes(rival.result()) == ["created", "replaced"]
    assert unbalanced(kernel) == []


def test_calls_that_replace_the_same_messages_do_not_deadlock(
    kernel: Kernel, open_kernel: OpenKernel, waits: Waits
) -> None:
    """One of them ends before it is locked, and another call adds its key first: who holds the rest does not wait for
    that key while it does, but begins again.
    """
    (first,), (second,) = kernel.enqueue("a", keys=["first"]), kernel.enqueue("a", keys=["second"])
    gate = open_kernel()
    lock_messages(gate, first.message_id)
    keys = ["first", "second", "third"]
    one = waits.start(on(lambda business: business.enqueue("a", "a", "a", keys=keys, on="replace"))).blocked()
    assert kernel.cancel(second.message_id) == {}
    other = waits.start(on(lambda business: business.enqueue("a", "a", keys=keys[1:], on="replace"))).blocked()
    gate.rollback()
    assert outcomes(other.result()) == ["created", "created"]
    assert outcomes(one.result()) == ["replaced", "replaced", "replaced"]
    assert kernel.value("select count(*) from fq_message") == len(keys)
    assert unbalanced(kernel) == []


def test_handlers_that_replace_each_others_message_do_not_deadlock(
    kernel: Kernel, open_kernel: OpenKernel, waits: Waits
) -> None:
    """Two handlers, each of which replaces the other's message and completes its own: with p_hold the second waits for
    the first before it holds anything.
    """
    kernel.enqueue("a", "a", keys=["one", "two"])
    one, two = kernel.dequeue(2).hands
    first, second = open_kernel(), open_kernel()
    assert outcomes(first.enqueue("a", keys=["two"], on="replace", hold=[one.id])) == ["created"]

    def other(_: Kernel) -> dict[int, str]:
        second.enqueue("a", keys=["one"], on="replace", hold=[two.id])
        return second.complete(two)

    rival = waits.start(on(other))
    waits.blocked(second.pid)
    assert first.complete(one) == {}
    first.commit()
    assert rival.result() == {}
    second.commit()
    assert len(kernel.drain()) == 2
    assert unbalanced(kernel) == []
