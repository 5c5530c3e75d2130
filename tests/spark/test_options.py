"""Options are read by their types, and what is wrong with them is said before anything is done, without secrets."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import psycopg
import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.database.configuration import field_columns
from sqlalchemy_fairqueue.errors import SchemaMismatch
from sqlalchemy_fairqueue.spark.connections import (
    Installation,
    connect,
    display_target,
    find_installation,
    translated_errors,
)
from sqlalchemy_fairqueue.spark.errors import BadOption, PipelineError, Unreachable
from sqlalchemy_fairqueue.spark.options import TargetOptions, WriteOptions, read_options
from sqlalchemy_fairqueue.spark.reading.tables import table_named
from sqlalchemy_fairqueue.spark.writing.columns import Columns
from sqlalchemy_fairqueue.spark.writing.load import Load, Staged
from sqlalchemy_fairqueue.spark.writing.stage import Stage
from sqlalchemy_fairqueue.values.policies import POLICY, ChannelPolicy
from tests.fixtures.database import Database
from tests.policies import SAMPLES

DSN = "postgresql://user:hunter2@host/database"
TARGET = {"dsn": DSN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Everything(TargetOptions):
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
    read = read_options(Everything, TARGET | given)
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
        ({"text": "t", "time": "5"}, "option time: '5' is no duration; give one like 30s"),
        ({"text": "t", "word": "third"}, "option word is 'third'; give one of one, another"),
        ({"text": "t", "dsnEnv": "X"}, "give one of the options dsn and dsnEnv"),
    ],
)
def test_what_cannot_be_read_is_refused(given: dict[str, str], message: str) -> None:
    """The message names the option and the value, and never the dsn."""
    with pytest.raises(BadOption, match=message) as error:
        read_options(Everything, TARGET | given)
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "was not given queue"),
        ({"queue": "q" * 513}, "option queue .* has 513 bytes"),
        ({"queue": "q", "kind": ""}, "option kind is empty"),
        ({"queue": "q", "maxAttempts": "0"}, "option maxAttempts is 0"),
        ({"queue": "q", "weight": "0"}, "option weight is 0; give an int from 1 to 10000"),
        ({"queue": "q", "maxBacklog": "0"}, "option maxBacklog is 0; give an int from 1"),
        ({"queue": "q", "rate": "5"}, "option rate: '5' is no rate; give one like 10/s"),
        ({"queue": "q", "rate": "1/400d"}, "option rate: the time .* give a timedelta from 0:00:00 to"),
        ({"queue": "q", "badRows": "reject"}, "badRows=reject and rejectsPath go together"),
        ({"queue": "q", "rejectsPath": "/x"}, "badRows=reject and rejectsPath go together"),
    ],
)
def test_writes_that_cannot_be(given: dict[str, str], message: str) -> None:
    """Options that contradict each other, or that no message could have, are refused."""
    with pytest.raises(BadOption, match=message):
        read_options(WriteOptions, TARGET | given)


def test_values_are_read_as_texts_are() -> None:
    """Who makes the options in Python is understood as who gives them to Spark, in any case and with units."""
    given = {"payload_format": "JSON", "on_duplicate": "Raise", "bad_rows": "Reject", "rejects_path": "/x"}
    made = WriteOptions(dsn=DSN, queue="q", staging_rows="5", staging_ttl="1d", on_full="Drop", **given)  # type: ignore[arg-type]
    assert (made.payload_format, made.on_duplicate, made.bad_rows) == ("json", "raise", "reject")
    assert (made.staging_rows, made.staging_ttl, made.on_full) == (5, timedelta(days=1), "drop")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"payload_format": "yaml"}, "option payloadFormat is 'yaml'; give one of value, json"),
        ({"rejects_path": 5}, "option rejectsPath is 5; give text"),
        ({"staging_ttl": 86400}, "option stagingTtl is 86400; give a timedelta, or text like 36h"),
        ({"staging_ttl": timedelta(-1)}, "option stagingTtl is -1 day, 0:00:00; give a duration from 0 on"),
        ({"staging_rows": 0.5}, "option stagingRows is 0.5; give a whole number"),
        ({"on_full": 1}, "option onFull is 1; give one of raise, drop"),
        ({"max_attempts": 2**31}, "option maxAttempts is 2147483648"),
        ({"dsn": DSN.encode()}, "option dsn is a bytes; give text"),
    ],
)
def test_values_that_no_load_could_be_made_with(given: dict[str, Any], message: str) -> None:
    """They are refused when the options are made, by both ways to enqueue, before anything is staged."""
    with pytest.raises(BadOption, match=message) as error:
        WriteOptions(**{"dsn": DSN, "queue": "q"} | given)
    assert "hunter2" not in str(error.value)


def test_a_dsn_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the options nor a failed connection give it away, readable or not."""
    options = WriteOptions(dsn=DSN, queue="q")
    assert "hunter2" not in repr(options)
    assert display_target(options) == "database 'database' on host"
    unreachable = TargetOptions(dsn="postgresql://user:hunter2@127.0.0.1:1/database")
    with pytest.raises(Unreachable, match=r"cannot connect to database 'database' on 127\.0\.0\.1:1") as refused:
        connect(unreachable, "test")
    broken = TargetOptions(dsn="postgresql://user:hunter2@ho st:hunter2/database")
    with pytest.raises(BadOption, match="option dsn cannot be read") as unreadable:
        connect(broken, "test")
    monkeypatch.setenv("SECRET", "hunter2 = x = y")
    with pytest.raises(BadOption, match="variable SECRET cannot be read") as by_name:
        connect(TargetOptions(dsn_env="SECRET"), "test")
    with pytest.raises(BadOption, match="variable NOWHERE, which option dsnEnv names, is not set"):
        connect(TargetOptions(dsn_env="NOWHERE"), "test")
    for error in (refused, unreadable, by_name):
        assert "hunter2" not in str(error.value)
        assert error.value.__cause__ is None
        assert error.value.__suppress_context__


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "postgresql+asyncpg"])
def test_an_url_of_sqlalchemy_will_do(database: Database, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever driver it names, and wherever it comes from."""
    monkeypatch.setenv("TARGET", database.conninfo.replace("postgresql", scheme, 1))
    with connect(TargetOptions(dsn_env="TARGET"), "test") as connection:
        assert connection.execute("select current_database()").fetchone() == (database.name,)
        assert connection.execute("show application_name").fetchone() == ("fairqueue spark test",)
        assert find_installation(connection, None).schema == "public"


def test_an_installation_is_needed(database: Database, empty_database: Database) -> None:
    """The message says where it was searched, and what to do."""
    with connect(TargetOptions(dsn=empty_database.conninfo), "test") as connection:
        with pytest.raises(SchemaMismatch, match="not installed in the connection's default schema"):
            find_installation(connection, None)
        with pytest.raises(SchemaMismatch, match="not installed in schema 'elsewhere'"):
            find_installation(connection, "elsewhere")
    database.execute("create or replace function fq_version() returns smallint language sql as 'select 0'")
    with (
        connect(TargetOptions(dsn=database.conninfo), "test") as connection,
        pytest.raises(SchemaMismatch, match=r"holds version 0 .* needs version 1; .*op\.upgrade_fairqueue\(0, 1\)"),
    ):
        find_installation(connection, None)


def test_a_newer_installation_will_do(database: Database) -> None:
    """A database is migrated before the code is rolled out."""
    database.execute("create or replace function fq_version() returns smallint language sql as 'select 99'")
    with connect(TargetOptions(dsn=database.conninfo), "test") as connection:
        assert find_installation(connection, None).schema == "public"


def test_what_the_server_refuses_does_not_quote_rows(database: Database) -> None:
    """A row may be confidential: the server's words are kept, its detail is not."""
    database.execute("create table once (id text primary key)")
    with (
        connect(TargetOptions(dsn=database.conninfo), "test") as connection,
        pytest.raises(PipelineError, match="cannot do it: duplicate key") as error,
        translated_errors("do it"),
    ):
        connection.execute("insert into once values ('hunter2'), ('hunter2')")
    assert "hunter2" not in str(error.value)
    assert isinstance(error.value.__cause__, psycopg.errors.UniqueViolation)


def test_each_field_of_a_policy_has_an_option(database: Database, engine: Engine) -> None:
    """A load gives every field of a policy to its new channels, and ``table=channels`` reads every one."""
    options = WriteOptions(dsn=database.conninfo, queue="documents", **SAMPLES)
    stage = Stage(Installation("public"), "public_stages", database.value("select fq_make_stage(86400000000)"))
    database.execute(f"insert into {stage.quoted} (attempt, channel, kind, content) values (1, 'a', 'work', '1')")
    load = Load(options, Columns({}, "work", None, json_payload=False), Installation("public"), "job", stage)
    assert load.merge([Staged(0, 1, None, stage, messages=1)]).created == 1
    assert [stats.policy for stats in Queue("documents").channels(engine)] == [ChannelPolicy(**SAMPLES)]
    assert set(field_columns(POLICY)) <= {column.name for column in table_named("channels").columns}
