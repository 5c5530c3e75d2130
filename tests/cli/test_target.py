import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine, NullPool, create_engine

from sqlalchemy_fairqueue.cli.options import APP_VARIABLE, DATABASE_URL_VARIABLE
from tests.cli.conftest import Cli, install_into
from tests.cli.messages import bury, enqueue
from tests.fixtures.database import Database, MakeDatabase

Module = Callable[[str], str]

_ENGINE = """
from sqlalchemy import NullPool, create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy_fairqueue import BytesCodec, ChannelPolicy, Queue

URL = {url!r}
{name} = {make}(URL, poolclass=NullPool)
documents = Queue("documents", codec=BytesCodec(), defaults=ChannelPolicy(weight=7))
"""
SECRET = "s3cret-pass"  # noqa: S105 - what must not be shown


def url_of(database: Database) -> str:
    """The URL with everything in it, for a module's source."""
    return database.url.render_as_string(hide_password=False)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment names nothing."""
    monkeypatch.delenv(DATABASE_URL_VARIABLE, raising=False)
    monkeypatch.delenv(APP_VARIABLE, raising=False)


def test_no_database(bare_cli: Cli) -> None:
    """Where no database is named, each way to name one is told."""
    found = bare_cli("stats", "--json")

    assert (found.status, found.error["kind"]) == (2, "usage")
    ways = ("--database-url postgresql://user@host/database", "--app module:engine", "--app module:queue")
    for way in (DATABASE_URL_VARIABLE, APP_VARIABLE, *ways):
        assert way in found.err


@pytest.mark.parametrize(
    ("driver", "extra", "command"),
    [
        ("psycopg", "psycopg[binary]", ("channels",)),
        ("psycopg", "psycopg[binary]", ("worker", "{module}:queue")),
        ("psycopg2", "sqlalchemy-fairqueue[psycopg2]", ("channels", "--app", "{module}:engine")),
        ("asyncpg", "sqlalchemy-fairqueue[asyncpg]", ("channels", "--app", "{module}:engine")),
    ],
)
def test_no_driver(
    bare_cli: Cli, monkeypatch: pytest.MonkeyPatch, module: Module, *, driver: str, extra: str, command: tuple[str, ...]
) -> None:
    """A driver that is not installed is named with what to install, by every command; so is that of an application."""
    monkeypatch.setitem(sys.modules, driver, None)
    monkeypatch.setenv(DATABASE_URL_VARIABLE, "postgresql://u@127.0.0.1:1/x")
    source = "from sqlalchemy_fairqueue import Queue\nqueue = Queue('documents')\nqueue.handler()(print)\n"
    if "--app" in command:
        source = (
            f"from sqlalchemy import create_engine\nengine = create_engine('postgresql+{driver}://u@127.0.0.1/x')\n"
        )
    name = module(source)
    found = bare_cli(*(word.format(module=name) for word in command))
    assert found.status == 2
    assert found.err.startswith(f"fairqueue: {driver} cannot be used: ")
    assert f"; pip install '{extra}'" in " ".join(found.err.split())


def test_every_driver_is_psycopg(bare_cli: Cli, database: Database, engine: Engine) -> None:
    """A URL of an application is taken whatever driver it names."""
    enqueue(engine, "a")
    url = database.url.set(drivername="postgresql").render_as_string(hide_password=False)
    for driver in ("postgresql", "postgres", "postgresql+psycopg2", "postgresql+asyncpg"):
        found = bare_cli("stats", "--json", "--database-url", url.replace("postgresql:", f"{driver}:", 1))
        assert found.document["queues"][0]["ready"] == 1, driver


def test_bad_urls(bare_cli: Cli) -> None:
    """A URL that cannot be used is refused without a word of it."""
    for url, complaint in {
        f"mysql://root:{SECRET}@host/x": "names a mysql database",
        f"root:{SECRET}@host/x": "--database-url cannot be read",
        f"postgresql://root:{SECRET}@host:port/x": "--database-url cannot be read",
        "": "no database is named",
    }.items():
        found = bare_cli("stats", "--json", "--debug", "--database-url", url)
        assert (found.status, complaint in found.err) == (2, True), url
        assert SECRET not in found.err + found.out


@pytest.mark.parametrize("debug", [[], ["--debug"]])
def test_passwords_are_never_printed(bare_cli: Cli, debug: list[str]) -> None:
    """A database that is away is named without its password, wherever in the URL that stands."""
    for query in ("", f"?password={SECRET}", f"?options=-csecret={SECRET}"):
        url = f"postgresql://u:{SECRET}@127.0.0.1:1/shop{query}"
        found = bare_cli("stats", "--json", *debug, "--database-url", url)
        assert (found.status, found.error["kind"]) == (3, "database_away")
        assert "cannot reach postgresql://u@127.0.0.1:1/shop: " in found.error["message"]
        assert SECRET not in found.err + found.out


@pytest.mark.parametrize("make", ["create_engine", "create_async_engine"])
def test_an_application(bare_cli: Cli, database: Database, module: Module, make: str) -> None:
    """A queue of an application brings its name, its codec and the engine beside it; an engine brings the database."""
    name = module(_ENGINE.format(url=url_of(database), name="db", make=make))
    engine = create_engine(database.url, poolclass=NullPool)
    [message_id] = bury(engine, "a", payload={"page": 1})
    by_queue = bare_cli("dead", "show", str(message_id), "--json", "--app", f"{name}:documents")
    assert by_queue.status == 0, by_queue.err
    assert by_queue.document["payload"] == repr(b'{"page":1}')
    by_engine = bare_cli("stats", "--json", "--app", f"{name}:db")
    assert by_engine.document["queues"][0]["dead"] == 1
    made = bare_cli("configure", "channel", "new", "--rate", "2/s", "--json", "--app", f"{name}:documents")
    assert made.document["policy"]["weight"] == 7


def test_another_folder(
    bare_cli: Cli, database: Database, module: Module, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Modules are looked for in the current folder, or in the one that --app-dir names."""
    name = module(_ENGINE.format(url=url_of(database), name="db", make="create_engine"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    assert bare_cli("stats", "--app", f"{name}:db").status == 2
    assert bare_cli("stats", "--app", f"{name}:db", "--app-dir", str(tmp_path)).status == 0


def test_which_database_wins(
    bare_cli: Cli, database: Database, module: Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--database-url wins over a named engine, that over the environment, that over the engine beside a queue. Alone
    the environment is enough, if it can be read.
    """
    away = module(_ENGINE.format(url="postgresql+psycopg://u@127.0.0.1:1/x", name="db", make="create_engine"))
    here = module(_ENGINE.format(url=url_of(database), name="db", make="create_engine"))
    monkeypatch.setenv(APP_VARIABLE, f"{away}:db")

    def status(*words: str) -> int:
        return bare_cli("history", "prune", *words).status

    assert status() == 3
    assert status("--app", f"{away}:documents") == 3
    assert status("--database-url", url_of(database)) == 0
    assert status("--app", f"{here}:db") == 0
    monkeypatch.setenv(DATABASE_URL_VARIABLE, url_of(database))
    assert status() == 3
    assert status("--app", f"{away}:documents") == 0
    monkeypatch.delenv(APP_VARIABLE)
    assert status() == 0
    assert status("--database-url", "postgresql://u@127.0.0.1:1/x") == 3
    monkeypatch.setenv(DATABASE_URL_VARIABLE, "nonsense")
    assert "FAIRQUEUE_DATABASE_URL cannot be read" in bare_cli("stats").err


def test_applications_that_cannot_be_used(bare_cli: Cli, module: Module) -> None:
    """An application that cannot be loaded is told with what is missing and what there is."""
    url = "postgresql+psycopg://u@127.0.0.1:1/x"
    source = _ENGINE.format(url=url, name="db", make="create_engine")
    names = {
        "module": module(source),
        "broken": module("1 / 0"),
        "other": module("from sqlalchemy import create_engine\nengine = create_engine('sqlite://')"),
        "engineless": module("from sqlalchemy_fairqueue import Queue\nqueue = Queue('documents')\n"),
        "several": module(_ENGINE.format(url=url, name="a", make="create_engine") + "b = create_engine(URL)"),
    }
    for target, complaint in {
        "nonsense": "give module:name, like shop.queues:documents",
        ":x": "give module:name",
        "nowhere_at_all:x": "there is no module 'nowhere_at_all'; looked in ",
        "nowhere_at_all.queues:x": "there is no module 'nowhere_at_all'",
        "{module}:missing": "there is no 'missing' in module {module}; its queues are {module}:documents",
        "{module}:documents.missing": "there is no 'missing' in a Queue",
        "{module}:URL": "is a str, not a Queue or an Engine",
        "{broken}:x": "cannot be imported: ZeroDivisionError: division by zero; --debug shows where",
        "{other}:engine": "the engine speaks sqlite+pysqlite",
        "{engineless}:queue": "the module of {engineless}:queue has no engine; import the engine into that module, set",
        "{several}:documents": "has several engines: a, b; say which database is meant by --app {several}:a",
    }.items():
        found = bare_cli("stats", "--json", "--app", target.format(**names))
        assert (found.status, found.error["kind"]) == (2, "usage")
        assert complaint.format(**names) in " ".join(found.err.split())


def test_an_autocommit_engine(bare_cli: Cli, database: Database, engine: Engine, module: Module) -> None:
    """Commands that change something have transactions, however the application's engine is set."""
    enqueue(engine, "a")
    source = _ENGINE.format(url=url_of(database), name="db", make="create_engine")
    name = module(source.replace("poolclass=NullPool", "poolclass=NullPool, isolation_level='AUTOCOMMIT'"))

    found = bare_cli("pause", "--app", f"{name}:db")
    assert found.status == 0, found.err


def test_the_environment_before_the_engine_of_the_module(
    bare_cli: Cli, database: Database, engine: Engine, module: Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that works on another database than the application's engine says so, in one line on stderr."""
    enqueue(engine, "a")
    monkeypatch.setenv(DATABASE_URL_VARIABLE, url_of(database))
    for beside in ("another database", "the same database", "no engine", "named"):
        url = f"postgresql+psycopg://me:{SECRET}@nowhere/shop" if beside == "another database" else url_of(database)
        source = _ENGINE.format(url=url, name="db", make="create_engine")
        if beside == "no engine":
            source = "from sqlalchemy_fairqueue import Queue\ndocuments = Queue('documents')\n"
        target = f"{module(source)}:{'db' if beside == 'named' else 'documents'}"
        found = bare_cli("stats", "--json", "--app", target)
        assert (found.status, found.document["queues"][0]["ready"]) == (0, 1)
        said = f"and not on postgresql://me@nowhere/shop, that of the engine in the module of {target}"
        assert (said in found.err) == (beside == "another database"), found.err
        assert (found.err == "") == (beside != "another database"), found.err
        assert SECRET not in found.err


def test_a_schema(bare_cli: Cli, make_database: MakeDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation in a schema of any name is found by --schema."""
    schema = 'Odd "schema": %s'
    database = make_database(installed=False)
    made = create_engine(database.url, poolclass=NullPool)
    with made.begin() as connection:
        connection.exec_driver_sql('create schema "Odd ""schema"": %s"', execution_options={"no_parameters": True})
    install_into(database, schema)
    monkeypatch.setenv(DATABASE_URL_VARIABLE, url_of(database))

    where = ("--schema", schema, "--queue", "documents")
    assert bare_cli("configure", "queue", "--max-concurrency", "2", *where).status == 0
    assert bare_cli("configure", "channel", "a", "--weight", "2", *where).status == 0
    for words in (["stats"], ["channels"], ["pause"], ["resume", "a"], ["dead", "list"], ["history", "prune"]):
        assert bare_cli(*words, "--json", *where).status == 0
    assert bare_cli("cancel", "1", *where).status == 1
    assert bare_cli("purge", "a", "--yes", *where).status == 0
    assert bare_cli("top", "--once", *where).status == 0
    findings = bare_cli("doctor", "--json", *where).document["findings"]
    levels = {finding["check"]: finding["level"] for finding in findings}
    assert [levels[check] for check in ("version", "privileges", "leases", "history")] == ["ok"] * 4
    assert "could not be checked" not in str(findings)
