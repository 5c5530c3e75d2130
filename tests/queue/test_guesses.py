"""A guess that comes from another library, or from the wrong kind of object, is refused with what to write here."""

from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from sqlalchemy_fairqueue import (
    Context,
    Delivery,
    Enqueue,
    InvalidArgument,
    PayloadError,
    Queue,
    Receipt,
    Recurrence,
    Retry,
    RetryPolicy,
    Worker,
    install_fairqueue,
)
from sqlalchemy_fairqueue.dashboard import Access, Role, create_dashboard
from sqlalchemy_fairqueue.metrics import QueueCollector, WorkerCollector
from sqlalchemy_fairqueue.otel import observe_queues
from sqlalchemy_fairqueue.testing import drain

# Nothing here connects: each call is refused before.
_ENGINE = create_engine("postgresql+psycopg://")
_HOUR = timedelta(hours=1)
_JOBS = Queue("documents", check_kinds=False)
_QUEUE: Any = _JOBS
_WORKER: Any = Worker


class Base(DeclarativeBase):
    """The models of an application."""


class Upload(Base):
    """A row."""

    __tablename__ = "upload"

    id: Mapped[int] = mapped_column(primary_key=True)


class Plan(Enum):
    """A word of an application."""

    FREE = "free"


class Model:
    """What is as much of a pydantic model as the codec asks for."""

    def model_dump(self) -> None:
        """What such a model has."""


@_JOBS.job
def _parse(context: Context, *, upload: int) -> None: ...


# Type checkers refuse most of these guesses, too.
_JOB: Any = _parse


def _takes_a_row(upload: Upload) -> None: ...


def _takes_a_delivery(delivery: Delivery) -> None: ...


def _task(address: str, subject: str) -> None: ...


def _no_delivery() -> None: ...


def _enqueue(**words: Any) -> Any:
    return _QUEUE.enqueue(Session(), **{"channel": "a", "payload": 1} | words)


_GUESSES: list[tuple[Callable[[], object], str]] = [
    (lambda: _enqueue(channel=7), "channel is 7; give a str, such as '7'"),
    (lambda: _enqueue(channel=UUID(int=1)), "such as '00000000-0000-0000-0000-000000000001'"),
    (lambda: _enqueue(kind=Plan.FREE), "give a str, such as 'free'"),
    (
        lambda: _enqueue(delay=5),
        "delay is 5; give a timedelta from 0:00:00 to 365 days, such as timedelta(seconds=5",
    ),
    (lambda: _QUEUE.cancel(_ENGINE, Receipt("a")), "give its message_id, an int"),
    (lambda: _QUEUE.enqueue_many(_ENGINE, [{"channel": "a"}]), "write Enqueue(channel=..., payload=...)"),
    (lambda: Recurrence(cron="0 3 * * *", timezone=ZoneInfo("Europe/Berlin")), "a str, such as 'Europe/Berlin'"),  # type: ignore[arg-type]
    (lambda: _JOB.schedule(_ENGINE, "nightly", "0 3 * * *", "a", upload=1), "Recurrence(cron='0 3 * * *')"),
    (lambda: RetryPolicy(first=_HOUR), "first is 1:00:00 and cap is 0:15:00, and no wait is longer than cap"),
    (
        lambda: _QUEUE.handler("mail", retry=3),
        "retry is 3; give a RetryPolicy, such as RetryPolicy(max_attempts=5)",
    ),
    (lambda: _QUEUE.enqueue(sessionmaker(), channel="a", payload=1), "'with sessions.begin() as session'"),
    (
        lambda: _QUEUE.enqueue(async_sessionmaker(), channel="a", payload=1),
        "'async with sessions.begin() as session'",
    ),
    (lambda: _QUEUE.stats("postgresql://"), "make an engine of a URL by create_engine(url)"),
    (lambda: _QUEUE.group(_ENGINE), "as session; give a Session or an AsyncSession"),
    (lambda: _WORKER(_ENGINE, [_QUEUE]), "give each queue as an argument: Worker(engine, documents, mails)"),
    (lambda: _WORKER(_ENGINE, _QUEUE, session_factory=Session()), "makes no sessions; give a sessionmaker"),
    (lambda: _WORKER(_ENGINE, _QUEUE, middleware=print), "give a list of functions"),
    (lambda: install_fairqueue("postgresql://"), "give an Engine or a Connection"),  # type: ignore[arg-type]
    (
        lambda: install_fairqueue(create_async_engine("postgresql+psycopg://")),  # type: ignore[arg-type]
        "await connection.run_sync(install_fairqueue)",
    ),
    (lambda: drain(Session(_ENGINE), _JOB), "drain performs a whole queue: give its queue"),
    (lambda: CollectorRegistry().register(QueueCollector(_ENGINE, "documents")), "queues has 'documents' where a"),  # type: ignore[arg-type]
    (lambda: WorkerCollector(_QUEUE), "where a Worker or AsyncWorker is needed"),
    (lambda: observe_queues(_ENGINE, "documents"), "queues has 'documents' where a Queue is needed"),  # type: ignore[arg-type]
    (lambda: observe_queues(create_async_engine("postgresql+psycopg://")), "an export cannot await AsyncEngine"),  # type: ignore[arg-type]
    (lambda: create_dashboard(_ENGINE, [_QUEUE]), "give each queue as an argument"),  # type: ignore[arg-type]
    (lambda: create_dashboard(_ENGINE, authorize=True), "authorize is True; give a function"),  # type: ignore[arg-type]
    (lambda: Access("ann", "admin"), "role is 'admin'; give Role.VIEWER or Role.OPERATOR"),  # type: ignore[arg-type]
    (lambda: _QUEUE.handler("a")(_no_delivery), "give it one parameter for it, the first"),
    (lambda: _QUEUE.handler("b")(_task), "takes 'subject', which no worker can give"),
    (
        lambda: _QUEUE.handler("c")(_task),
        "what the payload holds is address.payload, or the arguments of a function",
    ),
    (lambda: _QUEUE.job(_takes_a_row), "give the row's primary key"),
    (lambda: _QUEUE.job(_takes_a_delivery), "'context: Context' first, which has context.delivery"),
    (lambda: _enqueue(payload=Upload(id=1)), "a Upload cannot be encoded as JSON; give the row's primary key"),
    (lambda: _enqueue(payload=Model()), "use a job (@queue.job), which converts it"),
]


def test_the_error_says_what_to_write() -> None:
    """The error of a value or an object has an example of what is needed, that of a function or a payload the way that
    there is.
    """
    for call, words in _GUESSES:
        with pytest.raises((InvalidArgument, PayloadError)) as caught:
            call()
        assert words in str(caught.value)


def test_a_role_by_its_text() -> None:
    """The word of a role is that role: it gives neither more nor less."""
    by_text = Access("ann", "operator")  # type: ignore[arg-type]
    assert by_text == Access("ann", Role.OPERATOR)
    assert by_text.operates


def test_outcomes_of_ones_own() -> None:
    """A class that is derived from an outcome has the arguments that it likes."""

    class Later(Retry):
        def __init__(self, minutes: int) -> None:
            super().__init__(delay=timedelta(minutes=minutes))

    assert Later(5).delay == timedelta(minutes=5)


def test_names_of_cron() -> None:
    """The names that cron has for expressions stand for these, so that the same schedule is the same."""
    assert Recurrence(cron="@daily") == Recurrence(cron="0 0 * * *")
    assert Recurrence(cron="@weekly").cron == "0 0 * * 0"
    with pytest.raises(InvalidArgument, match="cron is '@reboot'; give five fields"):
        Recurrence(cron="@reboot")


def test_options_are_those_of_a_message() -> None:
    """Options that go together are refused together, wherever they were given."""
    assert _JOB.options(key="a", unique_for=_HOUR).prepare("b", upload=1) == Enqueue(
        channel="b", payload={"upload": 1}, kind="_parse", key="a", unique_for=_HOUR
    )
    with pytest.raises(InvalidArgument, match="message has delay and at"):
        _JOB.options(delay=_HOUR).options(at=_JOB)
