"""fq_complete, fq_end_attempts: only the holder's token counts, and what is counted is right
afterwards.
"""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.fixtures.clock import Clock
from tests.fixtures.waits import Waits
from tests.sql.answers import Hand
from tests.sql.client import SECOND, Kernel, OpenKernel, on

VERBS = ["complete", "release", "retry", "bury"]


def _settle(kernel: Kernel, verb: str, *hands: Hand, **more: object) -> dict[int, str]:
    outcome: dict[int, str] = getattr(kernel, verb)(*hands, **more)
    return outcome


@pytest.mark.parametrize("limited", [False, True], ids=["without limits", "limited"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_delivery_of_another_queue_is_lost(kernel: Kernel, verb: str, *, limited: bool) -> None:
    """Under the name of another queue a valid token changes nothing, alone and beside others: no slot is freed in
    either queue.
    """
    other = Kernel(kernel.connection, queue="other")
    if limited:
        for one in (kernel, other):
            one.configure("a", 5)
            one.rows(f"select fq_limit_queue('{one.queue}', '{{\"max_concurrency\": 5}}')")
    for one in (kernel, other):
        one.enqueue("a", "a")
    mine, foreign = kernel.dequeue(2).hands, other.dequeue(2).hands
    before = kernel.rows("select * from fq_message order by id")
    assert _settle(kernel, verb, foreign[0]) == {foreign[0].id: "lost"}
    moved = [replace(hand, row="(4000,1)") for hand in foreign]
    assert _settle(kernel, verb, *moved) == {hand.id: "lost" for hand in foreign}
    assert kernel.rows("select * from fq_message order by id") == before
    assert kernel.value("select count(*) from fq_signal") == 0
    assert _settle(kernel, verb, *mine, *foreign) == {hand.id: "lost" for hand in foreign}
    assert _settle(other, verb, *foreign) == {}


@pytest.mark.parametrize("verb", VERBS)
def test_a_moved_row_is_found_again(kernel: Kernel, open_kernel: OpenKernel, waits: Waits, verb: str) -> None:
    """A delivery counts although its row was moved before and is moved once more meanwhile; an outdated one beside it
    is lost.
    """
    kernel.enqueue("a", "a", "a")
    outdated, moved, still = kernel.dequeue(3).hands
    outdated = replace(outdated, deliveries=0)
    kernel.rows("update fq_message set headers = '{}' where id = %(id)s", id=moved.id)
    mover = open_kernel()
    mover.rows("update fq_message set headers = '[]' where id = %(id)s", id=moved.id)
    rival = waits.start(on(lambda second: _settle(second, verb, outdated, moved, still))).blocked()
    mover.commit()
    assert rival.result() == {outdated.id: "lost"}


@pytest.mark.parametrize("verb", VERBS)
def test_a_late_settling_counts_until_someone_else_has_it(kernel: Kernel, clock: Clock, verb: str) -> None:
    """After its lease expired a delivery still counts; once a dequeue has taken the message back it is lost."""
    kernel.enqueue("a", "a")
    one, two = kernel.dequeue(2, lease=SECOND).hands
    clock.advance(timedelta(hours=1))
    assert _settle(kernel, verb, one) == {}
    assert two.id in kernel.dequeue(2).ids
    assert _settle(kernel, verb, two) == {two.id: "lost"}


def test_nothing_to_settle_is_fine(kernel: Kernel) -> None:
    """Empty and null arrays change nothing and lose nothing."""
    for verb in VERBS:
        assert _settle(kernel, verb) == {}
    assert kernel.rows("select * from fq_complete(null, null, null, null, null)") == []
    for outcome in ("released", "retried", "buried"):
        call = f"select * from fq_end_attempts(null, null, null, null, null, '{outcome}', null, null)"
        assert kernel.rows(call) == []
