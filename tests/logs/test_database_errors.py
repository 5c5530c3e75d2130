"""Records of the log say in a line why the database refused something, and quote no statement, parameter or row."""

import ast
import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

import sqlalchemy_fairqueue
from sqlalchemy_fairqueue import Delivery, Queue, RetryPolicy, Worker
from sqlalchemy_fairqueue.errors import StartError
from sqlalchemy_fairqueue.logs import JsonFormatter
from sqlalchemy_fairqueue.metrics import QueueCollector
from sqlalchemy_fairqueue.texts import logged
from tests.drivers.conftest import face, make_face, queue
from tests.drivers.faces import Face
from tests.fixtures.database import Database
from tests.unit_of_work.business import Base, Upload
from tests.worker.helpers import send, until

__all__ = ["face", "make_face", "queue"]

_VALUES = {"secret": "the card is 4111", "number": 1}
_LONG = f"select :secret as {'long_' * 10}, {'1 + ' * 2000} 1, cast(:number as integer) / 0"
_ROW = "insert into cards values (:secret, null)"
_ONCE = RetryPolicy(max_attempts=1)


def _fail(session: Any, statement_text: str = _LONG) -> None:
    statement = text(statement_text)
    session.execute(statement, {name: _VALUES[name] for name in statement.compile().params})


def _check(records: list[logging.LogRecord]) -> None:
    assert records
    for record in records:
        assert len(record.getMessage()) < 500
        shown = JsonFormatter().format(record)
        assert "4111" not in shown
        assert "long_" not in shown


@pytest.fixture(autouse=True)
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
            assert "4111" not in found
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


@pytest.mark.parametrize("site", _SITES)
def test_records(queue: Queue, engine: Engine, database: Database, caplog: pytest.LogCaptureFixture, site: str) -> None:
    """Each record is a short line, with its traceback if it has one, and names no value."""
    with caplog.at_level(logging.WARNING, "sqlalchemy_fairqueue"):
        _SITES[site](engine, queue, database)
    _check([one for one in caplog.records if one.name.startswith("sqlalchemy_fairqueue")])


def _logged() -> Iterator[tuple[str, str]]:
    """What our code gives to records of the log, with its file and line."""
    logs = {"log", "logger", "_log", "audit_logger"}
    root = Path(sqlalchemy_fairqueue.__file__).parent
    # Reading all of them takes seconds.
    for file, source in ((file, file.read_text()) for file in sorted(root.rglob("*.py"))):
        for call in ast.walk(ast.parse(source)) if any(f"{name}." in source for name in logs) else ():
            if isinstance(call, ast.Call) and ast.unparse(call.func).partition(".")[0] in logs:
                for given in (*call.args[1:], *(one.value for one in call.keywords if one.arg == "exc_info")):
                    yield f"{file.relative_to(root)}:{call.lineno}", ast.unparse(given)


def test_every_record_uses_it() -> None:
    """No record shows an exception otherwise."""
    raw = {"error", "refused", "str(error)", "repr(error)", "said(error)", "again", "True"}
    assert [one for one in _logged() if one[1] in raw or "said(" in one[1]] == []
