"""The log has fields by one list, as JSON where that is wanted, and Sentry knows which message failed. Records say in a
line why the database refused something, and quote no statement, parameter or row.
"""

import ast
import json
import logging
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

import sqlalchemy_fairqueue
from sqlalchemy_fairqueue import AsyncWorker, Delivery, Queue, Release, RetryPolicy, Worker
from sqlalchemy_fairqueue.errors import StartError
from sqlalchemy_fairqueue.logs import FIELDS, JsonFormatter
from sqlalchemy_fairqueue.metrics import QueueCollector
from sqlalchemy_fairqueue.sentry import async_sentry_scope, sentry_scope
from sqlalchemy_fairqueue.texts import logged
from tests.drivers.conftest import face, make_face, queue
from tests.drivers.faces import Face
from tests.fixtures.database import Database
from tests.unit_of_work.business import Base, Upload
from tests.worker.helpers import send, until

_ROOT = Path(sqlalchemy_fairqueue.__file__).parent
_PAGE = _ROOT.parent / "docs" / "tracing.md"
_ONCE = RetryPolicy(max_attempts=1)


def _nodes(*words: str) -> Iterator[tuple[str, ast.AST]]:
    """The nodes of our code, with their files, where those have one of the words: to parse all takes seconds."""
    for file in sorted(_ROOT.rglob("*.py")):
        source = file.read_text()
        if any(word in source for word in words):
            yield from ((file.name, node) for node in ast.walk(ast.parse(source)))


def _extras() -> Iterator[str]:
    """The keys of what is passed as extra."""
    values = [node.value for _, node in _nodes("extra=") if isinstance(node, ast.keyword) and node.arg == "extra"]
    for value in values:
        if isinstance(value, ast.Dict):
            yield from (str(key.value) for key in value.keys if isinstance(key, ast.Constant))
        if isinstance(value, ast.DictComp):
            yield from ast.literal_eval(value.generators[0].iter)


def test_the_list_is_whole() -> None:
    """Every field that the library logs is in the list, and the list has no other. None has the name of an attribute
    that logging gives to records: that would be an error.
    """
    assert set(_extras()) == set(FIELDS)
    assert not FIELDS.keys() & (vars(logging.makeLogRecord({})).keys() | {"message", "asctime"})


@pytest.mark.skipif(not _PAGE.is_file(), reason="the installed wheel is tested without the docs")
def test_the_page_has_the_list() -> None:
    """The documentation has each field with its meaning."""
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", _PAGE.read_text(), re.MULTILINE))
    assert {name: rows.get(name) for name in FIELDS} == FIELDS


def test_lines_of_a_failed_handler(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """A dead letter is a line of JSON with the fields of its message, whatever its names hold."""
    queue = Queue("documents")

    @queue.handler("parse", retry=_ONCE)
    def parse(_: Delivery) -> None:
        raise ValueError("no such page")

    message_id = queue.enqueue(engine, channel='two\n"lines"', payload=1, kind="parse").message_id
    Worker(engine, queue, concurrency=1, name="reader").run(drain=True)
    lines = [JsonFormatter().format(record) for record in caplog.records]
    assert not any("\n" in line for line in lines)
    [dead] = [one for one in map(json.loads, lines) if "is a dead letter now" in one["message"]]
    expected = {
        "level": "warning", "logger": "sqlalchemy_fairqueue.worker", "worker": "reader", "queue": "documents",
        "channel": 'two\n"lines"', "kind": "parse", "message_id": message_id, "attempt": 1,
    }  # fmt: skip
    assert {name: dead[name] for name in expected} == expected


def test_json_of_any_record() -> None:
    """Fields of the application, exceptions and trace ids are written where a record has them."""
    record = logging.makeLogRecord(
        {"msg": "%s", "args": ("x",), "tenant": object, "otelTraceID": "abc", "otelSpanID": "0"}
    )
    try:
        dict[str, int]()["k"]
    except KeyError as error:
        record.exc_info = (KeyError, error, error.__traceback__)
    found = json.loads(JsonFormatter("tenant", "absent").format(record))
    assert (found["message"], found["tenant"], found["trace_id"]) == ("x", "<class 'object'>", "abc")
    assert "KeyError: 'k'" in found["exception"]
    assert not {"absent", "span_id", "queue"} & found.keys()


@pytest.fixture
def events() -> Iterator[list[Any]]:
    """What Sentry would get: kept, and not sent."""
    kept: list[Any] = []
    options: Any = {"before_send": lambda event, _: kept.append(event), "send_client_reports": False}
    client = sentry_sdk.Client(dsn="https://k@localhost/1", default_integrations=False, **options)
    sentry_sdk.get_global_scope().set_client(client)
    yield kept
    sentry_sdk.get_global_scope().set_client(None)


async def test_sentry(events: list[Any], engine: Engine, async_engine: AsyncEngine) -> None:
    """The exception of a handler is reported with its message; an outcome is none, and nothing is left behind."""
    plain, other = Queue("documents"), Queue("mails")

    @plain.handler("parse", retry=_ONCE)
    def parse(delivery: Delivery) -> None:
        if delivery.channel == "calm":
            raise Release
        raise ValueError("no such page")

    @other.handler("send", retry=_ONCE)
    async def send(_: Delivery) -> None:
        raise OSError("no answer")

    first = plain.enqueue(engine, channel="customer-7", payload=1, kind="parse").message_id
    Worker(engine, plain, concurrency=1, middleware=[sentry_scope]).run(drain=True)
    second = other.enqueue(engine, channel="customer-8", payload=1, kind="send").message_id
    await AsyncWorker(async_engine, other, concurrency=1, middleware=[async_sentry_scope]).run(drain=True)
    sentry_sdk.capture_message("of nobody")
    one, two, nobodys = events
    for event, error, name, kind, channel, message_id in (
        (one, "ValueError", "documents", "parse", "customer-7", first),
        (two, "OSError", "mails", "send", "customer-8", second),
    ):
        assert event["exception"]["values"][0]["type"] == error
        assert event["tags"] == {"fairqueue.queue": name, "fairqueue.kind": kind}
        assert event["contexts"]["fairqueue"] == {"channel": channel, "message_id": message_id, "attempt": 1}
    assert "fairqueue" not in nobodys["contexts"]


__all__ = ["face", "make_face", "queue"]

_VALUES = {"secret": "the card is 4111", "number": 1}
_LONG = f"select :secret as {'long_' * 10}, {'1 + ' * 2000} 1, cast(:number as integer) / 0"
_ROW = "insert into cards values (:secret, null)"


def _fail(session: Any, statement_text: str = _LONG) -> None:
    statement = text(statement_text)
    session.execute(statement, {name: _VALUES[name] for name in statement.compile().params})


def _check(records: list[logging.LogRecord]) -> None:
    assert records
    for record in records:
        assert len(record.getMessage()) < 500
        shown = JsonFormatter().format(record)
        assert "is 4111" not in shown
        assert "long_" not in shown


@pytest.fixture
def _cards(database: Database) -> None:
    Base.metadata.create_all(database.own)
    database.execute("create table cards (number text, holder text not null)")


_FUNCTION = """
create function pg_temp.long() returns void language plpgsql as $$
begin
    perform 'the card is 4111' as long_, cast('x' as integer);
end $$
"""


_SAID = {
    _LONG: "division by zero",
    _ROW: 'null value in column "holder" of relation "cards" violates not-null constraint',
    "select pg_temp.long() where :secret <> ''": 'invalid input syntax for type integer: "x"',
    "do $$ begin raise exception '%', repeat('card ', 100000); end $$": "card card",
}


@pytest.mark.usefixtures("_cards")
def test_drivers(face: Face) -> None:
    """The server's message is told alone, shortened, also by errors that quote the error."""

    def failing(session: Session, statement: str) -> DBAPIError:
        session.execute(text(_FUNCTION))
        with pytest.raises(DBAPIError) as caught:
            _fail(session, statement)
        session.rollback()
        return caught.value

    for statement, says in _SAID.items():
        error = face.run(partial(failing, statement=statement))
        for one in (error, error.orig, RuntimeError(f"the upload failed: {error}")):
            assert isinstance(one, BaseException)
            found = logged(one)
            assert says in found
            assert len(found) < 350
            assert "is 4111" not in found
            assert "long_" not in found


def _in_a_handler(engine: Engine, queue: Queue, work: Callable[[Session], object]) -> None:
    @queue.handler(retry=_ONCE)
    def handle(_: Delivery, session: Session) -> None:
        work(session)

    send(engine, queue, 1)
    Worker(engine, queue, concurrency=1, housekeeping=False).run(drain=True)


def _swallow(session: Session) -> None:
    """Go on after a flush that failed: SQLAlchemy repeats its words, statement and parameters."""
    session.add_all([Upload(id=1, name="the card is 4111"), Upload(id=1, name="long_" * 100)])
    with pytest.raises(DBAPIError):
        session.flush()
    session.scalar(text("select 1"))


def _start(engine: Engine, queue: Queue) -> None:
    @queue.on_start
    def warm() -> None:
        with engine.connect() as connection:
            _fail(connection)

    queue.handler()(_ignore)
    with pytest.raises(StartError):
        Worker(engine, queue).run(drain=True)


_REFUSE = """
create function refuse() returns trigger language plpgsql as $$
begin
    raise 'it is kept' using detail = repeat('the card is 4111 ', 100);
end $$
"""


def _settle(engine: Engine, queue: Queue, database: Database) -> None:
    database.execute(_REFUSE)
    database.execute("create trigger refuse before delete on fq_message for each row execute function refuse()")
    queue.handler()(_ignore)
    send(engine, queue, 1)
    with Worker(engine, queue, concurrency=1, housekeeping=False) as worker:
        until(lambda: worker.stats.retried, "it gets another attempt")


def _ignore(_: Delivery) -> None: ...


_SITES: dict[str, Callable[[Engine, Queue, Database], object]] = {
    "handler": lambda engine, queue, _: _in_a_handler(engine, queue, _fail),
    "row": lambda engine, queue, _: _in_a_handler(engine, queue, lambda session: _fail(session, _ROW)),
    "a second error": lambda engine, queue, _: _in_a_handler(engine, queue, _swallow),
    "on_start": lambda engine, queue, _: _start(engine, queue),
    "settler": _settle,
    "metrics": lambda *_: list(QueueCollector(create_engine("postgresql+psycopg://x@127.0.0.1:1/x")).collect()),
}


@pytest.mark.usefixtures("_cards")
@pytest.mark.parametrize("site", _SITES)
def test_records(queue: Queue, engine: Engine, database: Database, caplog: pytest.LogCaptureFixture, site: str) -> None:
    """Each record is a short line, with its traceback if it has one, and names no value."""
    with caplog.at_level(logging.WARNING, "sqlalchemy_fairqueue"):
        _SITES[site](engine, queue, database)
    _check([one for one in caplog.records if one.name.startswith("sqlalchemy_fairqueue")])


def _logged() -> Iterator[tuple[str, str]]:
    """What our code gives to records of the log, with its file and line."""
    logs = {"log", "logger", "_log", "audit_logger"}
    for file, call in _nodes(*(f"{name}." for name in logs)):
        if isinstance(call, ast.Call) and ast.unparse(call.func).partition(".")[0] in logs:
            for given in (*call.args[1:], *(one.value for one in call.keywords if one.arg == "exc_info")):
                yield f"{file}:{call.lineno}", ast.unparse(given)


def test_every_record_uses_it() -> None:
    """No record shows an exception otherwise."""
    raw = {"error", "refused", "str(error)", "repr(error)", "said(error)", "again", "True"}
    assert [one for one in _logged() if one[1] in raw or "said(" in one[1]] == []
