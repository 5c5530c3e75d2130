"""Servers that are not quite PostgreSQL: recognised by what only they have, as far as that can be imitated."""

import pytest
from sqlalchemy import text

from sqlalchemy_fairqueue.doctor.findings import Level
from sqlalchemy_fairqueue.doctor.server import is_pooler, recognise
from tests.cli.messages import Findings
from tests.fixtures.database import Database

_POSTGRESQL = "PostgreSQL 17.5 on x86_64-pc-linux-gnu, compiled by gcc, 64-bit"


def test_versions_of_others() -> None:
    """Where the queue cannot work, the version says whose it is, and the finding is a problem."""
    for version, name in {
        "PostgreSQL 15.12-YB-2025.2.3.0-b1 on x86_64-pc-linux-gnu": "YugabyteDB",
        "CockroachDB CCL v25.1.0 (x86_64-pc-linux-gnu)": "CockroachDB",
        "PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC, Redshift 1.0.12103": "Amazon Redshift",
        "PostgreSQL 12.12 (Greenplum Database 7.1.0 build commit:x) on x86_64": "Greenplum",
    }.items():
        found = recognise(version, [])
        assert found is not None, name
        assert (found.name, found.level) == (name, Level.PROBLEM)


@pytest.mark.parametrize("mark", ["aurora", "alloydb", "neon", "citus"])
def test_marks(mark: str) -> None:
    """Where it works, what to heed is said without a warning; PostgreSQL itself is no platform."""
    found = recognise(_POSTGRESQL, [mark])
    assert found is not None
    assert found.level is Level.OK
    assert recognise(_POSTGRESQL, []) is None
    assert recognise(_POSTGRESQL, ["something else"]) is None


def _catalog(database: Database, *statements: str) -> None:
    """Change PostgreSQL's own catalog in the test's database, as platforms do."""
    with database.own.connect() as connection:
        connection.execute(text("set allow_system_table_mods = on"))
        for statement in statements:
            connection.execute(text(statement))
        connection.execute(text("reset allow_system_table_mods"))


@pytest.mark.parametrize(
    ("imitation", "name"),
    [
        ("alter database \"{}\" set neon.timeline_id = 'x'", "Neon"),
        ("alter database \"{}\" set alloydb.iam_authentication = 'off'", "AlloyDB"),
        ("create function pg_catalog.aurora_version() returns text return '17.4.1'", "Amazon Aurora"),
    ],
)
def test_a_platform_is_told(findings: Findings, database: Database, imitation: str, name: str) -> None:
    """The finding names the platform, what to heed there, and the page."""
    assert findings("platform") == []
    _catalog(database, imitation.format(database.name))
    [found] = findings("platform")
    assert (found["level"], found["values"]) == ("ok", {"platform": name})
    assert "see the page on servers of the documentation" in found["message"]
    assert found["remedy"]


def test_distributed_tables(findings: Findings, database: Database) -> None:
    """Citus is fine until one of the queue's tables is distributed; then each is named with the statement to paste."""
    citus = (
        "insert into pg_extension values (99999, 'citus', 10, 'pg_catalog'::regnamespace, false, '13.0', null, null)"
    )
    _catalog(database, citus)
    assert [one["level"] for one in findings("platform")] == ["ok"]
    _catalog(
        database,
        "create table pg_catalog.pg_dist_partition (logicalrelid regclass not null)",
        "insert into pg_dist_partition values ('public.fq_message'), ('pg_class')",
    )
    [_, found] = findings("platform")
    assert (found["level"], found["values"]) == ("problem", {"table": "fq_message"})
    assert found["remedy"] == """select undistribute_table('"public".fq_message');"""


def test_tables_of_another_kind(findings: Findings, database: Database) -> None:
    """A table that another access method keeps is a problem, with the statement to paste."""
    database.execute("create access method other type table handler heap_tableam_handler")
    database.execute("alter table fq_message set access method other")
    [found] = findings("platform")
    assert (found["level"], found["values"]) == ("problem", {"table": "fq_message", "method": "other"})
    database.execute(found["remedy"])
    assert findings("platform") == []


def test_pooled_endpoints() -> None:
    """The name of a host tells whether it is a pooler, over which nobody can listen."""
    assert is_pooler("ep-cool-darkness-123456-pooler.us-east-2.aws.neon.tech")
    assert not is_pooler("ep-cool-darkness-123456.us-east-2.aws.neon.tech")
    assert not is_pooler("db-pooler-test.example.com")
    assert not is_pooler("")
