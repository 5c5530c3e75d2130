"""fq_redrive, fq_purge_dead, fq_purge_channel: what is dead comes back or goes, what waits goes."""

from datetime import timedelta

import psycopg
import pytest

from tests.fixtures.clock import Clock
from tests.fixtures.waits import Waits
from tests.sql.answers import Hand
from tests.sql.client import Kernel, OpenKernel, on
from tests.sql.kernel.verbs import pause, resume, unbalanced
from tests.sql.life.verbs import outcomes, purge_channel, purge_dead, redrive


def _bury(kernel: Kernel, *channels: str, **more: object) -> list[Hand]:
    """Messages that were buried one after the other, in the order of the channels."""
    buried = []
    for channel in channels:
        kernel.enqueue(channel, **more)  # type: ignore[arg-type]
        (hand,) = kernel.dequeue().hands
        kernel.bury(hand, error="boom")
        buried.append(hand)
    return buried


def test_keys_that_stand_hinder_nobody(kernel: Kernel) -> None:
    """Letters whose key stands are told only where the limit has room for them: they never hide the others."""
    hidden = [hand.id for _ in range(3) for hand in _bury(kernel, "a", keys=["k"])]
    (free,) = _bury(kernel, "a")
    assert outcomes(kernel.enqueue("a", keys=["k"])) == ["created"]
    assert redrive(kernel, limit=2) == {free.id: "redriven", hidden[0]: "duplicate"}
    assert redrive(kernel, limit=2) == dict.fromkeys(hidden[:2], "duplicate")
    assert kernel.value("select array_agg(message_id order by died_at) from fq_dead_letter") == hidden


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
        business.enqueue("a", keys=["k"])
        rival = waits.start(on(redrive))
        rival.blocked()
        end(business.connection)
        assert rival.result() == {hand.id: outcome}


def test_a_purge_waits_for_a_dequeue_and_hinders_none(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """A purge waits for a dequeue in flight and leaves what that took; open, it is passed by."""
    kernel.enqueue("a", "a", "b")
    consumer = open_kernel()
    assert consumer.dequeue().channels == ["a"]
    rival = waits.start(on(lambda operator: purge_channel(operator, "a"))).blocked()
    consumer.commit()
    assert rival.result() == 1
    kernel.enqueue("a")
    operator = open_kernel()
    assert purge_channel(operator, "a") == 1
    assert waits.unhindered(on(lambda other: other.dequeue(10).channels)) == ["b"]
    operator.commit()
    assert unbalanced(kernel) == []


@pytest.mark.parametrize("fair_by", ["messages", "cost"])
def test_a_purge_passes_by_what_is_locked(
    kernel: Kernel, open_kernel: OpenKernel, waits: Waits, clock: Clock, fair_by: str
) -> None:
    """A message that somebody has locked is passed by, stays ready and is delivered; the purge goes on."""
    kernel.set_queue(fair_by=fair_by)
    one, two, three = kernel.enqueue(*["a"] * 3)
    clock.advance(timedelta(minutes=1))
    call = kernel.dequeue()
    assert call.ids == [one.message_id]
    holder = open_kernel()
    holder.rows("select from fq_message where id = %(id)s for update", id=two.message_id)
    assert waits.unhindered(on(lambda operator: purge_channel(operator, "a"))) == 1
    holder.rollback()
    assert unbalanced(kernel) == []
    assert kernel.dequeue(10).ids == [two.message_id]
    assert unbalanced(kernel) == []
    assert three.created


@pytest.mark.parametrize("heard", [True, False])
def test_a_purge_of_a_paused_channel_keeps_it_paused(kernel: Kernel, open_kernel: OpenKernel, *, heard: bool) -> None:
    """A paused channel with a message that was passed by serves it when it is resumed, not before."""
    one, two = kernel.enqueue("a", "a")
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
