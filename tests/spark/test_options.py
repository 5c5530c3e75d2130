"""Options are read by their types, and what is wrong with them is said before anything is done, without secrets."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import psycopg
import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Enqueue, Queue
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
        ({"text": "t", "number": "many"}, "option number is 'many'"),
        ({"text": "t", "flag": "yes"}, "option flag is 'yes'"),
        ({"text": "t", "time": "5"}, "option time: '5' is no duration"),
        ({"text": "t", "word": "third"}, "option word is 'third'"),
        ({"text": "t", "dsnEnv": "X"}, "give one of the options dsn and dsnEnv"),
    ],
)
def test_what_cannot_be_read_is_refused(given: dict[str, str], message: str) -> None:
    """The message names the option and the value, and never the dsn."""
    with pytest.raises(BadOption, match=message) as error:
        read_options(Everything, TARGET | given)
    assert "hunter2" not in str(error.value)


def test_values_are_read_as_texts_are() -> None:
    """Who makes the options in Python is understood as who gives them to Spark, in any case and with units. A message
    that follows is JSON with the fields of an Enqueue.
    """
    given = {"payload_format": "JSON", "on_duplicate": "Raise", "bad_rows": "Reject", "rejects_path": "/x"}
    made = WriteOptions(dsn=DSN, queue="q", staging_rows="5", staging_ttl="1d", on_full="Drop", **given)  # type: ignore[arg-type]
    assert (made.payload_format, made.on_duplicate, made.bad_rows) == ("json", "raise", "reject")
    assert (made.staging_rows, made.staging_ttl, made.on_full) == (5, timedelta(days=1), "drop")
    text: Any = '{"channel": "a", "payload": [1], "kind": "k", "delay": "5m"}'
    follows = Enqueue(channel="a", payload=[1], kind="k", delay=timedelta(minutes=5))
    assert read_options(WriteOptions, TARGET | {"queue": "q", "then": text}).then == follows
    assert WriteOptions(dsn=DSN, queue="q", on_failure=text).on_failure == follows


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"queue": "q" * 513}, "option queue .* has 513 bytes"),
        ({"kind": ""}, "option kind is empty"),
        ({"max_attempts": 2**31}, "option maxAttempts is 2147483648"),
        ({"weight": "0"}, "option weight is 0"),
        ({"max_backlog": "0"}, "option maxBacklog is 0"),
        ({"rate": "5"}, "option rate: '5' is no rate"),
        ({"rate": "1/400d"}, "option rate: the time .* give a timedelta from 0:00:00 to"),
        ({"bad_rows": "reject"}, "badRows=reject and rejectsPath go together"),
        ({"rejects_path": "/x"}, "badRows=reject and rejectsPath go together"),
        ({"payload_format": "yaml"}, "option payloadFormat is 'yaml'"),
        ({"rejects_path": 5}, "option rejectsPath is 5; give text"),
        ({"staging_ttl": 86400}, "option stagingTtl is 86400; give a timedelta"),
        ({"staging_ttl": timedelta(-1)}, "option stagingTtl is -1 day, 0:00:00"),
        ({"staging_rows": 0.5}, "option stagingRows is 0.5; give a whole number"),
        ({"on_full": 1}, "option onFull is 1; give one of raise, drop"),
        ({"dsn": DSN.encode()}, "option dsn is a bytes; give text"),
        ({"then": "hunter2"}, "option then: its value is no JSON"),
        ({"then": "[1]"}, "option then: its value is no message"),
        ({"then": '{"channel": "a"}'}, "option then: its value is no message: .*'payload'"),
        ({"then": '{"channel": "", "payload": 1}'}, "option then: channel"),
        ({"then": 7}, "option then is a int"),
        ({"then": Enqueue(channel="a", payload=1, cost=2)}, "option then has cost=2"),
        (
            {"then": Enqueue(channel="a", payload=1, headers={"after_group": 1})},
            "option then has a header 'after_group'",
        ),
        ({"on_failure": Enqueue(channel="a", payload={1})}, "option onFailure: "),
    ],
)
def test_values_that_no_load_could_be_made_with(given: dict[str, Any], message: str) -> None:
    """They are refused when the options are made, by both ways to enqueue, before anything is staged; of a message that
    follows no payload is told.
    """
    with pytest.raises(BadOption, match=message) as error:
        WriteOptions(**{"dsn": DSN, "queue": "q"} | given)
    assert "hunter2" not in str(error.value)


def test_a_dsn_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the options nor a failed connection give it away, readable or not."""
    options = WriteOptions(dsn=DSN, queue="q")
    assert "hunter2" not in repr(options)
    assert display_target(options) == "database 'database' on host"
    monkeypatch.setenv("SECRET", "hunter2 = x = y")
    refused: list[tuple[dict[str, str], type[Exception], str]] = [
        ({"dsn": "postgresql://user:hunter2@127.0.0.1:1/database"}, Unreachable, "database 'database' on 127.0.0.1:1"),
        ({"dsn": "postgresql://user:hunter2@ho st:hunter2/database"}, BadOption, "option dsn cannot be read"),
        ({"dsn_env": "SECRET"}, BadOption, "variable SECRET cannot be read"),
        ({"dsn_env": "NOWHERE"}, BadOption, "variable NOWHERE, which option dsnEnv names, is not set"),
    ]
    for given, kind, words in refused:
        with pytest.raises(kind, match=words) as error:
            connect(TargetOptions(**given), "test")
        assert "hunter2" not in str(error.value)
        assert error.value.__cause__ is None
        assert error.value.__context__ is None or error.value.__suppress_context__


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "postgresql+asyncpg"])
def test_an_url_of_sqlalchemy_will_do(database: Database, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever driver it names, and wherever it comes from."""
    monkeypatch.setenv("TARGET", database.conninfo.replace("postgresql", scheme, 1))
    with connect(TargetOptions(dsn_env="TARGET"), "test") as connection:
        assert connection.execute("select current_database()").fetchone() == (database.name,)
        assert connection.execute("show application_name").fetchone() == ("fairqueue spark test",)
        assert find_installation(connection, None).schema == "public"


def test_an_installation_is_needed(database: Database, empty_database: Database) -> None:
    """The message says where it was searched, and what to do. A newer one will do: a database is migrated before the
    code is rolled out.
    """
    with connect(TargetOptions(dsn=empty_database.conninfo), "test") as connection:
        with pytest.raises(SchemaMismatch, match="not installed in the connection's default schema"):
            find_installation(connection, None)
        with pytest.raises(SchemaMismatch, match="not installed in schema 'elsewhere'"):
            find_installation(connection, "elsewhere")
    version = "create or replace function fq_version() returns smallint language sql as 'select {}'"
    with connect(TargetOptions(dsn=database.conninfo), "test") as connection:
        database.execute(version.format(0))
        with pytest.raises(
            SchemaMismatch, match=r"holds version 0 .* needs version 1; .*op\.upgrade_fairqueue\(0, 1\)"
        ):
            find_installation(connection, None)
        database.execute(version.format(99))
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
