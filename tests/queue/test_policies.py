"""Policies: each field on each of its ways to the database and back, a way that forgets a new field fails here.

Of a change what is named changes, everything else stays, also between concurrent changes.
"""

from collections.abc import Collection
from datetime import timedelta
from typing import get_type_hints

import pytest
from sqlalchemy import Engine, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, Queue, Rate
from sqlalchemy_fairqueue.database.configuration import field_columns
from sqlalchemy_fairqueue.models import ChannelState, QueueConfig
from sqlalchemy_fairqueue.times import microseconds
from sqlalchemy_fairqueue.values.fields import definitions
from sqlalchemy_fairqueue.values.policies import POLICY, PolicyChanges, PolicyFields, policy_values
from sqlalchemy_fairqueue.values.settings import DeadLetterRetention, PolicyOf, QueueChanges, QueueSettings
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits
from tests.policies import SAMPLES, SETTING_WORDS, WORDS

EVERYTHING = ChannelPolicy(**SAMPLES)
_COLUMNS = set(field_columns(POLICY))


@pytest.mark.parametrize(("kind", "words"), [(PolicyFields, WORDS), (QueueSettings, SETTING_WORDS)])
def test_each_field_is_read_as_it_is_written(kind: type[PolicyFields | QueueSettings], words: dict[str, str]) -> None:
    """A sample is another value than the initial one, can be kept, and is read as it is written."""
    initial = kind()
    for name, definition in definitions(kind).items():
        if not isinstance(definition, PolicyOf):
            value = definition.checked(name, definition.parsed(words[name]))
            assert value != getattr(initial, name), name
            assert definition.checked(name, definition.parsed(definition.text(value))) == value


def test_changes_have_the_types_of_the_fields() -> None:
    """What type checkers read of changes has the fields and their types; a rate may be text, and names in any order."""
    rates = {"rate": Rate | str | None}
    assert get_type_hints(PolicyChanges) == get_type_hints(PolicyFields) | rates
    kept = get_type_hints(QueueSettings)
    del kept["dead_letter_retention_by_kind"]
    names = Collection[str] | None
    wider = {"limits": names, "on_dead_kinds": names, "dead_letter_retention": DeadLetterRetention}
    assert get_type_hints(QueueChanges) == kept | rates | wider | {"defaults": ChannelPolicy | PolicyChanges}


def test_the_database_has_the_same_fields(database: Database) -> None:
    """The one list in SQL, the state rows and Python have the same fields, with the same initial values."""
    initial = database.value("select fq_changed_policy(null, null)")
    assert initial.keys() == _COLUMNS
    assert ChannelPolicy(**policy_values(initial)) == ChannelPolicy()
    assert {column.name for column in ChannelState.__table__.columns} >= _COLUMNS


def test_every_way_in(queue: Queue, engine: Engine) -> None:
    """A whole policy is kept by a configuration, by the defaults, and by the first enqueue of a channel."""
    generous = Queue("documents", defaults=EVERYTHING)
    queue.configure_channel(engine, "configured", EVERYTHING)
    generous.enqueue(engine, channel="enqueued", payload=1)
    with Session(engine) as session:
        generous.enqueue(session, channel="one", payload=1)
        generous.enqueue(session, channel="other", payload=1)
        session.commit()
    queue.configure(engine, defaults=EVERYTHING)
    queue.enqueue(engine, channel="by default", payload=1)
    assert {one.channel: one.policy for one in queue.channels(engine)} == dict.fromkeys(
        ["configured", "enqueued", "one", "other", "by default"], EVERYTHING
    )


def test_every_way_out(queue: Queue, engine: Engine) -> None:
    """Stats and models tell every field."""
    queue.configure_channel(engine, "a", EVERYTHING)
    queue.configure(engine, defaults=EVERYTHING)
    [stats] = queue.channels(engine)
    assert {name: getattr(stats, name) for name in SAMPLES} == SAMPLES
    with Session(engine) as session:
        state = session.scalars(select(ChannelState)).one()
        told = {name: getattr(state, name) for name in _COLUMNS}
        defaults = session.scalars(select(QueueConfig.defaults)).one()
    durations = {name: microseconds(value) for name, value in told.items() if isinstance(value, timedelta)}
    assert policy_values(told | durations) == SAMPLES
    assert ChannelPolicy(**policy_values(defaults or {})) == EVERYTHING


def _policy(queue: Queue, engine: Engine, channel: str) -> ChannelPolicy:
    [stats] = queue.channels(engine, channel)
    return stats.policy


def _first_policy(queue: Queue, engine: Engine, channel: str) -> ChannelPolicy:
    """The policy of a channel that an enqueue creates."""
    queue.enqueue(engine, channel=channel, payload=1)
    return _policy(queue, engine, channel)


def test_a_field_that_is_not_named_stays(queue: Queue, engine: Engine) -> None:
    """A change of one field changes it and leaves all others, of a channel and of the defaults."""
    for field in SAMPLES:
        initial = {field: getattr(ChannelPolicy(), field)}
        queue.configure_channel(engine, "a", EVERYTHING)
        queue.configure(engine, defaults=EVERYTHING)
        queue.configure_channel(engine, "a", **initial)
        queue.configure(engine, defaults=initial)  # type: ignore[call-overload]
        expected = ChannelPolicy(**SAMPLES | initial)
        assert _policy(queue, engine, "a") == _first_policy(queue, engine, f"new {field}") == expected


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


@pytest.mark.parametrize("exists", [True, False], ids=["configured", "new"])
def test_concurrent_changes_both_last(
    queue: Queue, engine: Engine, connect: Connect, waits: Waits, *, exists: bool
) -> None:
    """Of two transactions that change different fields, the second waits and changes what it then sees: of a channel,
    also where both create it, and of the defaults, also where nobody configured the queue before.
    """
    if exists:
        queue.configure_channel(engine, "a", weight=2)
        queue.configure(engine, defaults=ChannelPolicy(rate="10/s, burst 2"))
    first = connect()
    queue.configure_channel(first, "a", max_backlog=500)
    second = waits.start(lambda rival: queue.configure_channel(rival, "a", weight=7)).blocked()
    first.commit()
    second.result()
    assert _policy(queue, engine, "a").max_backlog == 500
    assert _policy(queue, engine, "a").weight == 7
    queue.configure(first, defaults={"max_backlog": 500})
    second = waits.start(lambda rival: queue.configure(rival, defaults={"weight": 7})).blocked()
    first.commit()
    second.result()
    expected = ChannelPolicy(max_backlog=500, weight=7, rate=Rate(10, burst=2) if exists else None)
    assert _first_policy(queue, engine, "b") == expected


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
        ({"history_retention": None}, ("t", None)),
    ):
        queue.configure(engine, **change)
        assert database.value(kept) == expected
