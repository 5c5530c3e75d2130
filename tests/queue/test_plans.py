"""Plans: policies with a name that channels follow, changed as one row and exact from the commit on."""

from collections import Counter

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, InvalidArgument, Queue, Rate
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.policies import SAMPLES
from tests.queue.plans import HOUR, change_unseen, seed, take

EVERYTHING = ChannelPolicy(**SAMPLES)


def _policies(engine: Engine, queue: Queue) -> dict[str, ChannelPolicy]:
    return {one.channel: one.policy for one in queue.channels(engine)}


def test_a_plan_is_followed(queue: Queue, engine: Engine) -> None:
    """Channels on a plan have its policy, and get each change of it; others do not."""
    queue.plans.configure(engine, "gold", ChannelPolicy(weight=5, rate=Rate(50, burst=10)))
    queue.configure_channel(engine, "a", plan="gold")
    seed(engine, queue, "b", count=1)
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
    seed(engine, queue, "old", count=1)
    generous = Queue("documents", defaults=ChannelPolicy(weight=9))
    queue.plans.configure(engine, "free", max_concurrency=1)
    queue.configure(engine, default_plan="free", defaults={"weight": 3})
    with Session(engine) as session:
        generous.enqueue(session, channel="enqueued", payload=1)
        session.commit()
    queue.enqueue(engine, channel="at once", payload=1)
    queue.configure_channel(engine, "configured", weight=2)
    queue.configure(engine, default_plan=None)
    seed(engine, queue, "late", count=1)
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
    seed(engine, queue, *names, count=5)
    held = take(engine, queue, limit=60)
    change_unseen(queue, engine, "gold", max_concurrency=3)
    # The pass over all channels is kept away: only what a dequeue takes from is read.
    database.execute("update fq_plan set spread_after = 9223372036854775807")
    taken = take(engine, queue)
    counts = dict.fromkeys(names, 0)
    for one in [*held, *taken]:
        counts[one.channel] += 1
    assert set(counts.values()) == {3}
    queue.complete(engine, held[0])
    assert [one.channel for one in take(engine, queue)] == [held[0].channel]


def test_a_lowered_rate_holds_from_the_commit(queue: Queue, engine: Engine, clock: Clock) -> None:
    """A rate that comes with a change is exact: a burst, then one each interval."""
    queue.plans.configure(engine, "gold", ChannelPolicy())
    queue.configure_channel(engine, "a", plan="gold")
    seed(engine, queue, "a")
    change_unseen(queue, engine, "gold", rate=Rate(1, per=HOUR, burst=2))
    assert len(take(engine, queue)) == 2
    assert take(engine, queue) == []
    clock.advance(HOUR)
    assert len(take(engine, queue)) == 1


def test_a_raised_limit_wakes_what_it_frees(queue: Queue, engine: Engine) -> None:
    """Channels at their limit, and those that wait for their rate, are served again without a signal of their own."""
    queue.plans.configure(engine, "gold", max_concurrency=1)
    queue.plans.configure(engine, "slow", rate=Rate(1, per=HOUR, burst=1))
    for number in range(5):
        queue.configure_channel(engine, f"gold {number}", plan="gold")
        queue.configure_channel(engine, f"slow {number}", plan="slow")
        seed(engine, queue, f"gold {number}", f"slow {number}", count=3)
    assert len(take(engine, queue)) == 10
    assert take(engine, queue) == []
    change_unseen(queue, engine, "gold", max_concurrency=2)
    assert {one.channel for one in take(engine, queue)} == {f"gold {number}" for number in range(5)}
    change_unseen(queue, engine, "slow", rate=None)
    assert len(take(engine, queue)) == 10


def test_weights_of_a_plan(queue: Queue, engine: Engine) -> None:
    """What is served next has the new weight."""
    queue.plans.configure(engine, "gold", weight=1)
    for name in "ab":
        queue.configure_channel(engine, name, plan="gold" if name == "a" else None)
    seed(engine, queue, "a", "b", count=20)
    assert [one.channel for one in take(engine, queue, limit=4)] == ["a", "b", "a", "b"]
    change_unseen(queue, engine, "gold", weight=3)
    assert Counter(one.channel for one in take(engine, queue, limit=8)) == {"a": 6, "b": 2}


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
