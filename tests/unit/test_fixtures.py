import socket
from datetime import UTC, datetime, timedelta
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from pytest_postgresql.executors.noop import NoopExecutor
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session, sessionmaker

from tests.fixtures.clock import Clock
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.options import sampled
from tests.fixtures.ports import reserved_port
from tests.fixtures.waits import Waits


def _lock(engine: Engine) -> str:
    with engine.begin() as connection:
        connection.execute(text("select pg_advisory_xact_lock(1)"))
    return "had it"


def test_a_rival_is_seen_waiting(waits: Waits, connect: Connect) -> None:
    """A rival that waits for a lock is shown as blocked, and ends once the lock is free."""
    holder = connect()
    holder.execute(text("select pg_advisory_xact_lock(1)"))
    rival = waits.start(_lock).blocked()
    holder.rollback()
    assert rival.result() == "had it"


def test_a_rival_that_ends_is_not_waiting(waits: Waits) -> None:
    """Expecting a wait of something that just runs through fails the test, with what it returned."""
    with pytest.raises(pytest.fail.Exception, match="ended: 'had it'"):
        waits.start(_lock).blocked()


def test_waiting_is_a_hindrance(waits: Waits, connect: Connect) -> None:
    """What must not wait for locks fails its test when it does, and passes when it does not."""
    assert waits.unhindered(_lock) == "had it"
    connect().execute(text("select pg_advisory_xact_lock(1)"))
    with pytest.raises(pytest.fail.Exception, match="waited for a lock"):
        waits.unhindered(_lock)


def test_a_rival_left_waiting_does_not_hang_the_suite(waits: Waits, connect: Connect) -> None:
    """A rival that still waits when its test ends is ended with it."""
    connect().execute(text("select pg_advisory_xact_lock(1)"))
    waits.start(_lock).blocked()


def test_the_clock_runs_and_goes_forward(clock: Clock) -> None:
    """The clock starts as the true time, keeps running and jumps by what it is advanced."""
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=10)
    before = clock.now()
    clock.advance(timedelta(hours=1, microseconds=1))
    assert before + timedelta(hours=1) < clock.now() < before + timedelta(hours=1, seconds=10)


def test_open_transactions_see_the_clock_jump(clock: Clock, connect: Connect) -> None:
    """An advance is seen at once by a transaction whose snapshot is older."""
    serializable = connect(isolation_level="SERIALIZABLE")
    before = serializable.scalar(text("select fq_now()"))
    clock.advance(timedelta(minutes=5))
    assert serializable.scalar(text("select fq_now()")) - before >= 300_000_000


def test_each_test_has_a_database_of_its_own(database: Database, empty_database: Database) -> None:
    """The installed and the empty database are two, and only one has the library."""
    installed = "select to_regprocedure('fq_now()') is not null"
    assert database.name != empty_database.name
    assert database.value(installed)
    assert not empty_database.value(installed)


async def test_async_engine_reaches_the_same_database(async_engine: AsyncEngine, database: Database) -> None:
    """The asyncio engine works on the test's database."""
    async with async_engine.connect() as connection:
        assert await connection.scalar(text("select current_database()")) == database.name


def test_sessions_commit_for_real(session_factory: sessionmaker[Session], database: Database) -> None:
    """What a session commits is seen from another connection."""
    with session_factory.begin() as session:
        session.execute(text("create table seen as select 1 as one"))
    assert database.value("select one from seen") == 1


def test_pytest_postgresql_knows_the_server(postgresql_proc: NoopExecutor, server_version: int) -> None:
    """pytest-postgresql's executor reaches the server of the suite, of a version that we support."""
    assert server_version >= 15
    assert postgresql_proc.user


def _variant(name: str, marks: list[str], **params: object) -> Any:
    return SimpleNamespace(
        nodeid=f"tests/a.py::{name}[{'-'.join(map(str, params.values()))}]",
        callspec=SimpleNamespace(params=params),
        iter_markers=lambda _: [SimpleNamespace(args=(names, ()), kwargs={}) for names in marks],
        get_closest_marker=lambda _: None,
    )


def test_parameters_that_multiply_show_each_value() -> None:
    """Of three drivers times four verbs at most six variants run; of four cases of two values each, all."""
    verbs, drivers = ("complete", "retry", "release", "bury"), ("psycopg", "psycopg2", "asyncpg")
    multiplied = [_variant("test_m", ["verb", "driver"], verb=v, driver=d) for v, d in product(verbs, drivers)]
    cases = [_variant("test_c", ["given, expected"], given=g, expected=e) for g, e in product((1, 2), (3, 4))]
    fixture = [_variant("test_f", ["verb"], verb=v, driver=d) for v, d in product(verbs, drivers)]
    kept = sampled([*multiplied, *cases, *fixture], 100)
    for variants in (multiplied, fixture):
        found = [one.callspec.params for one in variants if one.nodeid in kept]
        assert {one["verb"] for one in found} == set(verbs)
        assert {one["driver"] for one in found} == set(drivers)
        assert len(found) <= len(verbs) + len(drivers) - 1
    assert {one.nodeid for one in cases} <= kept
    assert len(sampled(multiplied, 2)) == 2


def test_a_reserved_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other test gets it, also while no program listens on it; a program can."""
    monkeypatch.setattr("random.sample", lambda ports, _: sorted(ports))
    with reserved_port() as port:
        with reserved_port() as other:
            assert other > port
        with socket.create_server(("127.0.0.1", port)):
            pass
