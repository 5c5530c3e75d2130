"""Calls of handlers that take a session: what repeats them, what each of them gets, and where they are flushed."""

import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from sqlalchemy_fairqueue import AsyncWorker, Context, Delivery, Queue, Worker
from tests.fixtures.database import Database
from tests.worker.helpers import AT_ONCE, count_effects, drained, send, write_effect

Body = Callable[[Delivery, Session, Context], Any]
Serve = Callable[..., Awaitable[Worker | AsyncWorker]]

_CONFLICT = "do $$ begin raise exception 'conflict' using errcode = '{code}'; end $$"
_AT_COMMIT = """
create sequence commits;
create function refuse() returns trigger language plpgsql as
  $$ begin
    if nextval('commits') < 3 then raise exception 'conflict' using errcode = '40001'; end if;
    return null;
  end $$;
create constraint trigger refuse after insert on effect deferrable initially deferred
  for each row when (new.message_id = {id}) execute function refuse()
"""
pytestmark = pytest.mark.usefixtures("effects")


@pytest.fixture(params=["plain", "async"])
def serve(request: pytest.FixtureRequest, queue: Queue, engine: Engine, async_engine: AsyncEngine) -> Serve:
    """Handle all messages by a plain function, or by an async one in an AsyncWorker, with a middleware that enters
    *around*.
    """
    is_async = request.param == "async"

    async def run(body: Body, around: Callable[[Context], Any] = contextlib.nullcontext) -> Worker | AsyncWorker:
        def handle(delivery: Delivery, session: Session, context: Context) -> Any:
            return body(delivery, session, context)

        async def await_it(delivery: Delivery, session: AsyncSession, context: Context) -> Any:
            return await session.run_sync(lambda sync: body(delivery, sync, context))

        def within(context: Context, proceed: Callable[[], Any]) -> Any:
            with around(context):
                return proceed()

        async def await_within(context: Context, proceed: Callable[[], Awaitable[Any]]) -> Any:
            with around(context):
                return await proceed()

        queue.handler()(await_it if is_async else handle)
        queue.middleware(await_within if is_async else within)
        if not is_async:
            return await asyncio.to_thread(drained, engine, queue, retry=AT_ONCE)
        worker = AsyncWorker(async_engine, queue, housekeeping=False, retry=AT_ONCE)
        await worker.run(drain=True)
        return worker

    return run


def _conflict(where: Any, code: str = "40001") -> None:
    where.execute(text(_CONFLICT.format(code=code)))


class _Refused(Exception):
    sqlstate = "40001"


def _in_a_savepoint(session: Session, _: Engine) -> None:
    with session.begin_nested():
        _conflict(session)


def _by_another_session(session: Session, engine: Engine) -> None:
    session.execute(text("select 1"))
    with Session(engine) as other:
        _conflict(other)


def _by_an_exception_of_its_own(_: Session, __: Engine) -> None:
    raise _Refused


def _by_one_raised_from_it(session: Session, _: Engine) -> None:
    try:
        _conflict(session)
    except DBAPIError as error:
        raise _Refused from error


Fail = Callable[[Session, Engine], None]
_OWN: list[Fail] = [
    lambda session, _: _conflict(session),
    lambda session, _: _conflict(session, "40P01"),
    lambda session, _: _conflict(session.connection()),
    _in_a_savepoint,
]
_OF_OTHERS: list[Fail] = [_by_another_session, _by_an_exception_of_its_own, _by_one_raised_from_it]


async def test_what_repeats_a_call(queue: Queue, engine: Engine, serve: Serve, database: Database) -> None:
    """A handler whose own transaction could not be serialized is called again in the same attempt, also if it was the
    COMMIT; a serialization failure that is not the session's own does not repeat in one attempt what the handler did.
    """
    fails = [*_OWN, *_OF_OTHERS]
    # The last one fails in its COMMIT.
    attempts: list[list[int]] = [[] for _ in range(len(fails) + 1)]

    def handle(delivery: Delivery, session: Session, _: Context) -> None:
        mine = attempts[delivery.payload]
        mine.append(delivery.attempt)
        write_effect(session, delivery)
        if len(mine) < 3 and delivery.payload < len(fails):
            fails[delivery.payload](session, engine)

    *_, commits = send(engine, queue, *range(len(fails) + 1))
    database.execute(_AT_COMMIT.format(id=commits))
    await serve(handle)
    assert attempts == [[1, 1, 1]] * len(_OWN) + [[1, 2, 3]] * len(_OF_OTHERS) + [[1, 1, 1]]
    assert count_effects(database) == len(attempts)


async def test_each_call_gets_what_was_enqueued(queue: Queue, engine: Engine, serve: Serve) -> None:
    """What a call changed in payload, headers and cost before its transaction failed is not there in the next one."""
    seen: list[object] = []

    def handle(delivery: Delivery, session: Session, context: Context) -> None:
        assert delivery is context.delivery
        assert delivery.headers is not None
        seen.append((delivery.payload.pop("files"), delivery.headers["trace"].pop("id"), context.cost))
        delivery.payload["more"] = delivery.headers["more"] = 1
        assert (list(delivery.payload), list(delivery.headers)) == (["more"], ["trace", "more"])
        context.cost = 7
        if len(seen) < 3:
            _conflict(session)

    send(engine, queue, {"files": ["a.pdf"]}, headers={"trace": {"id": 1}})
    worker = await serve(handle)
    assert seen == [(["a.pdf"], 1, None)] * 3
    assert (worker.stats.completed, worker.stats.retried) == (1, 0)


def test_each_call_of_a_job_gets_its_arguments(queue: Queue, engine: Engine) -> None:
    """So do jobs and middleware."""
    seen: list[object] = []

    @queue.middleware
    def count(context: Context, proceed: Callable[[], Any]) -> Any:
        seen.append(dict(context.delivery.payload))
        context.delivery.payload["files"].append("b.pdf")
        return proceed()

    @queue.job
    def parse(session: Session, *, files: list[str], tags: dict[str, Any]) -> None:
        seen.append((files.pop(), tags.popitem()))
        if len(seen) < 4:
            _conflict(session)

    parse.enqueue(engine, "customer-7", files=["a.pdf"], tags={"a": {}})
    drained(engine, queue)
    call: list[object] = [{"files": ["a.pdf", "b.pdf"], "tags": {"a": {}}}, ("b.pdf", ("a", {}))]
    assert seen == call * 2


_actor: ContextVar[str | None] = ContextVar("actor", default=None)


class _Base(DeclarativeBase):
    pass


class _Row(_Base):
    __tablename__ = "audited"

    id: Mapped[int] = mapped_column(primary_key=True)
    actor: Mapped[str | None] = mapped_column(default=_actor.get)


@contextlib.contextmanager
def _as_channel(context: Context) -> Iterator[None]:
    token = _actor.set(context.delivery.channel)
    try:
        yield
    finally:
        _actor.reset(token)


async def test_the_flush_is_within_the_middleware(
    queue: Queue, engine: Engine, database: Database, serve: Serve
) -> None:
    """What a handler adds is flushed within its middleware, and hooks of the commit see its context variables."""
    _Base.metadata.create_all(database.own)
    seen: list[str | None] = []

    def handle(_: Delivery, session: Session, __: Context) -> None:
        event.listen(session, "before_commit", lambda _: seen.append(_actor.get()))
        session.add(_Row())

    queue.enqueue(engine, channel="customer-7", payload=1)
    worker = await serve(handle, _as_channel)
    assert (worker.stats.completed, database.value("select actor from audited")) == (1, "customer-7")
    assert seen == ["customer-7"]


async def test_what_fails_in_the_flush_fails_within_the_middleware(
    queue: Queue, engine: Engine, database: Database, serve: Serve
) -> None:
    """A middleware sees the error of a flush, as it sees the handler's own."""
    _Base.metadata.create_all(database.own)
    seen: list[str] = []

    @contextlib.contextmanager
    def tell(_: Context) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            seen.append(type(error).__name__)
            raise

    def handle(_: Delivery, session: Session, __: Context) -> None:
        session.add_all([_Row(id=1), _Row(id=1)])

    send(engine, queue, 1, max_attempts=1)
    worker = await serve(handle, tell)
    assert (worker.stats.buried, seen) == (1, ["IntegrityError"])


async def test_nothing_is_kept_of_a_statement_that_failed(serve: Serve, engine: Engine, queue: Queue) -> None:
    """Neither the handler's frame nor its session outlives the call, also if the handler has caught the error."""

    class Large:
        """What a handler has loaded."""

    kept: WeakSet[Large] = WeakSet()

    def fail(delivery: Delivery, session: Session, _: Context) -> None:
        large = Large()
        kept.add(large)
        write_effect(session, delivery)
        with contextlib.suppress(DBAPIError), session.begin_nested():
            session.execute(text("select 1 / 0"))

    send(engine, queue, 1)
    worker = await serve(fail)
    assert worker.stats.completed == 1
    gc.collect()
    assert list(kept) == []
