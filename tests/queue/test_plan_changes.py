"""Changes of plans beside other transactions: brought to channels in steps, and who waits for whom."""

from datetime import timedelta

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, Queue, Rate
from sqlalchemy_fairqueue.times import instant
from sqlalchemy_fairqueue.unit_of_work.sessions import send_recorded
from tests.fixtures.clock import Clock
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits
from tests.queue.plans import HOUR, change_unseen, seed, take

SECOND = timedelta(seconds=1)


def test_consumers_bring_a_change_to_all(queue: Queue, engine: Engine, database: Database) -> None:
    """Idle channels get it by the dequeues that go on, in bounded steps, and a dequeue says when it has more to do."""
    queue.plans.configure(engine, "gold", ChannelPolicy())
    queue.configure(engine, default_plan="gold")
    seed(engine, queue, *(f"{number}" for number in range(2500)), count=1)
    change_unseen(queue, engine, "gold", max_backlog=5)
    steps = [tuple(database.rows("select * from fq_spread_plans('documents', 1000)")[0]) for _ in range(2)]
    assert steps == [(1000, 0)] * 2
    assert not queue.plans.list(engine)[0].spread
    queue.dequeue(engine, limit=1, lease=HOUR)
    assert queue.plans.list(engine)[0].spread
    assert database.value("select count(*) from fq_channel_state where max_backlog = 5") == 2500
    assert tuple(database.rows("select * from fq_spread_plans('documents', 1000)")[0]) == (0, None)


def test_what_is_locked_comes_later(queue: Queue, engine: Engine, connect: Connect, database: Database) -> None:
    """A channel that somebody has locked is passed by, waits for nothing, and gets the change afterwards."""
    queue.plans.configure(engine, "gold", ChannelPolicy())
    for name in "abc":
        queue.configure_channel(engine, name, plan="gold")
    holder = connect()
    holder.exec_driver_sql(
        "select from fq_channel_state s join fq_channel c on c.id = s.channel_id where c.name = 'b' for update of s"
    )
    queue.plans.configure(engine, "gold", weight=4)
    assert [one.weight for one in queue.channels(engine)] == [4, 1, 4]
    assert not queue.plans.list(engine)[0].spread
    holder.rollback()
    database.execute("update fq_plan set spread_at = 0")
    queue.dequeue(engine, limit=1)
    assert [one.weight for one in queue.channels(engine)] == [4, 4, 4]


def test_what_stays_locked_is_visited_seldom(
    queue: Queue, engine: Engine, connect: Connect, database: Database, clock: Clock
) -> None:
    """Only the channel that is locked is visited again, after as long as the change is old, a second at most."""

    def spread() -> tuple[int, int | None]:
        [row] = database.rows("select followed, due_in from fq_spread_plans('documents', 2)")
        return row.followed, row.due_in

    queue.plans.configure(engine, "gold", ChannelPolicy())
    for name in "abcde":
        queue.configure_channel(engine, name, plan="gold")
    with connect() as holder:
        queue.pause(holder, channel="a")
        change_unseen(queue, engine, "gold", weight=4)
        assert [spread()[0] for _ in range(3)] == [1, 2, 1]
        clock.advance(SECOND / 2)
        followed, due_in = spread()
        assert followed == 0
        assert due_in is not None
        assert due_in >= 500_000
        for _ in range(2):
            clock.advance(HOUR)
            assert spread() == (0, 1_000_000)
        # A consumer that has nothing to do sleeps as long.
        [row] = database.rows("select due_in from fq_dequeue('documents', 10, 60000000, 'me', null, null)")
        assert 0 < row.due_in <= 1_000_000
        holder.rollback()
    clock.advance(SECOND)
    assert spread() == (1, None)
    assert {one.weight for one in queue.channels(engine)} == {4}


def test_a_first_limit_while_a_message_is_being_settled(
    queue: Queue, engine: Engine, connect: Connect, waits: Waits, clock: Clock
) -> None:
    """It cannot be counted yet: the channel is not served, the dequeue waits for nothing, others are served."""
    queue.plans.configure(engine, "gold", ChannelPolicy())
    for name in "ab":
        queue.configure_channel(engine, name, plan="gold")
    seed(engine, queue, "a", "b", count=3)
    first, *_ = take(engine, queue, limit=2)
    assert first.channel == "a"
    business = connect()
    queue.complete(business, first)
    change_unseen(queue, engine, "gold", max_concurrency=2)
    taken = waits.unhindered(lambda rival: take(rival.engine, queue))
    assert [one.channel for one in taken] == ["b"]
    clock.advance(HOUR / 60)
    before = clock.now()
    assert take(engine, queue) == []
    after = clock.now()
    # Consumers come back after as long as the change is old, a second at most.
    [row] = clock.database.rows(
        "select s.due_at as at from fq_channel_state s join fq_channel c on c.id = s.channel_id where c.name = 'a'"
    )
    assert before <= instant(row.at) - SECOND <= after
    business.rollback()
    clock.advance(HOUR / 60)
    assert [one.channel for one in take(engine, queue)] == ["a"]
    assert [one.current_concurrency for one in queue.channels(engine)] == [2, 2]


def test_a_change_waits_for_who_puts_a_channel_on_the_plan(
    queue: Queue, engine: Engine, connect: Connect, waits: Waits, database: Database
) -> None:
    """The channel gets the change, also if nobody could take from it; consumers wait for neither."""
    queue.plans.configure(engine, "gold", max_concurrency=1)
    seed(engine, queue, "a", count=3)
    assert len(take(engine, queue, limit=1)) == 1
    putting = connect()
    queue.configure_channel(putting, "a", plan="gold")
    change = waits.start(lambda rival: queue.plans.configure(rival, "gold", max_concurrency=3, max_backlog=7)).blocked()
    assert waits.unhindered(lambda rival: take(rival.engine, queue)) == []
    # Another channel is put on the plan while the change waits.
    waits.unhindered(lambda rival: queue.configure_channel(rival.engine, "b", plan="gold"))
    putting.commit()
    change.result()
    database.execute("update fq_plan set spread_at = 0")
    assert len(take(engine, queue)) == 2
    assert {(one.max_concurrency, one.policy.max_backlog) for one in queue.channels(engine)} == {(3, 7)}


def test_sessions_lock_plans_by_name(queue: Queue, engine: Engine, waits: Waits) -> None:
    """A session that changes two plans takes them in the order in which another puts channels on them: no deadlock."""
    for name in ("bronze", "gold"):
        queue.plans.configure(engine, name, ChannelPolicy())
    with Session(engine) as putting:
        queue.configure_channel(putting, "a", plan="bronze")
        send_recorded(putting)

        def change(rival: Engine) -> None:
            with Session(rival) as session:
                queue.plans.configure(session, "gold", weight=2)
                queue.plans.configure(session, "bronze", weight=2)
                session.commit()

        changing = waits.start(change).blocked()
        # It waits for "bronze" and has not taken "gold".
        waits.unhindered(lambda rival: queue.configure_channel(rival.engine, "b", plan="gold"))
        putting.commit()
    changing.result()
    assert {plan.policy.weight for plan in queue.plans.list(engine)} == {2}


def test_nobody_waits_for_a_change(queue: Queue, engine: Engine, connect: Connect, waits: Waits) -> None:
    """While a change, or a removal, is not committed, enqueues that make channels, dequeues and settlements go on."""
    queue.plans.configure(engine, "gold", max_concurrency=2)
    queue.plans.configure(engine, "old", ChannelPolicy())
    queue.configure(engine, default_plan="gold")
    seed(engine, queue, "a", "b")
    [held, *_] = take(engine, queue, limit=1)
    changing = connect()
    queue.plans.configure(changing, "gold", max_concurrency=1)
    queue.plans.remove(changing, "old")
    waits.unhindered(lambda rival: seed(rival.engine, queue, "c", "d", count=1))
    assert len(waits.unhindered(lambda rival: take(rival.engine, queue))) == 5
    waits.unhindered(lambda rival: queue.complete(rival.engine, held))
    changing.commit()
    assert {one.max_concurrency for one in queue.channels(engine, "c")} == {2}
    assert take(engine, queue) == []
    assert {one.max_concurrency for one in queue.channels(engine)} == {1}


def test_a_channel_made_by_an_older_transaction(queue: Queue, engine: Engine, connect: Connect) -> None:
    """A transaction that made a channel by the old plan commits late: its channel has the new limit when served."""
    queue.plans.configure(engine, "gold", ChannelPolicy())
    queue.configure(engine, default_plan="gold")
    late = connect()
    for number in range(5):
        queue.enqueue(late, channel="late", payload=number)
    queue.plans.configure(engine, "gold", max_concurrency=2)
    late.commit()
    assert len(take(engine, queue)) == 2


@pytest.mark.parametrize("burst", [1, 3])
def test_a_first_rate_of_a_ready_channel(queue: Queue, engine: Engine, connect: Connect, burst: int) -> None:
    """A plan that brings a rate leaves a channel, of which the rate allows a message, in its place in the order."""
    queue.plans.configure(engine, "gold", ChannelPolicy())
    queue.configure(engine, default_plan="gold")
    queue.configure_channel(engine, "other", plan=None)
    seed(engine, queue, "other", count=10)
    take(engine, queue, limit=1)
    late = connect()
    for number in range(5):
        queue.enqueue(late, channel="late", payload=number)
    queue.plans.configure(engine, "gold", rate=Rate(1, per=HOUR, burst=burst))
    late.commit()
    taken = [one.channel for _ in range(2 * burst) for one in take(engine, queue, limit=1)]
    assert taken.count("late") == burst
    assert [one.channel for one in take(engine, queue)] == ["other"] * (9 - burst)
