"""``fairqueue worker`` with the engines and sessions of the application."""

import pytest

from sqlalchemy_fairqueue.cli.options import DATABASE_URL_VARIABLE
from tests.cli.messages import enqueue
from tests.cli.processes import ended
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
    with shop.worker(text, "--drain", **{DATABASE_URL_VARIABLE: url_of(database)}) as process:
        found = ended(process)
    assert found.status == 0, found.err
    in_loop = source == TASKS or engines != "no engine"
    assert database.value("select id from parsed") == in_loop


_BOUND = f"""{QUEUE}
from sqlalchemy import create_engine, text

@queue.handler("parse")
def parse(delivery, session):
    session.execute(text("insert into parsed values (:n)"), {{"n": int(session.get_bind() is engine)}})
"""


@pytest.mark.parametrize("other", [False, True], ids=["the same database", "another database"])
def test_the_engine_where_a_variable_names_a_database(shop: Shop, database: Database, *, other: bool) -> None:
    """The application's engine is used if it is for that database, by any driver; else the log says that it is not."""
    enqueue(shop.engine, "a")
    url = database.url.set(drivername="postgresql+psycopg2").render_as_string(hide_password=False)
    named = "postgresql://me@nowhere/other" if other else url
    with shop.worker(
        f"{_BOUND}\nengine = create_engine({named!r})\n", "--drain", **{DATABASE_URL_VARIABLE: url_of(database)}
    ) as process:
        found = ended(process)
    assert found.status == 0, found.err
    assert database.value("select id from parsed") == (not other)
    told = "not for that of the engine in the module of" in found.err
    assert (told, "postgresql://me@nowhere/other" in found.err) == (other, other)


def test_sessions_of_the_class_that_a_handler_takes(shop: Shop, database: Database) -> None:
    """Without a factory handlers get what they are annotated with; a factory of another class is refused."""
    enqueue(shop.engine, "a")
    source = f"""{QUEUE}
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session, sessionmaker

class Audited(Session):
    pass

engine = create_engine({url_of(database)!r})
plain = sessionmaker(engine)

@queue.handler("parse")
def parse(delivery, session: Audited):
    session.execute(text("insert into parsed values (:n)"), {{"n": int(isinstance(session, Audited))}})
"""
    module = shop.write(source)
    with shop.run("worker", f"{module}:queue", "--session-factory", f"{module}:plain") as process:
        refused = ended(process)
    assert refused.status == 2
    assert f"needs sessions of {module}.Audited; give a sessionmaker with class_= that class" in refused.err
    with shop.run("worker", f"{module}:queue", "--drain") as process:
        found = ended(process)
    assert (found.status, database.value("select id from parsed")) == (0, 1), found.err


@pytest.mark.parametrize(("kind", "words"), [("sync", ["--threads"]), ("async", ["--async"])])
def test_the_sessions_of_the_application(shop: Shop, database: Database, kind: str, words: list[str]) -> None:
    """Handlers get what the factory makes, with what the application has put on it; other settings arrive, too."""
    enqueue(shop.engine, "a")
    package, make, name, wait = {
        "sync": ("sqlalchemy.orm", "sessionmaker", "Session", ""),
        "async": ("sqlalchemy.ext.asyncio", "async_sessionmaker", "AsyncSession", "await "),
    }[kind]
    engine = "create_engine" if kind == "sync" else "create_async_engine"
    source = f"""{QUEUE}
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from {package} import {make}, {name}

class Audited({name}):
    pass

engine = {engine}({url_of(database)!r})
sessions = {make}(engine, class_=Audited)

@queue.handler("parse")
{wait and "async "}def parse(delivery, session):
    if isinstance(session, Audited):
        {wait}session.execute(text("insert into parsed values (7)"))
"""
    module = shop.write(source)
    words += ["--session-factory", f"{module}:sessions", "--name", "auditor", "--prefetch", "0", "--drain", "--json"]
    with shop.run("worker", f"{module}:queue", *words) as process:
        found = ended(process)
    assert (found.status, found.document["worker"]) == (0, "auditor"), found.err
    assert database.value("select id from parsed") == 7


def test_an_engine_for_the_workers_own_connections(shop: Shop, database: Database) -> None:
    """The worker's own connections are those of the engine that is named, and handlers' sessions are not."""
    enqueue(shop.engine, "a")
    source = f"""{QUEUE}
from sqlalchemy import create_engine, event, text
from sqlalchemy.ext.asyncio import create_async_engine

engine = create_async_engine({url_of(database)!r})
own = create_engine({url_of(database)!r})
connected = []
event.listen(own, "connect", lambda *_: connected.append(1))

@queue.handler("parse")
async def parse(delivery, session):
    ours = connected and session.bind is engine
    await session.execute(text("insert into parsed values (:n)"), {{"n": int(bool(ours))}})
"""
    module = shop.write(source)
    with shop.run("worker", f"{module}:queue", "--worker-engine", f"{module}:own", "--drain") as process:
        found = ended(process)
    assert (found.status, database.value("select id from parsed")) == (0, 1), found.err
