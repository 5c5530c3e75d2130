"""A schema that is renamed: the functions in it name the old one until they are repaired."""

from functools import partial
from typing import Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateSchema

from sqlalchemy_fairqueue import Queue, SchemaMismatch
from sqlalchemy_fairqueue.sql import assert_no_drift, find_drift
from tests.alembic.conftest import LATEST
from tests.fixtures.database import Database, install

ADVICE = rf'schema "jobs" does not exist; .*op\.repair_fairqueue\(version={LATEST}, schema=\.\.\.\)'


def _installed(connection: Connection, schema: str) -> None:
    connection.execute(CreateSchema(schema))
    install(connection, schema=schema, version=LATEST)


def _operations(connection: Connection) -> Any:
    return Operations(MigrationContext.configure(connection))


def test_a_renamed_schema(empty_database: Database) -> None:
    """Every verb says to repair it under its new name; then it works on its own tables, whatever has the old name. Who
    repairs in the transaction that renames is never without a queue that works.
    """
    engine = create_engine(empty_database.url, poolclass=NullPool)
    with engine.begin() as connection:
        _installed(connection, "jobs")
    Queue("q", schema="jobs").enqueue(engine, channel="a", payload="old")
    empty_database.execute("alter schema jobs rename to jobs_2025")
    renamed, fresh = Queue("q", schema="jobs_2025"), Queue("q", schema="jobs")

    for verb in (renamed.stats, renamed.dequeue, partial(renamed.enqueue, channel="a", payload="lost")):
        with pytest.raises(SchemaMismatch, match=ADVICE):
            verb(engine)
    with pytest.raises(SchemaMismatch, match=r"op\.create_fairqueue"):
        fresh.stats(engine)

    with engine.begin() as connection:
        assert {"function fq_wake", "function fq_grants"} <= {one.named for one in find_drift(connection, "jobs_2025")}
        _operations(connection).repair_fairqueue(LATEST, schema="jobs_2025")
        _installed(connection, "jobs")
        assert_no_drift(connection, "jobs_2025")
    fresh.enqueue(engine, channel="a", payload="new")
    assert [delivery.payload for delivery in renamed.dequeue(engine)] == ["old"]
    with engine.begin() as connection:
        op = _operations(connection)
        op.execute("alter schema jobs rename to jobs_2026")
        op.repair_fairqueue(LATEST, schema="jobs_2026")
    assert [delivery.payload for delivery in Queue("q", schema="jobs_2026").dequeue(engine)] == ["new"]
