"""The least rights of producers, consumers and monitors: what doctor prints is enough, and none of it is too much."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, NullPool, create_engine
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.orm import Session

import sqlalchemy_fairqueue
from sqlalchemy_fairqueue import ChannelPolicy, Delivery, Queue, Worker
from sqlalchemy_fairqueue.cli.doctor.findings import CheckContext, Finding, Level, Role
from sqlalchemy_fairqueue.cli.doctor.privileges import (
    ALL_TABLES,
    OPTIONAL_FUNCTIONS,
    ROLE_FUNCTIONS,
    ROLE_TABLES,
    check_privileges,
)
from tests.cli.conftest import Cli, install_into
from tests.cli.messages import enqueue, lease, levels
from tests.cli.test_installation import role
from tests.fixtures.database import Database

_SCHEMA = "jobs"
_QUEUE = Queue("documents", schema=_SCHEMA)
_BOUNDED = Queue("bounded", schema=_SCHEMA, defaults=ChannelPolicy(max_backlog=2, on_full="drop"))
_PAGE = Path(sqlalchemy_fairqueue.__file__).parents[1] / "docs" / "migrations.md"
_DENIED = "permission denied for"


@dataclass(frozen=True, slots=True)
class Acting:
    """A role of its own with what doctor printed for its kind.

    Attributes:
        name: The role's.
        url: Logs in as it does.
        engine: Connects as it does.
        told: What doctor says of its privileges at last.
    """

    name: str
    url: str
    engine: Engine
    told: str

    def checked(self, kind: Role) -> Finding:
        """What the check of privileges finds."""
        with self.engine.connect() as connection:
            context = CheckContext(connection, _SCHEMA, 2, None, timedelta(minutes=5), role=kind)
            return next(iter(check_privileges(context)))


@pytest.fixture
def prepared(database: Database, engine: Engine) -> Database:
    """A queue with a history and a consumer that sleeps, and a dead letter in another; nobody may use the schema."""
    database.execute(f"create schema {_SCHEMA}")
    install_into(database, _SCHEMA)
    _QUEUE.configure(engine, history=True)
    database.execute(f"select {_SCHEMA}.fq_wait('documents', 'sleeper', null, 3600000000)")
    dying = Queue("dying", schema=_SCHEMA)
    enqueue(engine, "a", queue=dying)
    dying.bury(engine, lease(engine, queue=dying), reason="cannot be read")
    return database


@contextmanager
def acting(cli: Cli, database: Database, kind: Role) -> Iterator[Acting]:
    """Make a role, and run what doctor prints as often as it prints something: it cannot look into a closed schema."""
    name = f"{database.name}_{kind}"
    with role(database, name) as url:
        for _ in range(3):
            document = doctor(cli, url, kind)
            remedy = document["error"]["remedy"] if "error" in document else privileges(document)[0]["remedy"]
            for grant in (remedy or "").splitlines():
                database.execute(grant)
        engine = create_engine(url, poolclass=NullPool)
        [found, *_] = privileges(doctor(cli, url, kind))
        assert found["level"] == "ok"
        yield Acting(name, url, engine, found["message"])
        engine.dispose()


def doctor(cli: Cli, url: str, kind: Role) -> dict[str, Any]:
    """The document of doctor, as another role."""
    found = cli("doctor", "--json", "--role", kind.value, "--schema", _SCHEMA, "--database-url", url)
    return dict(found.document)


def privileges(document: dict[str, Any]) -> list[dict[str, Any]]:
    """What doctor finds about privileges."""
    return [one for one in document["findings"] if one["check"] == "privileges"]


def produce(engine: Engine, run: str) -> None:
    """Everything that a producer does, in channels that are there and in new ones, while a consumer sleeps."""
    for _ in range(2):
        enqueue(engine, f"{run}-alone", queue=_QUEUE)
        enqueue(engine, *[f"{run}-{number}" for number in range(3)], queue=_QUEUE)
        enqueue(engine, f"{run}-key", key="k", queue=_QUEUE)
        enqueue(engine, f"{run}-keys", f"{run}-key", key="k", queue=_QUEUE)
        enqueue(engine, f"{run}-later", delay=timedelta(hours=1), queue=_QUEUE)
        enqueue(engine, *[f"{run}-full"] * 3, queue=_BOUNDED)
    assert _QUEUE.enqueue_now(engine, channel=f"{run}-now", payload=1, key="once", on_duplicate="raise")


def consume(engine: Engine) -> None:
    """Everything that a worker does, and those who look after the queue."""
    channels = ["a", "b", "c", "d", "e", "f"]
    ids = enqueue(engine, *channels, queue=_QUEUE)
    done, again, given_back, dead = lease(engine, 4, queue=_QUEUE)
    _QUEUE.complete(engine, [done])
    _QUEUE.retry(engine, [again], delay=timedelta(0), error="again")
    _QUEUE.release(engine, [given_back])
    _QUEUE.bury(engine, [dead], reason="cannot be read")
    _QUEUE.redrive(engine)
    _QUEUE.pause(engine, "a")
    _QUEUE.resume(engine, "a")
    _QUEUE.configure(engine, max_concurrency=50)
    _QUEUE.configure_channel(engine, "a", ChannelPolicy(max_concurrency=4))
    handled = []
    queue = Queue("documents", schema=_SCHEMA)

    @queue.handler("parse")
    def parse(delivery: Delivery, session: Session) -> None:
        session.connection()
        handled.append(delivery.message_id)

    Worker(engine, queue, housekeeping=False).run(drain=True)
    assert sorted(handled) == sorted(set(ids) - {done.message_id})


def look(cli: Cli, url: str) -> None:
    """Everything that looks at queues and changes nothing."""
    for words in ("stats", "channels --queue documents", "dead list --queue dying", "top --once"):
        found = cli(*words.split(), "--schema", _SCHEMA, "--database-url", url)
        assert found.status == 0, (words, found.err)


def test_producers(bare_cli: Cli, prepared: Database) -> None:
    """With what doctor prints a producer enqueues in every way but one; what else it needs for that one is told."""
    with acting(bare_cli, prepared, Role.PRODUCER) as producer:
        assert producer.told.startswith(
            f"role '{producer.name}' may do what a producer needs, and may not cancel messages (execute on "
        )
        assert "could not be checked" not in str(doctor(bare_cli, producer.url, Role.PRODUCER))
        produce(producer.engine, "first")
        [kept] = enqueue(producer.engine, "a", key="k", queue=_QUEUE)
        assert enqueue(producer.engine, "a", key="k", on_duplicate="replace", queue=_QUEUE) == [kept]

        for forbidden in (
            lambda: _QUEUE.cancel(producer.engine, kept),
            lambda: lease(producer.engine, queue=_QUEUE),
            lambda: _QUEUE.pause(producer.engine),
            lambda: prepared_select(producer.engine),
        ):
            with pytest.raises(ProgrammingError, match=_DENIED):
                forbidden()

        for verb, functions in OPTIONAL_FUNCTIONS.items():
            for function in functions:
                prepared.execute(f'grant execute on function {_SCHEMA}.{function} to "{producer.name}"')
            assert verb not in producer.checked(Role.PRODUCER).message
        assert _QUEUE.cancel(producer.engine, kept).outcome == "cancelled"


def prepared_select(engine: Engine) -> None:
    """Read the messages without a function."""
    with engine.connect() as connection:
        connection.exec_driver_sql(f"select content from {_SCHEMA}.fq_message")


def test_consumers(bare_cli: Cli, prepared: Database) -> None:
    """With what doctor prints, and asks for where nothing else is said, a worker works; it may enqueue too."""
    with acting(bare_cli, prepared, Role.CONSUMER) as consumer:
        assert consumer.told == f"role '{consumer.name}' may do what a consumer needs"
        words = ["--json", "--schema", _SCHEMA, "--database-url", consumer.url]
        assert privileges(bare_cli("doctor", *words).document)[0]["message"] == consumer.told
        consume(consumer.engine)
        produce(consumer.engine, "first")
        [message_id] = enqueue(consumer.engine, "a", queue=_QUEUE)
        assert _QUEUE.cancel(consumer.engine, message_id).outcome == "cancelled"
        assert prepared.value(f"select count(*) from {_SCHEMA}.fq_history") > 0


def test_monitors(bare_cli: Cli, prepared: Database, engine: Engine) -> None:
    """With what doctor prints a monitor sees everything, the next ids too, and changes nothing."""
    enqueue(engine, "a", queue=_QUEUE)
    with acting(bare_cli, prepared, Role.MONITOR) as monitor:
        assert monitor.told == f"role '{monitor.name}' may do what a monitor needs"
        look(bare_cli, monitor.url)
        document = doctor(bare_cli, monitor.url, Role.MONITOR)
        assert "could not be checked" not in str(document)
        assert levels([one for one in document["findings"] if one["check"] == "sequences"]) == ["ok"]

        for forbidden in (
            lambda: enqueue(monitor.engine, "a", queue=_QUEUE),
            lambda: lease(monitor.engine, queue=_QUEUE),
            lambda: _QUEUE.pause(monitor.engine),
            lambda: Queue("dying", schema=_SCHEMA).purge_dead(monitor.engine),
        ):
            with pytest.raises(ProgrammingError, match=_DENIED):
                forbidden()


@pytest.mark.parametrize("kind", list(Role))
def test_a_right_that_was_taken_away(bare_cli: Cli, prepared: Database, kind: Role) -> None:
    """Every right that is missing is named with its object, and the grant to paste brings it back."""
    with acting(bare_cli, prepared, kind) as actor:
        rights = [("select", "table", table) for table in ROLE_TABLES[kind]]
        rights += [("execute", "function", function) for function in ROLE_FUNCTIONS[kind]]
        for right, sort, name in rights:
            prepared.execute(f'revoke {right} on {sort} {_SCHEMA}.{name} from "{actor.name}"')
            lacking = actor.checked(kind)
            assert lacking.level is Level.PROBLEM
            assert re.fullmatch(
                rf'grant {right} on {sort} "?{_SCHEMA}"?\.{name}(\(.*\))? to "{actor.name}";', str(lacking.remedy)
            )
            assert lacking.message.startswith(f"role '{actor.name}' lacks what a {kind} needs: {right} on {sort} ")
            prepared.execute(str(lacking.remedy))
        assert actor.checked(kind).level is Level.OK


@pytest.mark.skipif(not _PAGE.is_file(), reason="the installed wheel is tested without the docs")
def test_the_page_has_the_same_rights() -> None:
    """The table in docs/migrations.md says what doctor asks for."""
    rows = re.findall(r"^\| `(fq_\w+)` \|(.*)\|(.*)\|(.*)\|$", _PAGE.read_text(), re.MULTILINE)
    told = {kind: {name for name, *its in rows if its[place].strip()} for place, kind in enumerate(Role)}
    assert told == {kind: {*ROLE_FUNCTIONS[kind], *ROLE_TABLES[kind]} for kind in Role}


def test_every_table_is_somebodys(prepared: Database) -> None:
    """A monitor's rights cover every table that the newest version has."""
    tables = prepared.rows(
        "select c.relname from pg_class c where c.relnamespace = cast(:schema as regnamespace) "
        "and c.relkind in ('r', 'p') and c.relname !~ '_p[0-9]{8}$'",
        schema=_SCHEMA,
    )
    assert {row.relname for row in tables} == set(ALL_TABLES)
