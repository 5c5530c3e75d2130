"""``fairqueue worker`` with the engines and sessions of the application."""

import pytest

from sqlalchemy_fairqueue.cli.options import DATABASE_URL_VARIABLE
from tests.cli.messages import enqueue
from tests.cli.processes import outcome
from tests.cli.shops import QUEUE, TASKS, THREADS, Shop, stopped
from tests.cli.test_target import url_of
from tests.fixtures.database import Database


@pytest.mark.parametrize(("make", "source"), [("create_engine", THREADS), ("create_async_engine", TASKS)])
def test_the_engine_of_the_application(shop: Shop, database: Database, make: str, source: str) -> None:
    """Where nothing else names a database the engine beside the queue is used, and decides on threads or tasks."""
    enqueue(shop.engine, "a")
    package = "sqlalchemy.ext.asyncio" if "async" in make else "sqlalchemy"
    engines = f"\nfrom {package} import {make}\nengine = {make}({url_of(database)!r})\n"

    with shop.worker(source + engines, "--json", **{DATABASE_URL_VARIABLE: ""}) as process:
        shop.waits.until("select 1 from parsed")
        found = stopped(process)
    assert (found.status, found.document["stats"]["completed"]) == (0, 1), found.err


@pytest.mark.many
@pytest.mark.parametrize("engines", ["no engine", "async", "async and several"])
@pytest.mark.parametrize("source", [THREADS, TASKS], ids=["plain", "async"])
def test_the_environment_names_the_database_only(shop: Shop, database: Database, engines: str, source: str) -> None:
    """Whether handlers run in an event loop is told by the application, also if a variable names the database."""
    text = f"{source}\nimport asyncio\nfrom sqlalchemy import create_engine\nfrom sqlalchemy.ext.asyncio import *\n"
    if engines != "no engine":
        text += "engine = create_async_engine('postgresql+psycopg://nowhere/')\n"
    if engines == "async and several":
        text += "other = create_async_engine('postgresql+psycopg://nowhere/other')\n"
    text += """
@queue.handler("where")
def where(delivery, session):
    session.execute(text_("insert into parsed values (:n)"), {"n": len(_runs)})

from sqlalchemy import text as text_
import sqlalchemy_fairqueue.worker as workers
_runs = []
_run = workers.AsyncWorker.run
async def run(self, **options):
    _runs.append(self)
    await _run(self, **options)
workers.AsyncWorker.run = run
"""
    enqueue(shop.engine, "a", kind="where")
    found = outcome(shop.worker(text, "--drain", **{DATABASE_URL_VARIABLE: url_of(database)}))
    assert found.status == 0, found.err
    in_loop = source == TASKS or engines != "no engine"
    assert database.value("select id from parsed") == in_loop


def _application(database: Database, code: str, kept: str, handler: str = "def parse(delivery, session)") -> str:
    """The source of a module with engines and sessions of its own, and a handler that notes whether *kept* holds."""
    note = 'session.execute(text("insert into parsed values (:n)"), {"n": int(bool(' + kept + "))})"
    return f"""{QUEUE}
from sqlalchemy import create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

url = {url_of(database)!r}
class Audited(Session): ...
class AsyncAudited(AsyncSession): ...
{code}

@queue.handler("parse")
{handler}:
    {"await " if handler.startswith("async") else ""}{note}
"""


@pytest.mark.parametrize("other", [False, True], ids=["the same database", "another database"])
def test_the_engine_where_a_variable_names_a_database(shop: Shop, database: Database, *, other: bool) -> None:
    """The application's engine is used if it is for that database, by any driver; else the log says that it is not."""
    enqueue(shop.engine, "a")
    url = database.url.set(drivername="postgresql+psycopg2").render_as_string(hide_password=False)
    named = "postgresql://me@nowhere/other" if other else url
    source = _application(database, f"engine = create_engine({named!r})", kept="session.get_bind() is engine")
    found = outcome(shop.worker(source, "--drain", **{DATABASE_URL_VARIABLE: url_of(database)}))
    assert found.status == 0, found.err
    assert database.value("select id from parsed") == (not other)
    told = "not for that of the engine in the module of" in found.err
    assert (told, "postgresql://me@nowhere/other" in found.err) == (other, other)


def test_sessions_of_the_class_that_a_handler_takes(shop: Shop, database: Database) -> None:
    """Without a factory handlers get what they are annotated with; a factory of another class is refused."""
    enqueue(shop.engine, "a")
    module = shop.write(
        _application(
            database,
            "engine = create_engine(url)\nplain = sessionmaker(engine)",
            handler="def parse(delivery, session: Audited)",
            kept="isinstance(session, Audited)",
        )
    )
    refused = outcome(shop.run("worker", f"{module}:queue", "--session-factory", f"{module}:plain"))
    assert refused.status == 2
    assert f"needs sessions of {module}.Audited; give a sessionmaker with class_= that class" in refused.err
    found = outcome(shop.run("worker", f"{module}:queue", "--drain"))
    assert (found.status, database.value("select id from parsed")) == (0, 1), found.err


@pytest.mark.parametrize(("prefix", "words"), [("", ["--threads"]), ("async_", ["--async"])], ids=["sync", "async"])
def test_the_sessions_of_the_application(shop: Shop, database: Database, prefix: str, words: list[str]) -> None:
    """Handlers get what the factory makes, with what the application has put on it; other settings arrive, too."""
    enqueue(shop.engine, "a")
    audited = "AsyncAudited" if prefix else "Audited"
    module = shop.write(
        _application(
            database,
            f"engine = create_{prefix}engine(url)\nsessions = {prefix}sessionmaker(engine, class_={audited})",
            handler=f"{prefix.replace('_', ' ')}def parse(delivery, session)",
            kept=f"isinstance(session, {audited})",
        )
    )
    words = [*words, "--session-factory", f"{module}:sessions", "--name", "auditor", "--prefetch", "0", "--drain"]
    found = outcome(shop.run("worker", f"{module}:queue", *words, "--json"))
    assert (found.status, found.document["worker"]) == (0, "auditor"), found.err
    assert database.value("select id from parsed") == 1


def test_an_engine_for_the_workers_own_connections(shop: Shop, database: Database) -> None:
    """The worker's own connections are those of the engine that is named, and handlers' sessions are not."""
    enqueue(shop.engine, "a")
    module = shop.write(
        _application(
            database,
            "engine, own, connected = create_async_engine(url), create_engine(url), []\n"
            'event.listen(own, "connect", lambda *_: connected.append(1))',
            handler="async def parse(delivery, session)",
            kept="connected and session.bind is engine",
        )
    )
    found = outcome(shop.run("worker", f"{module}:queue", "--worker-engine", f"{module}:own", "--drain"))
    assert (found.status, database.value("select id from parsed")) == (0, 1), found.err


def test_sessions_of_plain_functions_in_an_event_loop(shop: Shop, database: Database) -> None:
    """They are of their own, by default or from a factory of the application."""
    code, kept = (
        "audited = sessionmaker(create_engine(url), class_=Audited)",
        "type(session).__name__ == delivery.channel",
    )
    module = shop.write(_application(database, code, kept))
    for expected, words in ("Session", []), ("Audited", ["--sync-session-factory", f"{module}:audited"]):
        enqueue(shop.engine, expected)
        found = outcome(shop.run("worker", f"{module}:queue", "--async", "--drain", *words))
        assert found.status == 0, found.err
    assert database.value("select sum(id) from parsed") == 2
