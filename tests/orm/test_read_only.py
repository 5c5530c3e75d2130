"""Rows of fairqueue's are read through a session and never written by it."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.orm import DeclarativeBase, Session

from sqlalchemy_fairqueue import models
from sqlalchemy_fairqueue.errors import FairQueueError
from sqlalchemy_fairqueue.models import Channel, Message, MessageMixin, Models, ReadOnlyModel, make_models
from tests.orm.rows import enqueue


class Base(DeclarativeBase):
    """A user's Base."""


class Work(MessageMixin, Base):
    """A user's own class for messages."""


MADE = make_models(type("Other", (DeclarativeBase,), {}))


@pytest.mark.parametrize("kind", [Message, Work, MADE.Message], ids=["ready-made", "mixin", "made"])
@pytest.mark.parametrize("add", [Session.add, Session.merge, lambda session, row: session.add_all([row])])
def test_add(engine: Engine, kind: type[Any], add: Callable[[Session, object], object]) -> None:
    """A new row is refused where it is added, with the verb to use instead, and the session stays usable."""
    with Session(engine) as session:
        with pytest.raises(ReadOnlyModel, match=r"cannot be added .*fq_message.*use queue\.enqueue\(session, \.\.\.\)"):
            add(session, kind(channel_id=1, kind="parse", content=b"1"))
        assert not session.new
        assert session.scalar(select(1)) == 1


def test_every_class_names_its_verb(engine: Engine) -> None:
    """Whichever row is added, the error says what to call."""
    with Session(engine) as session:
        for name in Models.__dataclass_fields__:
            with pytest.raises(FairQueueError, match=rf"^{name} cannot be added .*; .*queue"):
                session.add(getattr(models, name)())


def test_changes(engine: Engine) -> None:
    """A change of a mapped attribute, or a delete, fails at the flush, names the verb to use, and nothing is sent; an
    attribute set to the value that it had does not fail a commit.
    """
    enqueue(engine, 1)
    with Session(engine) as session:
        message = session.scalars(select(Message)).one()
        message.attempts = 7
        with pytest.raises(ReadOnlyModel, match=r"Message cannot be updated .* queue\.enqueue"):
            session.flush()
        session.rollback()
        session.delete(message)
        with pytest.raises(ReadOnlyModel, match=r"Message cannot be deleted .* queue\.cancel"):
            session.commit()
    with Session(engine) as session, session.begin():
        message = session.scalars(select(Message)).one()
        assert message.attempts == 0
        message.attempts = message.attempts + 0


def test_rows_move_between_sessions(engine: Engine) -> None:
    """A row that was read can be expunged, added to another session and refreshed there."""
    enqueue(engine, 1)
    with Session(engine, expire_on_commit=False) as session:
        channel = session.scalars(select(Channel)).one()
    with Session(engine) as session, session.begin():
        session.add(channel)
        assert channel.messages[0].payload == 1
