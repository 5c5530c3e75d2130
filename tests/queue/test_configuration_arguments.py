"""A wrong argument about dead letters, limits or pauses is refused by an error that names it; nothing is recorded."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import InvalidArgument, Queue
from tests.fixtures.database import Database


@dataclass(frozen=True, slots=True)
class Where:
    """Targets of calls."""

    session: Session
    async_engine: AsyncEngine


@pytest.fixture
def where(engine: Engine, async_engine: AsyncEngine) -> Iterator[Where]:
    """A session, and an async engine for the twins."""
    with Session(engine) as session:
        yield Where(session, async_engine)


_NOW = datetime.now(UTC)
_WRONG: list[tuple[dict[str, Any], str]] = [
    ({"message_ids": "17"}, "message_ids is '17'; give an id or several"),
    ({"message_ids": 0}, "message_ids is 0; give an int from 1"),
    ({"message_ids": [1, None]}, "message_ids is None"),
    ({"message_ids": 1.5}, "message_ids is 1.5"),
    ({"channel": ""}, "channel '' has 0 bytes"),
    ({"kind": 7}, "kind is 7"),
]
_LIMITS: list[tuple[dict[str, Any], str]] = [
    ({"limit": 0}, "limit is 0; give an int from 1 to 100000"),
    ({"limit": 100_001}, "limit is 100001"),
]


@pytest.mark.parametrize(
    ("verb", "given", "message"),
    [
        *[(verb, *one) for verb in ("dead_letters", "redrive", "purge_dead") for one in _WRONG],
        *[(verb, *one) for verb in ("dead_letters", "redrive") for one in _LIMITS],
        ("dead_letters", {"after": 17}, "after is 17; give the last DeadLetterInfo"),
        ("purge_dead", {"until": "yesterday"}, "until is 'yesterday'; give an aware datetime"),
        ("purge_dead", {"until": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001 - the point
        ("purge_dead", {"before": "yesterday"}, "before is 'yesterday'; give an aware datetime"),
        ("purge_dead", {"until": _NOW, "before": _NOW}, "both say the same; give one"),
    ],
)
async def test_dead_letters(queue: Queue, where: Where, verb: str, given: dict[str, Any], message: str) -> None:
    """A wrong restriction names itself and its value, in the call and in its twin; nothing was begun."""
    with pytest.raises(InvalidArgument) as caught:
        getattr(queue, verb)(where.session, **given)
    assert message in str(caught.value)
    assert not where.session.in_transaction()
    with pytest.raises(InvalidArgument) as caught:
        await getattr(queue, f"a{verb}")(where.async_engine, **given)
    assert message in str(caught.value)


_ODD: Any = object()
_CONFIGURATIONS: list[tuple[Callable[[Queue, Any], object], str]] = [
    (lambda queue, where: queue.configure(where), "configure has nothing to set; give defaults"),
    (lambda queue, where: queue.configure(where, max_concurrency=0), "max_concurrency is 0; give an int from 1"),
    (lambda queue, where: queue.configure(where, max_concurrency=True), "max_concurrency is True"),
    (lambda queue, where: queue.configure(where, max_concurrency=2**31), "max_concurrency is 2147483648"),
    (lambda queue, where: queue.configure(where, history=1), "history is 1; say True or False"),  # type: ignore[arg-type]
    (
        lambda queue, where: queue.configure(where, history=True, history_retention=timedelta(hours=1)),
        "history_retention is datetime.timedelta(seconds=3600); give a timedelta from 1 day",
    ),
    (
        lambda queue, where: queue.configure(where, history=True, history_retention=30),  # type: ignore[arg-type]
        "history_retention is 30",
    ),
    (lambda queue, where: queue.configure(where, defaults=_ODD), "defaults is <object"),
    (lambda queue, where: queue.pause(where, ""), "channel '' has 0 bytes"),
    (lambda queue, where: queue.resume(where, 7), "channel is 7"),  # type: ignore[arg-type]
    (lambda queue, where: queue.purge(where, "x" * 513), "has 513 bytes of UTF-8; use 1 to 512"),
    (lambda queue, where: queue.purge(where, None), "channel is None"),  # type: ignore[arg-type]
    (
        lambda queue, where: queue.enqueue(where, channel="a", payload=1, on_duplicate=_ODD),
        "on_duplicate is <object",
    ),
    (lambda queue, where: queue.enqueue(where, channel="a", payload=1, on_duplicate="raise"), "there is no key"),
    (lambda queue, where: queue.enqueue_now(where, channel="a", payload=1, on_duplicate="replace"), "there is no key"),
]


@pytest.mark.parametrize(("call", "message"), _CONFIGURATIONS)
def test_recorded(
    queue: Queue, where: Where, database: Database, call: Callable[[Queue, Any], object], message: str
) -> None:
    """A wrong argument names itself and its value, and the session commits what it had recorded besides."""
    queue.enqueue(where.session, channel="kept", payload=1)
    with pytest.raises(InvalidArgument) as caught:
        call(queue, where.session)
    assert message in str(caught.value)
    where.session.commit()
    assert database.value("select string_agg(name, ' ') from fq_channel") == "kept"
    assert database.value("select count(*) from fq_queue") == 0


@pytest.mark.parametrize("verb", ["pause", "resume", "purge", "cancel", "configure"])
async def test_targets(queue: Queue, where: Where, verb: str) -> None:
    """A sync call with an async engine points to its twin, and a twin with a session to the plain call."""
    given: dict[str, Any] = {"purge": {"channel": "a"}, "cancel": {"message_id": 1}, "configure": {"history": True}}
    arguments = given.get(verb, {})
    with pytest.raises(InvalidArgument, match="await the method of the same name with an 'a' in front"):
        getattr(queue, verb)(where.async_engine, **arguments)
    with pytest.raises(InvalidArgument, match="use the method without the 'a' in front"):
        await getattr(queue, f"a{verb}")(where.session, **arguments)


def test_notify(queue: Queue) -> None:
    """Whether a queue notifies is said by a bool."""
    with pytest.raises(InvalidArgument, match="notify is 'no'; give True or False"):
        Queue(queue.name, notify="no")  # type: ignore[arg-type]
