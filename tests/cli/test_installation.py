from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine, NullPool, create_engine

from sqlalchemy_fairqueue.cli.options import DATABASE_URL_VARIABLE
from tests.cli.conftest import Cli, install_into, say_version
from tests.cli.messages import enqueue
from tests.cli.shops import THREADS
from tests.fixtures.database import Database

COMMANDS = [
    ["stats"], ["channels"], ["pause"], ["resume"], ["configure", "queue"], ["configure", "channel", "a"],
    ["dead", "list"], ["dead", "show", "1"], ["dead", "redrive", "1"], ["dead", "purge", "1", "--yes"],
    ["cancel", "1"], ["purge", "a", "--yes"], ["history", "prune"], ["top", "--once"],
]  # fmt: skip


@pytest.fixture
def empty(empty_database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A database without the library, named by the environment."""
    monkeypatch.setenv(DATABASE_URL_VARIABLE, empty_database.url.render_as_string(hide_password=False))
    return empty_database


def test_missing(bare_cli: Cli, empty: Database, module: Callable[[str], str]) -> None:
    """Where fairqueue is not installed, every command says so with the migration to paste, and status 4."""
    for command in [*COMMANDS, ["doctor"]]:
        found = bare_cli(*command, "--json")
        assert (found.status, found.error["kind"]) == (4, "schema_missing"), command
        assert f"not installed in any schema of the search_path of database '{empty.name}'" in found.err
        assert found.error["remedy"] == "op.create_fairqueue(version=1)"
        assert "\n    op.create_fairqueue(version=1)\n" in found.err
    found = bare_cli("worker", f"{module(THREADS)}:queue", "--json")
    assert (found.status, "op.create_fairqueue(version=1" in str(found.error)) == (4, True)


def test_missing_in_a_schema(bare_cli: Cli, empty: Database) -> None:
    """The migration names the schema that was asked for; where fairqueue is in another, that one is named."""
    found = bare_cli("stats", "--schema", "jobs", "--json")
    assert found.error["remedy"] == "op.create_fairqueue(version=1, schema='jobs')"

    install_into(empty)
    found = bare_cli("stats", "--schema", "jobs", "--json")
    assert (found.status, found.error["remedy"]) == (4, None)
    assert "not installed in schema 'jobs'" in found.err
    assert "but in 'public'; name it with --schema" in found.err


def test_outdated(cli: Cli, database: Database) -> None:
    """On an older version than is needed every command but doctor gives the migration to paste, and status 4. One that
    this library does not know is served: databases are migrated before code is rolled out.
    """
    say_version(database, 0)
    for command in COMMANDS:
        found = cli(*command, "--json")
        assert (found.status, found.error["kind"]) == (4, "schema_outdated"), command
        assert found.error["remedy"] == "op.upgrade_fairqueue(0, 1)"
        assert "holds version 0 of fairqueue's schema, and this library needs version 1" in found.err
    named = cli("stats", "--json", "--schema", "public")
    assert named.error["remedy"] == "op.upgrade_fairqueue(0, 1, schema='public')"
    say_version(database, 99)
    assert cli("stats", "--json").status == 0


@contextmanager
def role(database: Database, name: str, *grants: str) -> Iterator[str]:
    """A role with these rights and all functions, and the URL that logs in as it does; it leaves nothing behind."""
    database.execute(f'create role "{name}"')
    database.execute(f'grant execute on all functions in schema public to "{name}"')
    for grant in grants:
        database.execute(f'grant {grant} to "{name}"')
    try:
        url = database.url.update_query_dict({"options": f"-crole={name}"})
        yield url.render_as_string(hide_password=False)
    finally:
        database.execute(f'drop owned by "{name}"')
        database.execute(f'drop role "{name}"')


def test_no_privilege_on_the_schema(bare_cli: Cli, database: Database) -> None:
    """A role that may not use the schema is told the grant, with status 5."""
    database.execute("revoke usage on schema public from public")
    with role(database, f"{database.name}_guest") as url:
        found = bare_cli("stats", "--schema", "public", "--json", "--database-url", url)

    assert (found.status, found.error["kind"]) == (5, "privilege_missing")
    assert found.error["remedy"] == (
        f"op.grant_fairqueue('{database.name}_guest', 'operator', schema='public') in a migration"
    )


def test_a_function_that_is_gone(cli: Cli, database: Database) -> None:
    """A damaged installation is told as such, and as nothing else."""
    database.execute("drop function fq_stats(text)")
    database.execute("insert into fq_queue (name) values ('documents')")

    found = cli("stats", "--json")
    assert (found.status, found.error["kind"]) == (4, "schema_mismatch")


def test_a_statement_that_times_out(bare_cli: Cli, database: Database, engine: Engine) -> None:
    """What the server gives up is told with its SQLSTATE, and status 5."""
    enqueue(engine, "a")
    url = database.url.update_query_dict({"options": "-c lock_timeout=20ms"}).render_as_string(hide_password=False)
    holding = create_engine(database.url, poolclass=NullPool)
    with holding.begin() as connection:
        connection.exec_driver_sql("lock table fq_queue in access exclusive mode")
        found = bare_cli("pause", "--queue", "documents", "--json", "--database-url", url)

    assert (found.status, found.error["kind"]) == (5, "refused")
    assert "(SQLSTATE 55P03)" in found.err
