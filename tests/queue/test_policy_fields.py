"""Each field of a policy on each of its ways to the database and back: a way that forgets a new field fails here."""

from collections.abc import Collection
from datetime import timedelta
from typing import get_type_hints

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, Queue, Rate
from sqlalchemy_fairqueue.database.configuration import field_columns
from sqlalchemy_fairqueue.models import ChannelState, QueueConfig
from sqlalchemy_fairqueue.times import microseconds
from sqlalchemy_fairqueue.values.fields import definitions
from sqlalchemy_fairqueue.values.policies import POLICY, PolicyChanges, PolicyFields, policy_values
from sqlalchemy_fairqueue.values.settings import DeadLetterRetention, PolicyOf, QueueChanges, QueueSettings
from tests.fixtures.database import Database
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
    text = {"rate": Rate | str | None}
    assert get_type_hints(PolicyChanges) == get_type_hints(PolicyFields) | text
    kept = get_type_hints(QueueSettings)
    del kept["dead_letter_retention_by_kind"]
    names = Collection[str] | None
    wider = {"limits": names, "on_dead_kinds": names, "dead_letter_retention": DeadLetterRetention}
    assert get_type_hints(QueueChanges) == kept | text | wider | {"defaults": ChannelPolicy | PolicyChanges}


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
