"""The rights of every kind of work, function by function and table by table: those of roles.toml, and nothing more."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue.sql import KINDS, function_roles, functions, latest_version, tables
from tests.fixtures.database import Database
from tests.roles.conftest import SCHEMA, Actor, Installation

pytestmark = pytest.mark.installed

_TABLE_VERBS = ("select", "insert", "update", "delete", "truncate", "references", "trigger")
_SEQUENCE_VERBS = ("usage", "select", "update")
_DENIED = "42501"

_FUNCTIONS = """
select p.proname as name, p.oid::regprocedure::text as signature,
  format('select %s(%s)', p.oid::regproc,
    (select string_agg(format('null::%s', format_type(t, null)), ', ' order by i)
     from unnest(p.proargtypes) with ordinality u(t, i))) as call
from pg_proc p
where p.pronamespace = cast(:schema as regnamespace)
order by p.proname
"""
_RELATIONS = """
select c.relname as name, c.relkind::text as kind, format('%I.%I', n.nspname, c.relname) as quoted
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where n.nspname = :schema
  and c.relkind in ('r', 'p', 'S')
order by c.relname
"""


def test_the_list_is_complete() -> None:
    """roles.toml names every function of the newest version once, by name, with known kinds in their order."""
    listed = function_roles(latest_version())
    assert set(listed) == set(functions(latest_version()))
    assert list(listed) == sorted(listed)
    for name, kinds in listed.items():
        assert list(kinds) == [kind for kind in KINDS if kind in kinds], name


def test_what_is_granted_runs_with_the_owners_rights() -> None:
    """A function that a role may execute is a definer function, unless it reads no table and calls nothing."""
    texts, listed = functions(latest_version()), function_roles(latest_version())
    plain = {name for name, kinds in listed.items() if kinds and "\nsecurity definer\n" not in texts[name]}
    assert plain == {"fq_now", "fq_version"}


def refused(connection: Connection, statement: str) -> bool:
    """Whether a statement is refused for want of a privilege; whatever else becomes of it is undone."""
    with connection.begin() as transaction:
        try:
            connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
        except DBAPIError as error:
            transaction.rollback()
            return getattr(error.orig, "sqlstate", None) == _DENIED
        transaction.rollback()
    return False


def everything(database: Database) -> Iterator[tuple[str, str, str]]:
    """Each relation of the installation, its kind, and its quoted name."""
    for row in database.rows(_RELATIONS, schema=SCHEMA):
        yield row.name, row.kind, row.quoted


@pytest.mark.parametrize("kind", [*KINDS, None], ids=[*KINDS, "nothing"])
def test_matrix(jobs: Installation, kind: str | None) -> None:
    """A role may execute what roles.toml says for its kind of work, and has no right on any table or sequence."""
    with jobs.owner.begin() as connection:
        connection.exec_driver_sql(f"select {SCHEMA}.fq_keep_history(1)")
    database, actor = jobs.database, jobs.role("actor", *([kind] if kind else []))
    allowed = {name for name, kinds in function_roles(latest_version()).items() if kind in kinds}

    found = database.rows(_FUNCTIONS, schema=SCHEMA)
    assert {row.name for row in found} == set(functions(latest_version()))
    with actor.engine.connect() as connection:
        may = {row.name for row in found if not refused(connection, row.call)}
    assert may == allowed
    held = {
        row.name
        for row in found
        if database.value("select has_function_privilege(:role, :it, 'execute')", role=actor.name, it=row.signature)
    }
    # Without usage of the schema nothing else counts.
    assert held == allowed
    assert_no_rights_on_relations(database, actor)
    assert_no_statement_on_tables(database, actor)
    schema = [
        privilege
        for privilege in ("usage", "create")
        if database.value(f"select has_schema_privilege(:role, '{SCHEMA}', '{privilege}')", role=actor.name)
    ]
    assert schema == (["usage"] if kind else [])


def assert_no_rights_on_relations(database: Database, actor: Actor) -> None:
    """The catalog gives the role no privilege on a table, a column or a sequence."""
    names = {name for name, _, _ in everything(database)}
    assert set(tables(latest_version())) < names
    assert len([name for name in names if name.startswith("fq_history_p")]) == 2
    maintain = ["maintain"] if database.value("select current_setting('server_version_num')::int >= 170000") else []
    for _, kind, quoted in everything(database):
        verbs = _SEQUENCE_VERBS if kind == "S" else (*_TABLE_VERBS, *maintain)
        test = "has_sequence_privilege" if kind == "S" else "has_table_privilege"
        held = [
            verb for verb in verbs if database.value(f"select {test}(:role, :it, '{verb}')", role=actor.name, it=quoted)
        ]
        assert held == [], quoted
        if kind != "S":
            columns = "select has_any_column_privilege(:role, :it, 'select, insert, update, references')"
            assert not database.value(columns, role=actor.name, it=quoted), quoted


def assert_no_statement_on_tables(database: Database, actor: Actor) -> None:
    """Statements of the role on tables, and for tables of its own in the schema, are refused."""
    with actor.engine.connect() as connection:
        for _, kind, quoted in everything(database):
            if kind == "S":
                statements = [f"select nextval('{quoted}')", f"select last_value from {quoted}"]
            else:
                statements = [
                    f"select 1 from {quoted}",
                    f"insert into {quoted} default values",
                    f"delete from {quoted}",
                    f"truncate {quoted}",
                    f"lock table {quoted} in access exclusive mode",
                    f"drop table {quoted}",
                    f"copy {quoted} to stdout",
                ]
            for statement in statements:
                assert refused(connection, statement), statement
        for statement in (
            f"create table {SCHEMA}.mine (id int)",
            f"create function {SCHEMA}.fq_enqueue() returns int language sql as 'select 1'",
            f"create table {SCHEMA}_stages.mine (id int)",
            f"drop schema {SCHEMA} cascade",
        ):
            assert refused(connection, statement), statement


def test_kinds_add_up(jobs: Installation) -> None:
    """A role with two kinds of work may do both; a member of a role may do what the role may."""
    both, member = jobs.role("both", "producer", "consumer"), jobs.role("member")
    jobs.database.execute(f'grant "{both.name}" to "{member.name}"')
    allowed = {
        name for name, kinds in function_roles(latest_version()).items() if {"producer", "consumer"} & set(kinds)
    }
    for actor in (both, member):
        with actor.engine.connect() as connection:
            found = jobs.database.rows(_FUNCTIONS, schema=SCHEMA)
            assert {row.name for row in found if not refused(connection, row.call)} == allowed
