"""fq_redrive, fq_purge_dead, fq_purge_channel: what is dead comes back or goes, what waits goes."""

import psycopg
import pytest
from psycopg import errors

from tests.fixtures.waits import Waits
from tests.sql.answers import Hand
from tests.sql.client import HOUR, Kernel, OpenKernel, on
from tests.sql.kernel.verbs import pause, resume, unbalanced
from tests.sql.life.verbs import dead, enqueue, message, outcomes, purge_channel, purge_dead, redrive


def _bury(kernel: Kernel, *channels: str, **more: object) -> list[Hand]:
    """Messages that were buried one after the other, in the order of the channels."""
    buried = []
    for channel in channels:
        enqueue(kernel, channel, **more)  # type: ignore[arg-type]
        (hand,) = kernel.dequeue().hands
        kernel.bury(hand, error="boom")
        buried.append(hand)
    return buried


def test_a_redriven_message_is_the_same_with_new_attempts(kernel: Kernel) -> None:
    """Content, kind, key and id come back; attempts begin anew; hand-outs go on, so that an old token stays lost."""
    (hand,) = _bury(kernel, "a", keys=["k"], contents=[b"\x01"], kinds=["parse"], max_attempts=[1])
    before = kernel.rows("select enqueued_at from fq_dead_letter")[0]["enqueued_at"]
    assert redrive(kernel, hand.id) == {hand.id: "redriven"}
    assert dead(kernel) == []
    row = message(kernel, hand.id)
    assert (row["content"], row["kind"], row["dedupe_key"], row["max_attempts"]) == (b"\x01", "parse", "k", 1)
    assert (row["attempts"], row["enqueued_at"], row["error"]) == (0, before, "boom")
    (again,) = kernel.dequeue().hands
    assert (again.id, again.attempt, again.deliveries) == (hand.id, 1, 2)
    assert kernel.complete(hand) == {hand.id: "lost"}
    assert kernel.complete(again) == {}
    assert unbalanced(kernel) == []


def test_the_oldest_deaths_come_first(kernel: Kernel) -> None:
    """Without ids as many as asked come back, the oldest death first, and are delivered in that order."""
    one, two, three = _bury(kernel, "a", "a", "a")
    kernel.rows("update fq_dead_letter set died_at = 1 where message_id = %(id)s", id=three.id)
    assert redrive(kernel, limit=2) == {three.id: "redriven", one.id: "redriven"}
    assert dead(kernel) == [two.id]
    assert kernel.dequeue(10).ids == [three.id, one.id]
    assert unbalanced(kernel) == []


def test_a_redrive_is_of_a_queue_a_channel_and_a_kind(kernel: Kernel) -> None:
    """Only what fits comes back; named ones that are not there, or of another queue, are missing."""
    a, b = _bury(kernel, "a", "b")
    (c,) = _bury(kernel, "a", kinds=["other"])
    (foreign,) = _bury(Kernel(kernel.connection, queue="other"), "a")
    assert redrive(kernel, channel="none") == {}
    assert redrive(kernel, a.id, foreign.id, 99, channel="b") == {a.id: "missing", foreign.id: "missing", 99: "missing"}
    assert redrive(kernel, channel="a", kind="other") == {c.id: "redriven"}
    assert redrive(kernel, channel="b") == {b.id: "redriven"}
    assert redrive(kernel) == {a.id: "redriven"}
    assert dead(kernel) == [foreign.id]


def test_a_key_that_stands_keeps_its_message_dead(kernel: Kernel) -> None:
    """A message whose key another holds meanwhile stays dead and is named; of two dead ones with a key one comes."""
    first, second, third = _bury(kernel, "a", "a", "b", keys=["k"])
    assert outcomes(enqueue(kernel, "b", keys=["k"])) == ["created"]
    assert redrive(kernel) == {first.id: "redriven", second.id: "duplicate", third.id: "duplicate"}
    assert dead(kernel) == [second.id, third.id]
    assert unbalanced(kernel) == []


def test_keys_that_stand_hinder_nobody(kernel: Kernel) -> None:
    """Letters whose key stands are told only where the limit has room for them: they never hide the others."""
    hidden = [hand.id for _ in range(3) for hand in _bury(kernel, "a", keys=["k"])]
    (free,) = _bury(kernel, "a")
    assert outcomes(enqueue(kernel, "a", keys=["k"])) == ["created"]
    assert redrive(kernel, limit=2) == {free.id: "redriven", hidden[0]: "duplicate"}
    assert redrive(kernel, limit=2) == dict.fromkeys(hidden[:2], "duplicate")
    assert dead(kernel) == hidden


def test_a_redrive_that_rolls_back_leaves_them_dead(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """Nothing of a redrive that rolled back is left."""
    (hand,) = _bury(kernel, "a")
    operator = open_kernel()
    redrive(operator, hand.id)
    operator.rollback()
    assert (dead(kernel), kernel.dequeue().hands) == ([hand.id], [])


def test_two_redrives_at_once_share(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """Without ids the second passes by what the first has; with ids it waits, and finds what is left."""
    one, two = _bury(kernel, "a", "a")
    first = open_kernel()
    assert redrive(first, limit=1) == {one.id: "redriven"}
    assert waits.unhindered(on(redrive)) == {two.id: "redriven"}
    rival = waits.start(on(lambda second: redrive(second, one.id))).blocked()
    first.commit()
    assert rival.result() == {one.id: "missing"}
    assert unbalanced(kernel) == []


def test_a_redrive_waits_for_a_key_that_is_being_added(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """A key that an open transaction adds is waited for: taken if it commits, free if it rolls back."""
    for end, outcome in ((psycopg.Connection.commit, "duplicate"), (psycopg.Connection.rollback, "redriven")):
        purge_dead(kernel)
        purge_channel(kernel, "a")
        (hand,) = _bury(kernel, "a", keys=["k"])
        business = open_kernel()
        enqueue(business, "a", keys=["k"])
        rival = waits.start(on(redrive))
        rival.blocked()
        end(business.connection)
        assert rival.result() == {hand.id: outcome}


@pytest.mark.parametrize("limit", [0, None])
def test_a_bad_limit_is_refused(kernel: Kernel, limit: int | None) -> None:
    """A limit that is none is refused with QF001."""
    with pytest.raises(errors.Error) as refusal:
        redrive(kernel, limit=limit)
    assert refusal.value.sqlstate == "QF001"


def test_dead_letters_are_purged(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """Named ones, those of a channel, of a kind, of a time, or all of a queue go; the number is told."""
    hands = _bury(kernel, *["a", "b"] * 3)
    _bury(kernel, "c", kinds=["other"])
    _bury(Kernel(kernel.connection, queue="other"), "a")
    times = [row["died_at"] for row in kernel.rows("select died_at from fq_dead_letter order by died_at")]
    assert purge_dead(kernel, hands[0].id, hands[1].id, 99, channel="a") == 1
    assert purge_dead(kernel, before=times[2]) == 1
    assert purge_dead(kernel, channel="none") == 0
    assert purge_dead(kernel, channel="b") == 2
    assert purge_dead(kernel, kind="other") == 1
    assert dead(kernel)[:-1] == [hands[2].id, hands[4].id]
    operator = open_kernel()
    assert purge_dead(operator) == 2
    operator.rollback()
    assert purge_dead(kernel) == 2
    assert len(dead(kernel)) == 1


def test_a_purge_leaves_what_consumers_have(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """What waits in a channel goes, heard of or not, due or not; deliveries, other channels and later messages stay."""
    enqueue(kernel, *["a"] * 4, "b")
    hand = next(hand for hand in kernel.dequeue(2).hands if hand.channel == "a")
    enqueue(kernel, "a", "a", delays=[HOUR, None])
    business = open_kernel()
    enqueue(business, "a")
    assert purge_channel(kernel, "a") == 5
    assert unbalanced(kernel) == []
    business.commit()
    assert unbalanced(kernel) == []
    kernel.release(hand)
    assert len(kernel.drain()) == 2
    assert unbalanced(kernel) == []
    assert purge_channel(kernel, "none") == 0


def test_a_purge_that_rolls_back_leaves_everything(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """Nothing is gone after a rollback."""
    enqueue(kernel, "a", "a")
    operator = open_kernel()
    assert purge_channel(operator, "a") == 2
    operator.rollback()
    assert len(kernel.drain()) == 2


def test_a_purge_waits_for_a_dequeue_and_hinders_none(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """A purge waits for a dequeue in flight and leaves what that took; open, it is passed by."""
    enqueue(kernel, "a", "a", "b")
    consumer = open_kernel()
    assert consumer.dequeue().channels == ["a"]
    rival = waits.start(on(lambda operator: purge_channel(operator, "a"))).blocked()
    consumer.commit()
    assert rival.result() == 1
    enqueue(kernel, "a")
    operator = open_kernel()
    assert purge_channel(operator, "a") == 1
    assert waits.unhindered(on(lambda other: other.dequeue(10).channels)) == ["b"]
    operator.commit()
    assert unbalanced(kernel) == []


def test_a_purge_passes_by_what_is_locked(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """A message that somebody has locked is passed by, stays ready and is delivered; the purge goes on."""
    one, two, three = enqueue(kernel, *["a"] * 3)
    holder = open_kernel()
    holder.rows("select from fq_message where id = %(id)s for update", id=two.message_id)
    assert waits.unhindered(on(lambda operator: purge_channel(operator, "a"))) == 2
    holder.rollback()
    assert unbalanced(kernel) == []
    assert kernel.dequeue(10).ids == [two.message_id]
    assert unbalanced(kernel) == []
    assert one.created
    assert three.created


@pytest.mark.parametrize("heard", [True, False])
def test_a_purge_of_a_paused_channel_keeps_it_paused(kernel: Kernel, open_kernel: OpenKernel, *, heard: bool) -> None:
    """A paused channel with a message that was passed by serves it when it is resumed, not before."""
    one, two = enqueue(kernel, "a", "a")
    if heard:
        kernel.hear()
    pause(kernel, "a")
    holder = open_kernel()
    holder.rows("select from fq_message where id = %(id)s for update", id=two.message_id)
    assert purge_channel(kernel, "a") == 1
    holder.rollback()
    assert kernel.dequeue(10).hands == []
    assert unbalanced(kernel) == []
    resume(kernel, "a")
    assert kernel.dequeue(10).ids == [two.message_id]
    assert one.created


@pytest.mark.parametrize("isolation", ["REPEATABLE_READ", "SERIALIZABLE"])
def test_a_stale_snapshot_cannot_purge(kernel: Kernel, open_kernel: OpenKernel, isolation: str) -> None:
    """A stricter caller whose channel was served since its snapshot gets 40001, as documented."""
    enqueue(kernel, "a", "a")
    operator = open_kernel(isolation=isolation)
    operator.value("select 1")
    kernel.dequeue()
    with pytest.raises(errors.SerializationFailure):
        purge_channel(operator, "a")


@pytest.mark.parametrize("isolation", ["REPEATABLE_READ", "SERIALIZABLE"])
def test_a_stale_snapshot_cannot_redrive_or_purge_the_dead(
    kernel: Kernel, open_kernel: OpenKernel, isolation: str
) -> None:
    """A stricter caller gets 40001 where a dead letter was redriven, or its key was taken, since the snapshot."""
    hand, keyed = _bury(kernel, "a")[0], _bury(kernel, "b", keys=["k"])[0]
    operators = [open_kernel(isolation=isolation) for _ in range(3)]
    for operator in operators:
        operator.value("select 1")
    redrive(kernel, hand.id)
    enqueue(kernel, "b", keys=["k"])
    first, second, third = operators
    with pytest.raises(errors.SerializationFailure):
        redrive(first, hand.id)
    with pytest.raises(errors.SerializationFailure):
        redrive(second, keyed.id)
    with pytest.raises(errors.SerializationFailure):
        purge_dead(third, hand.id)
