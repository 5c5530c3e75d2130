"""Plans: policies with a name that channels follow, changed as one row and exact from the commit on.

A change is brought to channels in steps, beside other transactions.
"""

from collections import Counter
from datetime import timedelta

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, InvalidArgument, Queue, Rate
from sqlalchemy_fairqueue.times import instant
from sqlalchemy_fairqueue.unit_of_work.sessions import send_recorded
from sqlalchemy_fairqueue.values.messages import Delivery
from tests.fixtures.clock import Clock
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits
from tests.policies import SAMPLES
from tests.queue.seeds import seed

EVERYTHING = ChannelPolicy(**SAMPLES)
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


def _seed(engine: Engine, queue: Queue, *channels: str, count: int = 10) -> None:
    """Enqueue so many messages in each channel."""
    seed(queue, engine, *(channel for channel in channels for _ in range(count)))


def _take(engine: Engine, queue: Queue, limit: int = 1000) -> list[Delivery]:
    """Dequeue, with a lease longer than the tests' clock goes on."""
    return queue.dequeue(engine, limit=limit, lease=10 * HOUR)


def _change_unseen(queue: Queue, engine: Engine, name: str, **changes: object) -> None:
    """Change a plan in a transaction, so that the call itself brings it to no channel."""
    with Session(engine) as session:
        queue.plans.configure(session, name, **changes)  # type: ignore[call-overload]
        session.commit()


def _policies(engine: Engine, queue: Queue) -> dict[str, ChannelPolicy]:
    return {one.channel: one.policy for one in queue.channels(engine)}


def test_a_plan_is_followed(queue: Queue, engine: Engine) -> None:
    """Channels on a plan have its policy, and get each change of it; others do not."""
    queue.plans.configure(engine, "gold", ChannelPolicy(weight=5, rate=Rate(50, burst=10)))
    queue.configure_channel(engine, "a", plan="gold")
    _seed(engine, queue, "b", count=1)
    assert _policies(engine, queue) == {"a": ChannelPolicy(weight=5, rate=Rate(50, burst=10)), "b": ChannelPolicy()}
    queue.plans.configure(engine, "gold", max_concurrency=2, rate=None)
    assert _policies(engine, queue)["a"] == ChannelPolicy(weight=5, max_concurrency=2)
    [plan] = queue.plans.list(engine)
    assert (plan.name, plan.channels, plan.is_default, plan.spread) == ("gold", 1, False, True)
    assert plan.policy == ChannelPolicy(weight=5, max_concurrency=2)
    assert [(one.channel, one.plan, one.overridden) for one in queue.channels(engine)] == [
        ("a", "gold", ()), ("b", None, ())
    ]  # fmt: skip


def test_each_field_by_a_plan(queue: Queue, engine: Engine) -> None:
    """Each field of a policy comes from the plan, from a change of it, and not from it where it is overridden."""
    for field, value in SAMPLES.items():
        initial = {field: getattr(ChannelPolicy(), field)}
        put, own = f"put {field}", f"own {field}"
        queue.plans.configure(engine, field, **{field: value})
        queue.configure_channel(engine, put, plan=field)
        queue.configure_channel(engine, own, plan=field, **initial)
        assert queue.channels(engine, put)[0].policy == ChannelPolicy(**{field: value})
        [stats] = queue.channels(engine, own)
        assert (stats.policy, stats.overridden) == (ChannelPolicy(), (field,))
        queue.plans.configure(engine, field, ChannelPolicy())
        queue.plans.configure(engine, field, EVERYTHING)
        assert queue.channels(engine, put)[0].policy == EVERYTHING
        assert queue.channels(engine, own)[0].policy == ChannelPolicy(**(SAMPLES | initial))


def test_overrides_last_until_they_are_reset(queue: Queue, engine: Engine) -> None:
    """What is configured for a channel alone stays, None too, whichever plan it follows; a reset lifts it."""
    queue.plans.configure(engine, "gold", weight=5, max_concurrency=9, max_backlog=50)
    queue.plans.configure(engine, "free", weight=1, max_concurrency=1)
    queue.configure_channel(engine, "a", weight=7)
    queue.configure_channel(engine, "a", plan="gold", max_backlog=None)
    assert _policies(engine, queue)["a"] == ChannelPolicy(weight=7, max_concurrency=9)
    queue.configure_channel(engine, "a", plan="free")
    assert _policies(engine, queue)["a"] == ChannelPolicy(weight=7, max_concurrency=1)
    queue.configure_channel(engine, "a", reset=["weight"])
    assert queue.channels(engine, "a")[0].overridden == ("max_backlog",)
    queue.configure_channel(engine, "a", plan="gold", reset="all")
    assert _policies(engine, queue)["a"] == ChannelPolicy(weight=5, max_concurrency=9, max_backlog=50)
    queue.configure_channel(engine, "a", plan=None)
    queue.plans.configure(engine, "gold", weight=8)
    assert _policies(engine, queue)["a"] == ChannelPolicy(weight=5, max_concurrency=9, max_backlog=50)
    queue.configure(engine, defaults={"weight": 2, "max_concurrency": 4})
    queue.configure_channel(engine, "a", reset=["weight", "max_backlog"])
    assert _policies(engine, queue)["a"] == ChannelPolicy(weight=2, max_concurrency=9)


def test_a_whole_policy_replaces_the_plan_too(queue: Queue, engine: Engine) -> None:
    """A ChannelPolicy leaves no plan and no override; a plan that comes later decides every field."""
    queue.plans.configure(engine, "gold", weight=5)
    queue.configure_channel(engine, "a", plan="gold", max_backlog=3)
    queue.configure_channel(engine, "a", EVERYTHING)
    [found] = queue.channels(engine)
    assert (found.plan, found.overridden, found.policy) == (None, (), EVERYTHING)
    queue.configure_channel(engine, "a", plan="gold")
    assert _policies(engine, queue)["a"] == ChannelPolicy(weight=5)


def test_the_default_plan(queue: Queue, engine: Engine) -> None:
    """New channels follow it, before any defaults; those that exist do not, and lifting it changes none."""
    _seed(engine, queue, "old", count=1)
    generous = Queue("documents", defaults=ChannelPolicy(weight=9))
    queue.plans.configure(engine, "free", max_concurrency=1)
    queue.configure(engine, default_plan="free", defaults={"weight": 3})
    with Session(engine) as session, session.begin():
        generous.enqueue(session, channel="enqueued", payload=1)
    queue.enqueue(engine, channel="at once", payload=1)
    queue.configure_channel(engine, "configured", weight=2)
    queue.configure(engine, default_plan=None)
    _seed(engine, queue, "late", count=1)
    queue.plans.configure(engine, "free", max_concurrency=2)
    assert {one.channel: (one.plan, one.max_concurrency, one.weight) for one in queue.channels(engine)} == {
        "at once": ("free", 2, 1), "configured": ("free", 2, 2), "enqueued": ("free", 2, 1),
        "late": (None, None, 3), "old": (None, None, 1),
    }  # fmt: skip


def test_a_lowered_limit_holds_from_the_commit(queue: Queue, engine: Engine, database: Database) -> None:
    """No dequeue after the commit takes beyond it; what is out counts, also where there was no limit before."""
    queue.plans.configure(engine, "gold", ChannelPolicy())
    names = [f"{number:03}" for number in range(30)]
    for name in names:
        queue.configure_channel(engine, name, plan="gold")
    _seed(engine, queue, *names, count=5)
    held = _take(engine, queue, limit=60)
    _change_unseen(queue, engine, "gold", max_concurrency=3)
    # The pass over all channels is kept away: only what a dequeue takes from is read.
    database.execute("update fq_plan set spread_after = 9223372036854775807")
    taken = _take(engine, queue)
    counts = dict.fromkeys(names, 0)
    for one in [*held, *taken]:
        counts[one.channel] += 1
    assert set(counts.values()) == {3}
    queue.complete(engine, held[0])
    assert [one.channel for one in _take(engine, queue)] == [held[0].channel]


def test_a_lowered_rate_holds_from_the_commit(queue: Queue, engine: Engine, clock: Clock) -> None:
    """A rate that comes with a change is exact: a burst, then one each interval."""
    queue.plans.configure(engine, "gold", ChannelPolicy())
    queue.configure_channel(engine, "a", plan="gold")
    _seed(engine, queue, "a")
    _change_unseen(queue, engine, "gold", rate=Rate(1, per=HOUR, burst=2))
    assert len(_take(engine, queue)) == 2
    assert _take(engine, queue) == []
    clock.advance(HOUR)
    assert len(_take(engine, queue)) == 1


def test_a_raised_limit_wakes_what_it_frees(queue: Queue, engine: Engine) -> None:
    """Channels at their limit, and those that wait for their rate, are served again without a signal of their own."""
    queue.plans.configure(engine, "gold", max_concurrency=1)
    queue.plans.configure(engine, "slow", rate=Rate(1, per=HOUR, burst=1))
    for number in range(5):
        queue.configure_channel(engine, f"gold {number}", plan="gold")
        queue.configure_channel(engine, f"slow {number}", plan="slow")
        _seed(engine, queue, f"gold {number}", f"slow {number}", count=3)
    assert len(_take(engine, queue)) == 10
    assert _take(engine, queue) == []
    _change_unseen(queue, engine, "gold", max_concurrency=2)
    assert {one.channel for one in _take(engine, queue)} == {f"gold {number}" for number in range(5)}
    _change_unseen(queue, engine, "slow", rate=None)
    assert len(_take(engine, queue)) == 10


def test_weights_of_a_plan(queue: Queue, engine: Engine) -> None:
    """What is served next has the new weight."""
    queue.plans.configure(engine, "gold", weight=1)
    for name in "ab":
        queue.configure_channel(engine, name, plan="gold" if name == "a" else None)
    _seed(engine, queue, "a", "b", count=20)
    assert [one.channel for one in _take(engine, queue, limit=4)] == ["a", "b", "a", "b"]
    _change_unseen(queue, engine, "gold", weight=3)
    assert Counter(one.channel for one in _take(engine, queue, limit=8)) == {"a": 6, "b": 2}


def test_removal(queue: Queue, engine: Engine) -> None:
    """A plan that is followed, or is the default, stays; in one transaction it can be left and removed."""
    queue.plans.configure(engine, "gold", weight=2)
    queue.configure_channel(engine, "a", plan="gold")
    with pytest.raises(InvalidArgument, match="1 channels of queue documents follow the plan gold"):
        queue.plans.remove(engine, "gold")
    queue.configure(engine, default_plan="gold")
    with pytest.raises(InvalidArgument, match="the plan gold is the default plan of queue documents"):
        queue.plans.remove(engine, "gold")
    with Session(engine) as session:
        queue.plans.remove(session, "gold")
        queue.configure(session, default_plan=None)
        queue.configure_channel(session, "a", plan=None)
        session.commit()
    assert queue.plans.list(engine) == []
    assert _policies(engine, queue) == {"a": ChannelPolicy(weight=2)}
    queue.plans.remove(engine, "gold")


def test_a_plan_that_is_not_there(queue: Queue, engine: Engine) -> None:
    """A channel or a default on it is refused, and nothing is changed."""
    with pytest.raises(InvalidArgument, match="queue documents has no plan gold"):
        queue.configure_channel(engine, "a", plan="gold")
    with pytest.raises(InvalidArgument, match="queue documents has no plan gold"):
        queue.configure(engine, default_plan="gold")
    assert (queue.plans.list(engine), queue.channels(engine)) == ([], [])


def test_consumers_bring_a_change_to_all(queue: Queue, engine: Engine, database: Database) -> None:
    """Idle channels get it by the dequeues that go on, in bounded steps, and a dequeue says when it has more to do."""
    queue.plans.configure(engine, "gold", ChannelPolicy())
    queue.configure(engine, default_plan="gold")
    _seed(engine, queue, *(f"{number}" for number in range(2500)), count=1)
    _change_unseen(queue, engine, "gold", max_backlog=5)
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
        _change_unseen(queue, engine, "gold", weight=4)
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
    _seed(engine, queue, "a", "b", count=3)
    first, *_ = _take(engine, queue, limit=2)
    assert first.channel == "a"
    business = connect()
    queue.complete(business, first)
    _change_unseen(queue, engine, "gold", max_concurrency=2)
    taken = waits.unhindered(lambda rival: _take(rival.engine, queue))
    assert [one.channel for one in taken] == ["b"]
    clock.advance(HOUR / 60)
    before = clock.now()
    assert _take(engine, queue) == []
    after = clock.now()
    # Consumers come back after as long as the change is old, a second at most.
    [row] = clock.database.rows(
        "select s.due_at as at from fq_channel_state s join fq_channel c on c.id = s.channel_id where c.name = 'a'"
    )
    assert before <= instant(row.at) - SECOND <= after
    business.rollback()
    clock.advance(HOUR / 60)
    assert [one.channel for one in _take(engine, queue)] == ["a"]
    assert [one.current_concurrency for one in queue.channels(engine)] == [2, 2]


def test_a_change_waits_for_who_puts_a_channel_on_the_plan(
    queue: Queue, engine: Engine, connect: Connect, waits: Waits, database: Database
) -> None:
    """The channel gets the change, also if nobody could take from it; consumers wait for neither."""
    queue.plans.configure(engine, "gold", max_concurrency=1)
    _seed(engine, queue, "a", count=3)
    assert len(_take(engine, queue, limit=1)) == 1
    putting = connect()
    queue.configure_channel(putting, "a", plan="gold")
    change = waits.start(lambda rival: queue.plans.configure(rival, "gold", max_concurrency=3, max_backlog=7)).blocked()
    assert waits.unhindered(lambda rival: _take(rival.engine, queue)) == []
    # Another channel is put on the plan while the change waits.
    waits.unhindered(lambda rival: queue.configure_channel(rival.engine, "b", plan="gold"))
    putting.commit()
    change.result()
    database.execute("update fq_plan set spread_at = 0")
    assert len(_take(engine, queue)) == 2
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
    _seed(engine, queue, "a", "b")
    [held, *_] = _take(engine, queue, limit=1)
    changing = connect()
    queue.plans.configure(changing, "gold", max_concurrency=1)
    queue.plans.remove(changing, "old")
    waits.unhindered(lambda rival: _seed(rival.engine, queue, "c", "d", count=1))
    assert len(waits.unhindered(lambda rival: _take(rival.engine, queue))) == 5
    waits.unhindered(lambda rival: queue.complete(rival.engine, held))
    changing.commit()
    assert {one.max_concurrency for one in queue.channels(engine, "c")} == {2}
    assert _take(engine, queue) == []
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
    assert len(_take(engine, queue)) == 2


@pytest.mark.parametrize("burst", [1, 3])
def test_a_first_rate_of_a_ready_channel(queue: Queue, engine: Engine, connect: Connect, burst: int) -> None:
    """A plan that brings a rate leaves a channel, of which the rate allows a message, in its place in the order."""
    queue.plans.configure(engine, "gold", ChannelPolicy())
    queue.configure(engine, default_plan="gold")
    queue.configure_channel(engine, "other", plan=None)
    _seed(engine, queue, "other", count=10)
    _take(engine, queue, limit=1)
    late = connect()
    for number in range(5):
        queue.enqueue(late, channel="late", payload=number)
    queue.plans.configure(engine, "gold", rate=Rate(1, per=HOUR, burst=burst))
    late.commit()
    taken = [one.channel for _ in range(2 * burst) for one in _take(engine, queue, limit=1)]
    assert taken.count("late") == burst
    assert [one.channel for one in _take(engine, queue)] == ["other"] * (9 - burst)
