"""The rights of every kind of work, function by function and table by table: those of roles.toml, and nothing more."""

from collections.abc import Sequence

import pytest
from sqlalchemy import Connection, text

from sqlalchemy_fairqueue.sql.files import functions, latest_version, tables
from sqlalchemy_fairqueue.sql.grants import KINDS, function_roles
from tests.fixtures.database import Database
from tests.roles.conftest import SCHEMA, Actor, Installation

pytestmark = pytest.mark.installed

_TABLE_VERBS = ("select", "insert", "update", "delete", "truncate", "references", "trigger")
_SEQUENCE_VERBS = ("usage", "select", "update")
# Each statement in a subtransaction that is undone.
_REFUSED = """
create function pg_temp.refused(statements text[]) returns text[] language plpgsql as $$
declare
  statement text;
  refused text[] = '{}';
begin
  foreach statement in array statements loop
    begin
      execute statement;
      raise 'undone';
    exception
      when insufficient_privilege then refused := refused || statement;
      when others then null;
    end;
  end loop;
  return refused;
end $$
"""

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


def refused(connection: Connection, statements: Sequence[str]) -> set[str]:
    """The statements that are refused for want of a privilege; whatever else becomes of them is undone."""
    with connection.begin() as transaction:
        connection.exec_driver_sql(_REFUSED)
        found = connection.execute(text("select pg_temp.refused(:statements)"), {"statements": list(statements)})
        names: list[str] = found.scalar_one()
        transaction.rollback()
    return set(names)


@pytest.mark.parametrize("kind", [*KINDS, None], ids=[*KINDS, "nothing"])
def test_matrix(jobs: Installation, kind: str | None) -> None:
    """A role may execute what roles.toml says for its kind of work, and has no right on any table or sequence."""
    with jobs.owner.begin() as connection:
        connection.exec_driver_sql(f"select {SCHEMA}.fq_keep_history(1)")
    database, actor = jobs.database, jobs.role("actor", *([kind] if kind else []))
    allowed = {name for name, kinds in function_roles(latest_version()).items() if kind in kinds}

    assert may_execute(database, actor) == allowed
    held = database.rows(
        "select p.proname from pg_proc p where p.pronamespace = cast(:schema as regnamespace)"
        " and has_function_privilege(:role, p.oid, 'execute')",
        schema=SCHEMA,
        role=actor.name,
    )
    # Without usage of the schema nothing else counts.
    assert {row.proname for row in held} == allowed
    assert_no_rights_on_relations(database, actor)
    assert_no_statement_on_tables(database, actor)
    schema = [
        privilege
        for privilege in ("usage", "create")
        if database.value(f"select has_schema_privilege(:role, '{SCHEMA}', '{privilege}')", role=actor.name)
    ]
    assert schema == (["usage"] if kind else [])


def may_execute(database: Database, actor: Actor) -> set[str]:
    """The functions that a role calls without being refused."""
    calls = {row.call: row.name for row in database.rows(_FUNCTIONS, schema=SCHEMA)}
    assert set(calls.values()) == set(functions(latest_version()))
    with actor.engine.connect() as connection:
        return set(calls.values()) - {calls[call] for call in refused(connection, list(calls))}


def assert_no_rights_on_relations(database: Database, actor: Actor) -> None:
    """The catalog gives the role no privilege on a table, a column or a sequence."""
    names = {row.name for row in database.rows(_RELATIONS, schema=SCHEMA)}
    assert set(tables(latest_version())) < names
    assert len([name for name in names if name.startswith("fq_history_p")]) == 2
    maintain = ["maintain"] if database.value("select current_setting('server_version_num')::int >= 170000") else []
    held = database.rows(
        "select c.relname, v.verb from pg_class c cross join lateral unnest("
        "case c.relkind when 'S' then cast(:sequence as text[]) else cast(:table as text[]) end) v (verb)"
        " where c.relnamespace = cast(:schema as regnamespace) and c.relkind in ('r', 'p', 'S')"
        " and case c.relkind when 'S' then has_sequence_privilege(:role, c.oid, v.verb)"
        " else has_table_privilege(:role, c.oid, v.verb)"
        " or has_any_column_privilege(:role, c.oid, 'select, insert, update, references') end",
        schema=SCHEMA,
        role=actor.name,
        sequence=list(_SEQUENCE_VERBS),
        table=[*_TABLE_VERBS, *maintain],
    )
    assert held == []


def assert_no_statement_on_tables(database: Database, actor: Actor) -> None:
    """Statements of the role on tables, and for tables of its own in the schema, are refused."""
    statements = [
        f"create table {SCHEMA}.mine (id int)",
        f"create function {SCHEMA}.fq_enqueue() returns int language sql as 'select 1'",
        f"create table {SCHEMA}_stages.mine (id int)",
        f"drop schema {SCHEMA} cascade",
    ]
    for row in database.rows(_RELATIONS, schema=SCHEMA):
        quoted = row.quoted
        if row.kind == "S":
            statements += [f"select nextval('{quoted}')", f"select last_value from {quoted}"]
        else:
            statements += [
                f"select 1 from {quoted}",
                f"insert into {quoted} default values",
                f"delete from {quoted}",
                f"truncate {quoted}",
                f"lock table {quoted} in access exclusive mode",
                f"drop table {quoted}",
            ]
    with actor.engine.connect() as connection:
        assert set(statements) - refused(connection, statements) == set()


def test_kinds_add_up(jobs: Installation) -> None:
    """A role with two kinds of work may do both; a member of a role may do what the role may."""
    both, member = jobs.role("both", "producer", "consumer"), jobs.role("member")
    jobs.database.execute(f'grant "{both.name}" to "{member.name}"')
    allowed = {
        name for name, kinds in function_roles(latest_version()).items() if {"producer", "consumer"} & set(kinds)
    }
    for actor in (both, member):
        assert may_execute(jobs.database, actor) == allowed
