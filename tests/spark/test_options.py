"""Options are read by their types, and what is wrong with them is said before anything is done, without secrets."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import psycopg
import pytest

from sqlalchemy_fairqueue.errors import SchemaMismatch
from sqlalchemy_fairqueue.spark.connecting import connect, installation, refusals, shown
from sqlalchemy_fairqueue.spark.errors import BadOption, PipelineError, Unreachable
from sqlalchemy_fairqueue.spark.options import PlaceOptions, read_options
from sqlalchemy_fairqueue.spark.writing.settings import WriteOptions
from tests.fixtures.database import Database

DSN = "postgresql://user:hunter2@host/database"
PLACE = {"dsn": DSN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Everything(PlaceOptions):
    """One field of each type."""

    text: str
    number: int = 1
    flag: bool = False
    time: timedelta | None = None
    names: tuple[str, ...] = ()
    word: Literal["one", "another"] = "one"


def test_each_type_is_read() -> None:
    """Names count in any case; texts become what the fields say."""
    given = {"TEXT": "t", "number": "7", "Flag": "TRUE", "time": "1.5h", "names": "a, b,", "word": "Another"}
    read = read_options(Everything, PLACE | given)
    assert (read.text, read.number, read.flag, read.names, read.word) == ("t", 7, True, ("a", "b"), "another")
    assert read.time == timedelta(minutes=90)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"number": "1"}, r"not given text; add \.option\('text', \.\.\.\)"),
        ({"text": "t", "numbre": "1"}, "option 'numbre' is unknown; did you mean number?"),
        ({"text": "t", "xyz": "1"}, "option 'xyz' is unknown; the options are dsn, dsnEnv, flag"),
        ({"text": ""}, "option text is empty"),
        ({"text": "t", "number": "many"}, "option number is 'many'; give a whole number"),
        ({"text": "t", "flag": "yes"}, "option flag is 'yes'; give one of true, false"),
        ({"text": "t", "time": "5"}, "option time is '5'; give a number and a unit"),
        ({"text": "t", "word": "third"}, "option word is 'third'; give one of one, another"),
        ({"text": "t", "dsnEnv": "X"}, "give one of the options dsn and dsnEnv"),
    ],
)
def test_what_cannot_be_read_is_refused(given: dict[str, str], message: str) -> None:
    """The message names the option and the value, and never the dsn."""
    with pytest.raises(BadOption, match=message) as error:
        read_options(Everything, PLACE | given)
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "was not given queue"),
        ({"queue": "q" * 513}, "option queue .* has 513 bytes"),
        ({"queue": "q", "kind": ""}, "option kind is empty"),
        ({"queue": "q", "maxAttempts": "0"}, "option maxAttempts is 0"),
        ({"queue": "q", "stagingRows": "0"}, "option stagingRows is 0"),
        ({"queue": "q", "badRows": "reject"}, "badRows=reject and rejectsPath go together"),
        ({"queue": "q", "rejectsPath": "/x"}, "badRows=reject and rejectsPath go together"),
    ],
)
def test_writes_that_cannot_be(given: dict[str, str], message: str) -> None:
    """Options that contradict each other, or that no message could have, are refused."""
    with pytest.raises(BadOption, match=message):
        read_options(WriteOptions, PLACE | given)


def test_a_dsn_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the options nor a failed connection give it away, readable or not."""
    options = WriteOptions(dsn=DSN, queue="q")
    assert "hunter2" not in repr(options)
    assert shown(options) == "database 'database' on host"
    unreachable = PlaceOptions(dsn="postgresql://user:hunter2@127.0.0.1:1/database")
    with pytest.raises(Unreachable, match=r"cannot connect to database 'database' on 127\.0\.0\.1:1") as refused:
        connect(unreachable, "test")
    broken = PlaceOptions(dsn="postgresql://user:hunter2@ho st:hunter2/database")
    with pytest.raises(BadOption, match="option dsn cannot be read") as unreadable:
        connect(broken, "test")
    monkeypatch.setenv("SECRET", "hunter2 = x = y")
    with pytest.raises(BadOption, match="variable SECRET cannot be read") as by_name:
        connect(PlaceOptions(dsn_env="SECRET"), "test")
    with pytest.raises(BadOption, match="variable NOWHERE, which option dsnEnv names, is not set"):
        connect(PlaceOptions(dsn_env="NOWHERE"), "test")
    for error in (refused, unreadable, by_name):
        assert "hunter2" not in str(error.value)
        assert error.value.__cause__ is None
        assert error.value.__suppress_context__


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "postgresql+asyncpg"])
def test_an_url_of_sqlalchemy_will_do(database: Database, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever driver it names, and wherever it comes from."""
    monkeypatch.setenv("PLACE", database.conninfo.replace("postgresql", scheme, 1))
    with connect(PlaceOptions(dsn_env="PLACE"), "test") as connection:
        assert connection.execute("select current_database()").fetchone() == (database.name,)
        assert connection.execute("show application_name").fetchone() == ("fairqueue spark test",)
        assert installation(connection, None).schema == "public"


def test_an_installation_is_needed(database: Database, empty_database: Database) -> None:
    """The message says where it was looked for, and what to do."""
    with connect(PlaceOptions(dsn=empty_database.conninfo), "test") as connection:
        with pytest.raises(SchemaMismatch, match="not installed in the connection's default schema"):
            installation(connection, None)
        with pytest.raises(SchemaMismatch, match="not installed in schema 'elsewhere'"):
            installation(connection, "elsewhere")
    database.execute("create or replace function fq_version() returns integer language sql as 'select 99'")
    with (
        connect(PlaceOptions(dsn=database.conninfo), "test") as connection,
        pytest.raises(SchemaMismatch, match="holds version 99"),
    ):
        installation(connection, None)


def test_what_the_server_refuses_does_not_quote_rows(database: Database) -> None:
    """A row may be confidential: the server's words are kept, its detail is not."""
    database.execute("create table once (id text primary key)")
    with (
        connect(PlaceOptions(dsn=database.conninfo), "test") as connection,
        pytest.raises(PipelineError, match="cannot do it: duplicate key") as error,
        refusals("do it"),
    ):
        connection.execute("insert into once values ('hunter2'), ('hunter2')")
    assert "hunter2" not in str(error.value)
    assert isinstance(error.value.__cause__, psycopg.errors.UniqueViolation)
