"""fq_erase_channel: all that a queue has of a channel goes, in bounded steps, and the books of the others balance."""

from typing import Any

from tests.fixtures.waits import Waits
from tests.sql.client import HOUR, Kernel, OpenKernel, on
from tests.sql.kernel.verbs import forgotten, limit, unbalanced

_TABLES = "fq_history", "fq_result", "fq_key_period", "fq_schedule", "fq_group_followup"
_GROUP = "00000000-0000-0000-0000-000000000001"


def _erase(kernel: Kernel, channel: str = "a", *, most: int = 100) -> list[dict[str, Any]]:
    """The answers of calls until nothing more is to be looked at."""
    answers: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        sql = "select * from fq_erase_channel(%(queue)s, %(channel)s, %(most)s, %(after)s)"
        answers += kernel.rows(sql, channel=channel, most=most, after=after)
        after = answers[-1].pop("after")
        assert len(answers) < 50
    return answers


def _total(answers: list[dict[str, Any]]) -> dict[str, int]:
    return {name: count for name in answers[0] if (count := sum(one[name] for one in answers))}


def _leave_attempts(kernel: Kernel, channel: str, message_id: int = 1) -> None:
    kernel.rows(
        "insert into fq_history (queue, channel_id, channel, message_id, kind, attempt, enqueued_at, ready_at, "
        "started_at, finished_at, outcome) select %(queue)s, 1, %(channel)s, %(id)s, 'k', 1, 0, 0, 0, n, 'completed' "
        "from generate_series(1, 3) n",
        channel=channel, id=message_id,
    )  # fmt: skip


def _leave_traces(kernel: Kernel, channel: str) -> None:
    """Attempts and results, a key that is taken, a schedule, and what follows a group, of a channel."""
    _leave_attempts(kernel, channel)
    for sql in (
        (
            "fq_result (message_id, queue, channel, kind, outcome, finished_at, expires_at) "
            "select 1000 + n + hashtext(%(channel)s)::bit(8)::int, %(queue)s, %(channel)s, 'k', 'completed', 0, 0 "
            "from generate_series(1, 2) n"
        ),
        "fq_key_period (queue, channel, key, message_id, unique_for) values (%(queue)s, %(channel)s, 'k', 1, 1)",
        (
            "fq_schedule (queue, channel, name, every, catch_up, jitter, kind, content, max_attempts, in_code, "
            "anchor_at, done_until, created_at, changed_at) "
            "values (%(queue)s, %(channel)s, 's', 1000000, 'skip', 0, 'k', '', 1, false, 0, 0, 0, 0)"
        ),
        "fq_group (group_id, queue, created_at) values (%(group)s, %(queue)s, 0) on conflict do nothing",
        (
            "fq_group_followup (group_id, on_failure, channel, kind, content, max_attempts) "
            "values (%(group)s, %(channel)s = 'b', %(channel)s, 'k', '', 1)"
        ),
    ):
        kernel.rows(f"insert into {sql}", channel=channel, group=_GROUP)


def test_all_of_a_channel_goes(kernel: Kernel) -> None:
    """Each kind of row goes in bounded steps, and is counted; of another channel nothing does."""
    kernel.enqueue("a", "b")
    kernel.bury(*kernel.dequeue(2).hands)
    for channel in ("a", "b"):
        kernel.enqueue(*[channel] * 3, delays=[None, None, HOUR])
        _leave_traces(kernel, channel)
    kernel.rows("select fq_record_audit(%(queue)s, 'pause', 'dana', 'a', null, '{\"why\": \"a\"}')")
    held = [hand for hand in kernel.dequeue(2).hands if hand.channel == "a"]
    assert len(held) == 1

    assert _total(_erase(kernel, most=1)) == {
        "messages": 2, "leased": 1, "dead_letters": 1, "attempts": 3, "results": 2, "keys": 1, "schedules": 1,
        "followups": 1, "audits": 1,
    }  # fmt: skip

    for table in _TABLES:
        assert kernel.value(f"select array_agg(distinct channel) from {table}") == ["b"], table
    assert kernel.rows("select who, what, channel, details from fq_audit") == [
        {"who": "dana", "what": "pause", "channel": None, "details": None}
    ]
    assert kernel.complete(*held).keys() == {held[0].id}
    assert unbalanced(kernel) == []
    assert forgotten(kernel) == 1
    assert kernel.value("select array_agg(name) from fq_channel") == ["b"]
    assert {hand.channel for hand in kernel.drain()} == {"b"}


def test_slots_of_the_queue_are_free_again(kernel: Kernel) -> None:
    """What consumers hold of the channel frees its slots, no more of them: others are served as the limit says."""
    limit(kernel, 2)
    kernel.enqueue("a", "a", "b", "b", "b")
    kernel.dequeue(2)
    _erase(kernel)
    assert unbalanced(kernel) == []
    served = [*kernel.dequeue(10).hands, *kernel.dequeue(10).hands]
    assert [hand.channel for hand in served] == ["b"] * len(served)
    assert kernel.value("select count(*) from fq_message where lease_id is not null") == 2
    assert unbalanced(kernel) == []


def test_what_others_have_locked_is_left_over(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """Nobody is waited for: a message that is just being completed is counted, and the channel stays until it ends."""
    kernel.enqueue("a", "a")
    (hand,) = kernel.dequeue().hands
    business = open_kernel()
    business.complete(hand)
    assert waits.unhindered(on(_erase))[-1]["left_over"] == 1
    assert kernel.value("select forget_xid from fq_channel_state") is None
    business.commit()
    assert waits.unhindered(on(_erase))[-1]["left_over"] == 0
    assert kernel.value("select forget_xid is not null from fq_channel_state")


def test_what_ends_during_an_erasure_is_left_over(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """The attempt of a message that another transaction completes meanwhile may stay: the calls before it tell so."""
    kernel.rows("insert into fq_queue (name, history) values (%(queue)s, true)")
    kernel.enqueue("a")
    (hand,) = kernel.dequeue().hands
    for _ in range(4):
        _leave_attempts(kernel, "b", hand.id + 1)
    business = open_kernel()
    business.complete(hand)
    sql = "select * from fq_erase_channel(%(queue)s, 'a', %(most)s, %(after)s)"
    [first] = kernel.rows(sql, most=1, after=0)
    business.commit()
    [last] = kernel.rows(sql, most=1, after=first["after"])
    assert (first["left_over"], last["left_over"], last["after"]) == (1, 0, None)
    assert kernel.value("select count(*) from fq_history where channel = 'a'") == 1
    assert _total(_erase(kernel)) == {"attempts": 1}


def test_locked_messages_at_the_head_end_no_call_early(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """A call passes by messages that others have locked and takes as many behind them, so all unlocked ones go."""
    first, *_ = [row.message_id for row in kernel.enqueue(*"aaaaaa")]
    business = open_kernel()
    business.cancel(first or 0)
    answers = waits.unhindered(on(lambda rival: _erase(rival, most=2)))
    assert (_total(answers)["messages"], answers[-1]["left_over"]) == (5, 1)


def test_who_goes_on_enqueuing_keeps_the_channel(kernel: Kernel) -> None:
    """A message that is enqueued after the last call has a channel, and is delivered."""
    kernel.enqueue("a")
    _erase(kernel)
    kernel.enqueue("a")
    assert forgotten(kernel) == 0
    assert [hand.channel for hand in kernel.drain()] == ["a"]
