"""Typed jobs in the testing kit."""

from datetime import date

import pytest
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Context, InvalidArgument, PayloadError, Queue, Retry
from sqlalchemy_fairqueue.testing import all_enqueued, aperform, assert_enqueued, drain, perform, refute_enqueued

queue = Queue("documents")


@queue.job
def parse(context: Context, session: Session, *, upload: str, due: date | None = None, key: str = "") -> Retry | None:
    """Parse an upload."""
    assert (upload, due, key, session) is not None
    return Retry() if context.delivery.attempt == 2 else None


@queue.job
async def call(line: str) -> None:
    """Call somebody."""
    assert line != "dead"


def test_assertions(session: Session) -> None:
    """A job is asserted by its arguments, in their own types, and by what else a message has."""
    parse.options(key="k", max_attempts=3).enqueue(
        session, channel="a", upload="x", due=date(2026, 1, 2), key="argument"
    )
    assert_enqueued(session, parse, upload="x")
    assert_enqueued(session, parse, upload="x", due=date(2026, 1, 2), channel="a", max_attempts=3, count=1)
    assert_enqueued(session, parse, key="argument")
    [found] = all_enqueued(session, parse)
    assert found.key == "k"
    refute_enqueued(session, parse, upload="y")
    refute_enqueued(session, call)
    with pytest.raises(AssertionError, match=r"no message .* with kind='parse', payload={'upload': 'y'} was enqueued"):
        assert_enqueued(session, parse, upload="y")
    with pytest.raises(InvalidArgument, match="messages have no 'uplod'"):
        assert_enqueued(session, parse, uplod="x")


def test_performing(session: Session) -> None:
    """A job is performed by its arguments, and drained as any handler."""
    assert perform(parse, session=session, upload="x") is None
    assert isinstance(perform(parse, session=session, upload="x", attempt=2), Retry)
    with pytest.raises(PayloadError, match=r"'upload' .* is 3"):
        perform(parse, session=session, upload=3)
    with pytest.raises(TypeError, match=r"missing a required( keyword-only)? argument: 'upload'"):
        perform(parse, session=session)
    with pytest.raises(InvalidArgument, match="give its arguments by name"):
        perform(parse, {"upload": "x"}, session=session)
    parse.enqueue(session, channel="a", upload="x")
    session.commit()
    [performed] = drain(session, queue)
    assert (performed.delivery.kind, performed.outcome) == ("parse", None)


async def test_an_async_job() -> None:
    """It is awaited, as any handler that is async."""
    assert await aperform(call, line="free") is None
