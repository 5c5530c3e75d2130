"""Changes of policies: what is named changes, everything else stays, also between concurrent changes."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, InvalidArgument, Queue, Rate
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits
from tests.policies import SAMPLES

EVERYTHING = ChannelPolicy(**SAMPLES)


def _policy(queue: Queue, engine: Engine, channel: str) -> ChannelPolicy:
    [stats] = queue.channels(engine, channel)
    return stats.policy


def _first_policy(queue: Queue, engine: Engine, channel: str) -> ChannelPolicy:
    """The policy of a channel that an enqueue creates."""
    with Session(engine) as session:
        queue.enqueue(session, channel=channel, payload=1)
        session.commit()
    return _policy(queue, engine, channel)


@pytest.mark.parametrize("field", SAMPLES)
def test_a_field_that_is_not_named_stays(queue: Queue, engine: Engine, field: str) -> None:
    """A change of one field changes it and leaves all others, of a channel and of the defaults."""
    initial = {field: getattr(ChannelPolicy(), field)}
    queue.configure_channel(engine, "a", EVERYTHING)
    queue.configure(engine, defaults=EVERYTHING)
    queue.configure_channel(engine, "a", **initial)
    queue.configure(engine, defaults=initial)  # type: ignore[arg-type]
    expected = ChannelPolicy(**SAMPLES | initial)
    assert _policy(queue, engine, "a") == _first_policy(queue, engine, "new") == expected


def test_none_lifts_a_limit(queue: Queue, engine: Engine) -> None:
    """None lifts the limit and the bound, and only those that are named."""
    queue.configure_channel(engine, "a", max_concurrency=2, max_backlog=3)
    queue.configure_channel(engine, "a", max_concurrency=None)
    assert _policy(queue, engine, "a") == ChannelPolicy(max_backlog=3)
    queue.configure_channel(engine, "a", max_backlog=None)
    assert _policy(queue, engine, "a") == ChannelPolicy()


def test_a_policy_replaces_all_fields(queue: Queue, engine: Engine) -> None:
    """A whole ChannelPolicy leaves nothing of the one before, for a channel and for the defaults."""
    queue.configure_channel(engine, "a", EVERYTHING)
    queue.configure_channel(engine, "a", ChannelPolicy(weight=2))
    queue.configure(engine, defaults=EVERYTHING)
    queue.configure(engine, defaults=ChannelPolicy(weight=2))
    assert _policy(queue, engine, "a") == _first_policy(queue, engine, "new") == ChannelPolicy(weight=2)


def test_changes_begin_with_what_would_hold(engine: Engine) -> None:
    """The first change of a new channel changes the queue's defaults, and the first change of those the Queue's."""
    queue = Queue("documents", defaults=ChannelPolicy(max_concurrency=4, weight=3))
    queue.configure_channel(engine, "a", max_backlog=5)
    assert _policy(queue, engine, "a") == ChannelPolicy(max_concurrency=4, weight=3, max_backlog=5)
    queue.configure(engine, defaults={"weight": 2})
    queue.configure_channel(engine, "b", max_backlog=6)
    assert _policy(queue, engine, "b") == ChannelPolicy(max_concurrency=4, weight=2, max_backlog=6)


def test_concurrent_changes_of_a_channel_both_last(
    queue: Queue, engine: Engine, connect: Connect, waits: Waits
) -> None:
    """Of two transactions that change different fields of a channel, the second waits and changes what it then sees."""
    queue.configure_channel(engine, "a", weight=2)
    first = connect()
    queue.configure_channel(first, "a", max_backlog=500)
    second = waits.start(lambda rival: queue.configure_channel(rival, "a", weight=7)).blocked()
    first.commit()
    second.result()
    assert _policy(queue, engine, "a") == ChannelPolicy(max_backlog=500, weight=7)


@pytest.mark.parametrize("configured", [True, False], ids=["configured", "new"])
def test_concurrent_changes_of_the_defaults_both_last(
    queue: Queue, engine: Engine, connect: Connect, waits: Waits, *, configured: bool
) -> None:
    """The same holds for the defaults of a queue, also where nobody configured it before."""
    if configured:
        queue.configure(engine, defaults=ChannelPolicy(rate="10/s, burst 2"))
    first = connect()
    queue.configure(first, defaults={"max_backlog": 500})
    second = waits.start(lambda rival: queue.configure(rival, defaults={"weight": 7})).blocked()
    first.commit()
    second.result()
    expected = ChannelPolicy(max_backlog=500, weight=7, rate=Rate(10, burst=2) if configured else None)
    assert _first_policy(queue, engine, "a") == expected


def test_a_new_channel_that_two_configure_gets_both_changes(
    queue: Queue, engine: Engine, connect: Connect, waits: Waits
) -> None:
    """Two transactions that create a channel by configuring it both change it."""
    first = connect()
    queue.configure_channel(first, "a", max_backlog=500)
    second = waits.start(lambda rival: queue.configure_channel(rival, "a", weight=7)).blocked()
    first.commit()
    second.result()
    assert _policy(queue, engine, "a") == ChannelPolicy(max_backlog=500, weight=7)


def test_a_change_without_a_limit_waits_for_no_settlement(
    queue: Queue, engine: Engine, connect: Connect, waits: Waits
) -> None:
    """Only a change that names max_concurrency waits for a transaction that settles a message of the channel."""
    with Session(engine) as session:
        queue.enqueue(session, channel="a", payload=1)
        session.commit()
    business = connect()
    queue.complete(business, queue.dequeue(engine))
    waits.unhindered(lambda admin: queue.configure_channel(admin, "a", max_backlog=500))
    limited = waits.start(lambda admin: queue.configure_channel(admin, "a", max_concurrency=1)).blocked()
    business.commit()
    limited.result()
    assert _policy(queue, engine, "a") == ChannelPolicy(max_concurrency=1, max_backlog=500)


def test_changes_of_a_session(queue: Queue, engine: Engine) -> None:
    """Changes that a session records are applied at its COMMIT, in the order of the calls."""
    with Session(engine) as session:
        queue.configure_channel(session, "a", EVERYTHING)
        queue.configure_channel(session, "a", weight=9)
        queue.configure(session, defaults={"weight": 5})
        session.rollback()
        assert queue.channels(engine) == []
        queue.configure_channel(session, "a", ChannelPolicy(max_backlog=5, weight=2))
        queue.configure_channel(session, "a", weight=9)
        session.commit()
    assert _policy(queue, engine, "a") == ChannelPolicy(max_backlog=5, weight=9)


async def test_awaited(queue: Queue, engine: Engine, async_engine: AsyncEngine) -> None:
    """The awaited twins change what is named, too."""
    await queue.aconfigure_channel(async_engine, "a", EVERYTHING)
    await queue.aconfigure_channel(async_engine, "a", max_backlog=None, weight=1)
    await queue.aconfigure(async_engine, defaults=EVERYTHING)
    await queue.aconfigure(async_engine, defaults={"max_backlog": None, "weight": 1})
    expected = ChannelPolicy(**SAMPLES | {"max_backlog": None, "weight": 1})
    assert _policy(queue, engine, "a") == _first_policy(queue, engine, "new") == expected


def test_the_whole_policy_is_checked(queue: Queue, engine: Engine) -> None:
    """A change that can be kept by itself, but not with the fields that stay, is refused and changes nothing."""
    queue.configure_channel(engine, "a", rate="1/h")
    with engine.connect() as connection, pytest.raises(DBAPIError, match="has rate_interval 3600000000 and rate_burst"):
        connection.execute(text("""select fq_configure_channel('documents', 'a', '{"rate_burst": 10000}')"""))
    assert _policy(queue, engine, "a") == ChannelPolicy(rate=Rate(1, per=timedelta(hours=1)))


def test_retention_and_history_stay_apart(queue: Queue, engine: Engine, database: Database) -> None:
    """The retention is set without the history and lifted by None; the history is switched without the retention."""
    kept = "select (history, history_retention / 86400000000) from fq_queue"
    for change, expected in (
        ({"history_retention": timedelta(days=7)}, ("f", "7")),
        ({"history": True}, ("t", "7")),
        ({"history_retention": None}, ("t", "30")),
    ):
        queue.configure(engine, **change)
        assert database.value(kept) == expected


_WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    (
        {"rate": 10},
        InvalidArgument,
        "rate is 10; give a Rate, its text, or None for no limit, such as Rate(10) or '10/s'",
    ),
    ({"rate_interval": 10}, TypeError, "has rate_interval=10, which is no field of a policy; write rate='10/s'"),
    ({"max_backlogs": 5}, TypeError, "has max_backlogs=5, which is no field of a policy; write max_backlog=5"),
    ({"weigth": 1}, TypeError, "has weigth=1, which is no field of a policy; write weight=1"),
    ({"weigth": 0}, TypeError, "has weigth=0, which is no field of a policy; write weight=3"),
    ({"limit": 7}, TypeError, "has limit=7, which is no field of a policy; write max_concurrency=7"),
    ({"weight": None}, InvalidArgument, "weight is None; give an int from 1 to 10000"),
    ({"rate": "10 a second"}, InvalidArgument, "'10 a second' is no rate; give one like 10/s"),
    ({}, InvalidArgument, "configure_channel has nothing to set; give the fields to change"),
    (
        {"policy": ChannelPolicy(), "weight": 3},
        InvalidArgument,
        "configure_channel has a ChannelPolicy and weight=3; a ChannelPolicy replaces all fields",
    ),
    ({"policy": {"weight": 3}}, InvalidArgument, "policy is {'weight': 3}; give a ChannelPolicy, or fields of one"),
]


@pytest.mark.parametrize(("arguments", "kind", "message"), _WRONG)
def test_wrong_changes(
    queue: Queue, engine: Engine, arguments: dict[str, Any], kind: type[Exception], message: str
) -> None:
    """A wrong change names the argument, its value and what to write; nothing is created."""
    with pytest.raises(kind) as caught:
        queue.configure_channel(engine, "a", **arguments)
    assert message in str(caught.value)
    assert queue.channels(engine) == []


def test_wrong_defaults(queue: Queue, engine: Engine, database: Database) -> None:
    """A dict of defaults is checked as the arguments are."""
    with pytest.raises(TypeError, match="defaults has burst=3, which is no field of a policy; write rate="):
        queue.configure(engine, defaults={"burst": 3})  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="weight is 0"):
        queue.configure(engine, defaults={"weight": 0})
    with pytest.raises(InvalidArgument, match="defaults has nothing to set"):
        queue.configure(engine, defaults={})
    assert database.value("select count(*) from fq_queue") == 0
