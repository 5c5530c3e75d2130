"""find_drift: what was changed besides the migrations, by name."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateSchema

from sqlalchemy_fairqueue.sql import Difference, assert_no_drift, catalog, find_drift
from sqlalchemy_fairqueue.sql.catalog import installed_version
from sqlalchemy_fairqueue.sql.files import folder, versions
from sqlalchemy_fairqueue.sql.schema import quoted
from tests.alembic.conftest import VERSIONS
from tests.alembic.freezing import frozen
from tests.fixtures.database import Database, MakeDatabase, install

pytestmark = pytest.mark.installed

VERSION_1 = "function fq_version() returns smallint immutable parallel safe language sql as 'select 1'"

# Any function that triggers can call.
_EACH_ROW = "for each row execute function suppress_redundant_updates_trigger()"

CHANGES = {
    "alter function fq_purge_dead reset jit": "function fq_purge_dead is changed: settings from ",
    "drop table fq_dead_letter": "table fq_dead_letter is missing",
    "alter table fq_signal reset (autovacuum_vacuum_threshold)": "table fq_signal is changed: options from ",
    "alter table fq_channel_state replica identity default": "table fq_channel_state is changed: replica identity ",
    "alter table fq_message alter kind drop not null": "column fq_message.kind is changed: not null from yes to none",
    "alter table fq_load rename source to origin": "column fq_load.source is missing",
    "alter table fq_message add column tenant int": "column fq_message.tenant is unexpected",
    "drop index fq_message_lease_ix": "index fq_message_lease_ix is missing",
    "create index mine on fq_message (kind)": "index mine is unexpected",
    "alter table fq_channel drop constraint fq_channel_name_check": (
        "constraint fq_channel.fq_channel_name_check is missing"
    ),
    "alter table fq_lease add constraint mine check (id > 0)": "constraint fq_lease.mine is unexpected",
    # On the partitions too, which are its table's affair.
    f"create trigger mine after insert on fq_history {_EACH_ROW}": "trigger fq_history.mine is unexpected",
    "create rule mine as on delete to fq_lease do instead nothing": "rule fq_lease.mine is unexpected",
    # It is fired by no ordinary session any more.
    "alter table fq_message enable replica trigger fq_message_ended": "trigger fq_message.fq_message_ended is changed",
    "alter table fq_size owner to pg_monitor": "table fq_size is changed: another owner than fq_message",
    "create table mine () inherits (fq_message)": "table fq_message is changed: inherited by from none to mine",
    "alter table fq_signal alter id set cache 32": "column fq_signal.id is changed: sequence from none to cache 32",
    "alter sequence fq_history_id_seq maxvalue 1000000000 cycle": (
        "column fq_history.id is changed: sequence from none to cycle, maxvalue 1000000000"
    ),
}


def drift(database: Database, schema: str | None = None) -> list[Difference]:
    """The drift of a database."""
    engine = create_engine(database.url, poolclass=NullPool)
    with engine.connect() as connection:
        return find_drift(connection, schema)


@pytest.fixture
def latest(make_database: MakeDatabase) -> Iterator[Connection]:
    """A connection to where the newest version is installed; what the test does is not committed."""
    engine = create_engine(make_database(version=versions()[-1]).url, poolclass=NullPool)
    with engine.connect() as connection:
        yield connection


@pytest.mark.parametrize("version", VERSIONS)
def test_frozen_catalogs(make_database: MakeDatabase, version: int) -> None:
    """What each version should look like is what installing it makes, on this server too."""
    with make_database(version=version).own.connect() as connection:
        found = catalog.read_catalog(connection, "public")
        assert installed_version(connection) == version
        assert_no_drift(connection)
    file = folder(version) / "catalog.json"
    assert frozen(found, version).splitlines() == file.read_text("utf-8").splitlines(), (
        "run python -m tests.alembic.freezing"
    )


@pytest.mark.parametrize("first", range(3))
def test_change_is_named(latest: Connection, first: int) -> None:
    """Whatever is changed by hand is found by its name, and nothing else is."""
    changes = list(CHANGES.items())[first::3]
    for change, _ in changes:
        latest.execute(text(change))
    found = [str(one) for one in find_drift(latest)]
    for change, name in changes:
        assert any(one.startswith(name) for one in found), (change, found)
    assert len(found) == len(changes) + sum("rename" in change for change, _ in changes), found


def test_assertion_lists_what_differs(latest: Connection) -> None:
    """The helper for users' tests names every difference, apart from those that are meant to be there."""
    assert_no_drift(latest)
    latest.execute(text("alter table fq_message add column tenant int"))
    latest.execute(text("drop index fq_message_lease_ix"))
    with pytest.raises(AssertionError) as error:
        assert_no_drift(latest, allowed=["column fq_message.tenant"])
    assert str(error.value).splitlines() == [
        "the installation differs from what its version has:",
        "- index fq_message_lease_ix is missing",
    ]


def test_settings_of_the_session(empty_database: Database) -> None:
    """How names and backslashes are written is a setting, as in pg_dump --quote-all-identifiers: it makes no
    difference, to what it makes and what it finds, and is left as it was.
    """
    settings = {"quote_all_identifiers": "on", "standard_conforming_strings": "off"}
    engine = create_engine(empty_database.url, poolclass=NullPool)
    for isolation in ("READ COMMITTED", "AUTOCOMMIT"):
        with engine.connect().execution_options(isolation_level=isolation) as connection:
            for name, value in settings.items():
                connection.exec_driver_sql(f"set {name} = {value}")
            if isolation == "READ COMMITTED":
                install(connection, version=versions()[-1])
            assert [str(one) for one in find_drift(connection)] == []
            assert {name: connection.exec_driver_sql(f"show {name}").scalar() for name in settings} == settings
            connection.commit()


def test_triggers_and_rules_by_their_definitions(latest: Connection, schema: str | None) -> None:
    """What a trigger or a rule does is told without its schema's name, and so is that it is switched off."""
    name = schema or "apps"
    latest.execute(CreateSchema(name))
    install(latest, schema=name, version=versions()[-1])
    own = quoted(name)
    for statement in (
        f"create function {own}.audit() returns trigger language plpgsql as 'begin return new; end'",
        f"create trigger mine after insert on {own}.fq_message for each row execute function {own}.audit('x')",
        f"alter table {own}.fq_message disable trigger mine",
        f"create rule mine as on delete to {own}.fq_lease do instead nothing",
        f"alter table {own}.fq_lease disable rule mine",
    ):
        latest.exec_driver_sql(statement, execution_options={"no_parameters": True})
    told = {str(one) for one in find_drift(latest, name)}
    assert told == {"trigger fq_message.mine is unexpected", "rule fq_lease.mine is unexpected"}
    found = catalog.read_catalog(latest, name)
    trigger = "CREATE TRIGGER mine AFTER INSERT ON fq_message FOR EACH ROW EXECUTE FUNCTION audit('x')"
    assert found["trigger fq_message.mine"] == {"definition": trigger, "disabled": "yes"}
    rule = "CREATE RULE mine AS\n    ON DELETE TO fq_lease DO INSTEAD NOTHING;"
    assert found["rule fq_lease.mine"] == {"definition": rule, "disabled": "yes"}


def test_what_is_expected(latest: Connection) -> None:
    """A table of the user's that points at one of ours is no change, though PostgreSQL checks it by triggers, nor are
    days of the history and a table with our prefix; the loss of the default partition is one, and so is what another
    version brought.
    """
    latest.execute(text("create table fq_mine (message_id bigint references fq_message on delete cascade)"))
    latest.execute(text("create table fq_history_p20260101 partition of fq_history for values from (0) to (1)"))
    assert find_drift(latest) == []
    latest.execute(text("drop table fq_history_default"))
    assert [str(one) for one in find_drift(latest)] == [
        "table fq_history is changed: default partition from fq_history_default to none"
    ]
    latest.execute(text(f"create or replace {VERSION_1}"))
    assert Difference("function", "fq_add_note(bigint[], text)", "unexpected") in find_drift(latest)


def test_schema_of_somebody_else(latest: Connection) -> None:
    """A schema that the role may not use can be looked into, to find that nothing is installed there."""
    latest.execute(text("create role nobody_here"))
    latest.execute(text("create schema theirs"))
    latest.execute(text("set local role nobody_here"))
    assert installed_version(latest, "theirs") is None


def test_not_installed(make_database: MakeDatabase) -> None:
    """Where nothing is installed, or a version that is not known, that is the one difference."""
    database = make_database(installed=False)
    assert [str(one) for one in drift(database, "apps")] == [
        "installation fairqueue is missing: there is no fq_version() in schema 'apps'"
    ]
    database.execute("create function fq_version() returns smallint language sql as 'select 99'")
    known = ", ".join(str(version) for version in versions())
    assert [str(one) for one in drift(database)] == [
        f"installation fairqueue is unexpected: it is version 99, and this library knows {known}"
    ]
