"""Wrong arguments: each is refused by a typed error that names it, before anything is recorded or sent.

A guess that comes from another library, or from the wrong kind of object, is refused with what to write here.
"""

import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import partial
from operator import attrgetter
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from sqlalchemy_fairqueue import (
    ChannelPolicy,
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
from sqlalchemy_fairqueue.testing import drain, make_delivery
from sqlalchemy_fairqueue.values.messages import EnqueueOptions
from tests.queue.verbs import verbs

# Nothing here connects: each call is refused before.
_ENGINE = create_engine("postgresql+psycopg://")
_ASYNC = create_async_engine("postgresql+psycopg://")
_QUEUE: Any = Queue("documents", check_kinds=False)
_DELIVERY = make_delivery(_QUEUE, 1)
_ODD: Any = object()
_NOW = datetime.now(UTC)
_HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": ""}, "queue name '' has 0 bytes"),
        ({"name": None}, "queue name is None; give a str"),
        ({"schema": "x" * 64}, "has 64 bytes of UTF-8; use 1 to 63"),
        ({"codec": "json"}, "codec is 'json'; give an object with encode"),
        ({"defaults": 3}, "defaults is 3; give a ChannelPolicy"),
        ({"max_attempts": 0}, "max_attempts is 0"),
        ({"notify": "no"}, "notify is 'no'; give True or False"),
    ],
)
def test_queues(arguments: dict[str, Any], said: str) -> None:
    """A queue that could not work is not made."""
    with pytest.raises(InvalidArgument) as caught:
        Queue(**dict[str, Any](name="documents") | arguments)
    assert said in str(caught.value)


_MESSAGE = {"channel": "a", "payload": 1}
_LETTERS: list[tuple[dict[str, Any], str]] = [
    ({"message_ids": "17"}, "message_ids is '17'; give an id or several"),
    ({"message_ids": 0}, "message_ids is 0; give an int from 1"),
    ({"message_ids": [1, None]}, "message_ids is None"),
    ({"channel": ""}, "channel '' has 0 bytes"),
    ({"kind": 7}, "kind is 7"),
]
_RETENTIONS: list[tuple[Any, str]] = [
    (7, "dead_letter_retention is 7; give a timedelta"),
    ({"a": 7}, "dead_letter_retention of kind 'a' is 7; give a timedelta"),
    ({"": _HOUR}, "kind of dead_letter_retention '' has 0 bytes"),
    ({3: _HOUR}, "kind of dead_letter_retention is 3; give a str"),
]
_WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("enqueue", {"channel": "", "payload": 1}, "channel ''"),
    ("enqueue", {"channel": "a", "payload": _ODD}, "payload at $: a object"),
    ("enqueue", _MESSAGE | {"headers": _ODD}, "headers is <object"),
    ("enqueue", _MESSAGE | {"headers": {1: 2}}, "headers at $: the key 1"),
    ("enqueue", _MESSAGE | {"headers": {"a": [b""]}}, "headers at $.a[0]"),
    ("enqueue", _MESSAGE | {"headers": {"t": _HOUR}}, "headers do not go through the queue's codec"),
    ("enqueue", _MESSAGE | {"on_duplicate": _ODD}, "on_duplicate is <object"),
    ("enqueue", _MESSAGE | {"on_duplicate": "raise"}, "there is no key"),
    ("enqueue", _MESSAGE | {"delay": timedelta(days=400)}, "to 365 days"),
    *[("enqueue", _MESSAGE | {"cost": cost}, "cost is") for cost in (0, 10**9 + 1, None)],
    ("enqueue_many", {"messages": _ODD}, "messages is <object"),
    ("enqueue_many", {"messages": [7]}, "messages has 7 where an Enqueue"),
    ("complete", {"deliveries": _ODD}, "deliveries is <object"),
    ("complete", {"deliveries": [7]}, "deliveries has 7 where a Delivery"),
    ("complete", {"deliveries": make_delivery(Queue("other"), 1)}, "by queue 'other', this is 'documents'"),
    *[(verb, {"deliveries": [], "cost": -1}, "cost is -1") for verb in ("complete", "retry", "bury")],
    ("retry", {"deliveries": _DELIVERY, "delay": timedelta(-1)}, "delay is datetime.timedelta(days=-1)"),
    ("retry", {"deliveries": _DELIVERY, "error": _ODD}, "error is <object"),
    ("release", {"deliveries": _DELIVERY, "delay": 5}, "delay is 5"),
    ("bury", {"deliveries": _DELIVERY, "reason": b"x"}, "reason is b'x'; give a str"),
    ("extend", {"deliveries": []}, "no lease to extend"),
    ("dequeue", {"limit": 0}, "limit is 0; give an int from 1 to 100000"),
    ("dequeue", {"limit": 100_001}, "limit is 100001"),
    ("dequeue", {"lease": 30}, "lease is 30; give a timedelta"),
    ("dequeue", {"lease": timedelta(366)}, "lease is"),
    *[("dequeue", {"max_bytes": wrong}, "max_bytes is") for wrong in (0, 2**41, None)],
    *[("cancel", {"message_id": wrong}, f"message_id is {wrong}") for wrong in (0, 2**63, None)],
    *[("message", {"message_id": wrong}, f"message_id is {wrong!r}") for wrong in (0, "1", 2**63, True)],
    *[
        (verb, wrong, "give an id, or a channel with a key or an ordering_key")
        for verb in ("cancel", "message", "admin.retry_now")
        for wrong in ({}, {"key": "k"}, {"channel": "a"}, {"message_id": 1, "channel": "a", "key": "k"})
    ],
    ("messages", {"channel": ""}, "channel ''"),
    ("messages", {"state": "gone"}, "state is 'gone'"),
    ("messages", {"kind": ""}, "kind ''"),
    ("messages", {"key": "k"}, "key"),
    ("messages", {"scan": 0}, "scan is 0"),
    ("messages", {"limit": 0}, "limit is 0"),
    *[("messages", {"after": wrong}, "after is") for wrong in (7, "1.0.7", "3.0.0", "3.0.7.1")],
    ("messages", {"after": "3.0.7", "channel": "a"}, "after is"),
    ("admin.move", {"message_id": 0, "channel": "a"}, "message_id is 0"),
    ("admin.move", {"message_id": 1, "channel": ""}, "channel ''"),
    ("admin.retry_now", {"message_id": 0}, "message_id is 0"),
    ("admin.attempts", {"message_id": 0}, "message_id is 0"),
    ("admin.recent_attempts", {"outcome": "done"}, "outcome is 'done'"),
    ("admin.recent_attempts", {"scan": 0}, "scan is 0"),
    *[("admin.recent_attempts", {"after": wrong}, "after is") for wrong in (7, "1", "0.1", "1.1.1", "x.1")],
    ("channels", {"channel": 7}, "channel is 7"),
    ("channels", {"after": "\x00"}, "NUL"),
    ("channels", {"limit": True}, "limit is True"),
    ("channels", {"busy": 1}, "busy is 1; give True"),
    *[(verb, *one) for verb in ("dead_letters.list", "dead_letters.redrive", "dead_letters.purge") for one in _LETTERS],
    ("dead_letters.redrive", {"limit": 0}, "limit is 0; give an int from 1 to 100000"),
    ("dead_letters.list", {"limit": 100_001}, "limit is 100001"),
    ("dead_letters.list", {"after": 17}, "after is 17; give the last DeadLetterInfo"),
    ("dead_letters.list", {"error": ""}, "error"),
    ("dead_letters.list", {"until": 7}, "until is 7"),
    ("dead_letters.list", {"since": _NOW.replace(tzinfo=None)}, "since: datetime"),
    ("dead_letters.purge", {"until": "yesterday"}, "until is 'yesterday'; give an aware datetime"),
    ("dead_letters.purge", {"before": "yesterday"}, "before is 'yesterday'; give an aware datetime"),
    ("dead_letters.purge", {"until": _NOW, "before": _NOW}, "both say the same; give one"),
    ("configure", {}, "configure has nothing to set; give one or more of defaults"),
    ("configure", {"max_concurrency": 0}, "max_concurrency is 0; give an int from 1"),
    ("configure", {"history": 1}, "history is 1; give True or False"),
    ("configure", {"history_retention": _HOUR}, "history_retention is datetime.timedelta(seconds=3600); give"),
    *[("configure", {"dead_letter_retention": wrong}, said) for wrong, said in _RETENTIONS],
    ("configure", {"result_retention": 7}, "result_retention is 7; give a timedelta"),
    ("configure", {"result_retention": timedelta()}, "result_retention is datetime.timedelta(0)"),
    ("configure", {"max_cost_out": 0}, "max_cost_out is 0"),
    ("configure", {"defaults": _ODD}, "defaults is <object"),
    ("configure", {"defaults": {}}, "defaults has nothing to set"),
    *[("configure", {"fair_by": wrong}, "fair_by is") for wrong in ("weight", "", 3, "COST")],
    ("configure", {"rate": 10}, "rate is 10; give a Rate, its text, or None for no limit"),
    ("configure_channel", {"channel": "", "policy": ChannelPolicy()}, "channel ''"),
    ("configure_channel", {"channel": "a", "policy": _ODD}, "policy is <object"),
    ("configure_channel", {"channel": "a", "policy": {"weight": 3}}, "policy is {'weight': 3}; give a ChannelPolicy"),
    ("configure_channel", {"channel": "a", "policy": ChannelPolicy(), "weight": 3}, "replaces all fields"),
    ("configure_channel", {"channel": "a", "policy": ChannelPolicy(), "plan": "gold"}, "all fields and the plan"),
    ("configure_channel", {"channel": "a", "weight": None}, "weight is None; give an int from 1 to 10000"),
    ("configure_channel", {"channel": "a"}, "configure_channel has nothing to set"),
    ("configure_channel", {"channel": "a", "plan": 5}, "plan is 5"),
    ("configure_channel", {"channel": "a", "reset": "weight"}, "reset is 'weight'"),
    ("configure", {"limits": "api"}, "names of shared limits as a list"),
    ("limits.configure", {"name": "api"}, "nothing to set"),
    ("limits.configure", {"name": "api", "max_concurrency": 0}, "max_concurrency is 0"),
    ("plans.configure", {"name": "gold"}, "nothing to set"),
    ("plans.configure", {"name": "gold", "weight": 0}, "weight is 0"),
    ("pause", {"channel": ""}, "channel '' has 0 bytes"),
    ("pause", {"channel": "a", "new": 1}, "new is 1; give True or False"),
    ("resume", {"channel": 7}, "channel is 7"),
    ("purge", {"channel": "x" * 513}, "has 513 bytes of UTF-8; use 1 to 512"),
]


def _refused(verb: str, arguments: dict[str, Any], error: type[Exception]) -> list[str]:
    """Call a verb on all that it takes; the errors, after which the session has not begun anything."""
    with Session() as session:
        places: list[Any] = [_ENGINE] if verb in {"dequeue", "extend"} else [session]
        if verb not in {"dequeue", "extend"}:
            places += [_ENGINE]
        places.append(_ASYNC)
        said = []
        for where in places:
            with pytest.raises(error) as caught:
                attrgetter(verb)(_QUEUE)(where, **arguments)
            said.append(str(caught.value))
        assert not session.in_transaction()
    return said


def test_values() -> None:
    """Each wrong value names itself, on sessions and engines, at the call and not where it is awaited."""
    for verb, arguments, words in _WRONG:
        for said in _refused(verb, arguments, ValueError):
            assert words in said, (verb, arguments)
    with pytest.raises(InvalidArgument, match="max_bytes"):
        Worker(_ENGINE, _QUEUE, max_bytes=0)


_NAMES: list[tuple[str, dict[str, Any], str]] = [
    ("enqueue", _MESSAGE | {"prioritty": 3}, "unexpected keyword argument 'prioritty'"),
    ("enqueue", {"payload": 1}, "missing 1 required keyword-only argument: 'channel'"),
    ("configure", {"defaults": {"burst": 3}}, "unexpected keyword argument 'burst'"),
    ("configure_channel", {"channel": "a", "rate_interval": 10}, "unexpected keyword argument 'rate_interval'"),
    (
        "configure_channel",
        {"channel": "a", "reset": ["wait"]},
        "has 'wait', which is none of the fields max_concurrency, ",
    ),
]


def test_names() -> None:
    """A name that no call has, or that is no field of a policy, is a TypeError that has the name."""
    for verb, arguments, words in _NAMES:
        for said in _refused(verb, arguments, TypeError):
            assert words in said, (verb, arguments)


# Arguments that any call takes which needs them.
_NEEDED: dict[str, Any] = {
    "channel": "a", "consumer": "me", "deliveries": _DELIVERY, "group_id": "4b8a8f4e-6f0e-4c3c-9a0c-3d0d0a5d7c11",
    "message_id": 1, "message_ids": [1], "messages": [Enqueue(channel="a", payload=1)], "name": "n",
    "history": True, "max_concurrency": 1, "message": _MESSAGE, "changes": {"weight": 2},
    "settings": {"history": True}, "what": "pause", "filters": {}, "options": {}, "named": {}, "how": {},
}  # fmt: skip
_BY_NAME = ("channel", "payload", "kind")
_PLAIN = [_ENGINE, Session(_ENGINE), scoped_session(sessionmaker(_ENGINE))]
_NONE = [None, 7, "postgresql://", object, sessionmaker(), Session]


def _call(verb: str) -> Callable[[Any], Any]:
    """The verb with all that it needs besides a place."""
    arguments: dict[str, Any] = {}
    if verb == "schedules.set":
        arguments = {"channel": "a", "every": _HOUR}
    for one in list(inspect.signature(attrgetter(verb)(_QUEUE)).parameters.values())[1:]:
        if one.kind is one.VAR_KEYWORD:
            arguments |= _NEEDED[one.name]
        elif one.default is one.empty or one.name in {"history", "max_concurrency", "message_id"}:
            arguments[one.name] = _NEEDED.get(one.name, 1)
    return partial(attrgetter(verb)(_QUEUE), **arguments)


def test_places() -> None:
    """Whatever is no session, connection or engine is refused by its kind."""
    for verb in verbs():
        for wrong in _NONE:
            with pytest.raises(InvalidArgument) as caught:
                _call(verb)(wrong)
            kind = f"the class {wrong.__name__}" if isinstance(wrong, type) else type(wrong).__name__
            assert kind in str(caught.value), verb


def test_places_of_single_verbs() -> None:
    """A verb that needs a certain place says why."""
    for verb, wrong, words in (
        *[("dequeue", one, "must be committed before the work begins") for one in (_PLAIN[1], _PLAIN[2])],
        ("extend", _PLAIN[1], "got a Session where an engine is needed"),
    ):
        with pytest.raises(InvalidArgument) as caught:
            _call(verb)(wrong)
        assert words in str(caught.value)


async def test_what_is_awaited() -> None:
    """What talks with the database is a coroutine on whatever is async; what only records returns at once."""
    session, scoped = AsyncSession(_ASYNC), async_scoped_session(async_sessionmaker(_ASYNC), lambda: 1)
    engine_alone = {"dequeue", "extend", "admin.erase"}
    for verb in verbs():
        place = next(iter(inspect.signature(attrgetter(verb)(_QUEUE)).parameters.values()))
        for where in [_ASYNC, *[AsyncConnection(_ASYNC), session, scoped] * (verb not in engine_alone)]:
            if where in {session, scoped} and place.annotation == "RecordedWhere":
                _call(verb)(where)
            else:
                coroutine = _call(verb)(where)
                assert inspect.iscoroutine(coroutine), verb
                coroutine.close()
    await session.close()
    await scoped.close()


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_forgotten_await() -> None:
    """Python warns of a call that nobody awaits."""
    with pytest.warns(RuntimeWarning, match="was never awaited"):
        _QUEUE.pause(_ASYNC, "a")


def test_every_call_takes_the_same_message() -> None:
    """What enqueue takes is what an Enqueue says: some by name, the others as options."""
    given = inspect.signature(Queue.enqueue).parameters
    assert list(given) == ["self", "where", *_BY_NAME, "options"]
    options = {name: one.__forward_arg__ for name, one in EnqueueOptions.__annotations__.items()}
    assert {name: given[name].annotation for name in _BY_NAME} | options == Enqueue.__annotations__
    assert list(inspect.signature(Queue).parameters)[:3] == ["name", "schema", "codec"]


def test_nothing_is_nothing() -> None:
    """Without messages, or deliveries, a session begins nothing, and no connection is made."""
    with Session() as session:
        _QUEUE.complete(session, [])
        assert _QUEUE.enqueue_many(session, []) == _QUEUE.enqueue_many(_ENGINE, []) == []
        assert not session.in_transaction()


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


@_QUEUE.job  # type: ignore[untyped-decorator]
def _parse(context: Context, *, upload: int) -> None: ...


# Type checkers refuse most of these guesses, too.
_JOB: Any = _parse


def _takes_a_row(upload: Upload) -> None: ...


def _takes_a_delivery(delivery: Delivery) -> None: ...


def _task(address: str, subject: str) -> None: ...


def _no_delivery() -> None: ...


def _guess(**words: Any) -> Any:
    return _QUEUE.enqueue(Session(), **{"channel": "a", "payload": 1} | words)


_GUESSES: list[tuple[Callable[[], object], str]] = [
    (lambda: _guess(channel=7), "channel is 7; give a str, such as '7'"),
    (lambda: _guess(channel=UUID(int=1)), "such as '00000000-0000-0000-0000-000000000001'"),
    (lambda: _guess(kind=Plan.FREE), "give a str, such as 'free'"),
    (lambda: _guess(delay=5), "give a timedelta from 0:00:00 to 365 days, such as timedelta(seconds=5"),
    (lambda: _QUEUE.cancel(_ENGINE, Receipt("a")), "give its message_id, an int"),
    (lambda: _QUEUE.enqueue_many(_ENGINE, [{"channel": "a"}]), "write Enqueue(channel=..., payload=...)"),
    (lambda: Recurrence(cron="0 3 * * *", timezone=ZoneInfo("Europe/Berlin")), "a str, such as 'Europe/Berlin'"),  # type: ignore[arg-type]
    (lambda: _JOB.schedule(_ENGINE, "nightly", "0 3 * * *", "a", upload=1), "Recurrence(cron='0 3 * * *')"),
    (lambda: RetryPolicy(first=_HOUR), "first is 1:00:00 and cap is 0:15:00, and no wait is longer than cap"),
    (lambda: _QUEUE.handler("mail", retry=3), "give a RetryPolicy, such as RetryPolicy(max_attempts=5)"),
    (lambda: _QUEUE.enqueue(sessionmaker(), channel="a", payload=1), "'with sessions.begin() as session'"),
    (lambda: _QUEUE.stats(async_sessionmaker()), "'async with sessions.begin() as session'"),
    (lambda: _QUEUE.stats("postgresql://"), "make an engine of a URL by create_engine(url)"),
    (lambda: _QUEUE.group(_ENGINE), "as session; give a Session or an AsyncSession"),
    (lambda: _WORKER(_ENGINE, [_QUEUE]), "give each queue as an argument: Worker(engine, documents, mails)"),
    (lambda: _WORKER(_ENGINE, _QUEUE, session_factory=Session()), "makes no sessions; give a sessionmaker"),
    (lambda: _WORKER(_ENGINE, _QUEUE, middleware=print), "give a list of functions"),
    (lambda: install_fairqueue("postgresql://"), "give an Engine or a Connection"),  # type: ignore[arg-type]
    (lambda: install_fairqueue(_ASYNC), "await connection.run_sync(install_fairqueue)"),  # type: ignore[arg-type]
    (lambda: drain(Session(_ENGINE), _JOB), "drain performs a whole queue: give its queue"),
    (lambda: CollectorRegistry().register(QueueCollector(_ENGINE, "documents")), "queues has 'documents' where a"),  # type: ignore[arg-type]
    (lambda: WorkerCollector(_QUEUE), "where a Worker or AsyncWorker is needed"),
    (lambda: observe_queues(_ENGINE, "documents"), "queues has 'documents' where a Queue is needed"),  # type: ignore[arg-type]
    (lambda: observe_queues(_ASYNC), "an export cannot await AsyncEngine"),  # type: ignore[arg-type]
    (lambda: create_dashboard(_ENGINE, [_QUEUE]), "give each queue as an argument"),  # type: ignore[arg-type]
    (lambda: create_dashboard(_ENGINE, authorize=True), "authorize is True; give a function"),  # type: ignore[arg-type]
    (lambda: Access("ann", "admin"), "role is 'admin'; give Role.VIEWER or Role.OPERATOR"),  # type: ignore[arg-type]
    (lambda: _QUEUE.handler("a")(_no_delivery), "give it one parameter for it, the first"),
    (lambda: _QUEUE.handler("b")(_task), "takes 'subject', which no worker can give"),
    (lambda: _QUEUE.handler("c")(_task), "what the payload holds is address.payload, or the arguments of a function"),
    (lambda: _QUEUE.job(_takes_a_row), "give the row's primary key"),
    (lambda: _QUEUE.job(_takes_a_delivery), "'context: Context' first, which has context.delivery"),
    (lambda: _guess(payload=Upload(id=1)), "a Upload cannot be encoded as JSON; give the row's primary key"),
    (lambda: _guess(payload=Model()), "use a job (@queue.job), which converts it"),
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
