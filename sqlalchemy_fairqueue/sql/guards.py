"""Blocks that look before anything is changed, and refuse with what to do.

The same text guards a script and a connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.sql.files import functions, latest_version, relations, tables, versions
from sqlalchemy_fairqueue.sql.schema import BODY, IS_UNRELEASED, block, quoted_literal

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMA_MISMATCH = "QF004"
"""SQLSTATE of a refusal: the schema does not hold what the operation needs, or holds what it would make."""

_VARIABLES = {"v_nameless": "boolean", "v_tables": "text[]", "v_taken": "text", "v_version": "integer"}

# A setting of the transaction: where the next statement does not see it, each has been committed by itself.
_PASSED = "  perform set_config('fairqueue.guard', 'passed', true);"

_SAME_TRANSACTION = """\
do {body}
begin
  if current_setting('fairqueue.guard', true) is distinct from 'passed' then
    raise exception using errcode = 'QF004', message = {refusal};
  end if;
end
{body}"""

_READ_COMMITTED = """\
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception using errcode = 'QF003',
      message = format('a step between versions must see what others have committed, and the transaction is %s; '
        'run the migration in READ COMMITTED: in env.py, connect with '
        'connectable.execution_options(isolation_level="READ COMMITTED")',
        upper(current_setting('transaction_isolation')));
  end if;
"""

_NO_SCHEMA = """\
  if v_schema is null then
    raise exception using errcode = 'QF004',
      message = format('the connection has no default schema: its search_path (%s) names none that exists; '
        'create the schema before, or name one with schema=', v_path);
  end if;
  if not exists (select from pg_namespace n where n.nspname = v_schema) then
    raise exception using errcode = 'QF004',
      message = format('schema %I does not exist; '
        'create it before: op.execute(sqlalchemy.schema.CreateSchema(...))', v_schema);
  end if;"""

# A role that drops fq_version() leaves an installation that does not say what it is.
_LOOK = """\
  v_nameless := to_regprocedure(format('%I.fq_version()', v_schema)) is null
    and to_regclass(format('%I.fq_message', v_schema)) is not null
    and exists (
      select from pg_proc p
      join pg_namespace n on n.oid = p.pronamespace
      where n.nspname = v_schema
        and p.proname = any (array['fq_enqueue', 'fq_dequeue', 'fq_complete'])
    );
  if (select p.prorettype from pg_proc p where p.oid = to_regprocedure(format('%I.fq_version()', v_schema)))
    = 'int4'::regtype
  then
    raise exception using errcode = 'QF004',
      message = format('schema %I {unreleased}; '
        'put op.create_fairqueue() into an Alembic migration and run it', v_schema);
  end if;""".replace("{unreleased}", IS_UNRELEASED)

_NAMELESS = """\
  if v_nameless then
    raise exception using errcode = 'QF004',
      message = format('schema %I holds fairqueue, and its function fq_version() is gone; '
        'bring it back with op.repair_fairqueue(), given the version that was installed', v_schema);
  end if;
"""

_TAKEN = """\
  select string_agg(distinct taken.name, ', ' order by taken.name) into v_taken
  from (
    select c.relname::text, c.relnamespace from pg_class c
    union all
    select t.typname::text, t.typnamespace from pg_type t
    union all
    select p.proname::text, p.pronamespace from pg_proc p
  ) taken(name, namespace)
  join pg_namespace n on n.oid = taken.namespace
  where n.nspname = v_schema
    and taken.name = any (array[{names}]);
  if v_taken is not null then
    raise exception using errcode = 'QF004',
      message = format('schema %I holds objects that are not fairqueue''s under names that it needs: %s; '
        'rename them, or install fairqueue in another schema', v_schema, v_taken);
  end if;"""

_INSTALL = (
    _NAMELESS
    + """\
  if to_regprocedure(format('%I.fq_version()', v_schema)) is not null
    and to_regclass(format('%I.fq_message', v_schema)) is not null then
    raise exception using errcode = 'QF004',
      message = format('fairqueue is installed in schema %I already; '
        'take this op.create_fairqueue() away, or name another schema', v_schema);
  end if;
{taken}"""
)

_INSTALLED = (
    _NAMELESS
    + """\
  if to_regprocedure(format('%I.fq_version()', v_schema)) is null then
    raise exception using errcode = 'QF004',
      message = format('fairqueue is not installed in schema %I; '
        'name the schema that op.create_fairqueue() was given', v_schema);
  end if;
  execute format('select %I.fq_version()', v_schema) into v_version;
  if v_version <> {version} then
    raise exception using errcode = 'QF004',
      message = format('schema %I holds fairqueue version %s, not {version}; '
        'bring it to version {version} first', v_schema, v_version);
  end if;"""
)

_REPAIRABLE = """\
  if v_nameless then
    select array_agg(c.relname::text order by c.relname collate "C") into v_tables
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = v_schema
      and c.relkind in ('r', 'p')
      and c.relname = any (array[{known}]);
    if v_tables <> array[{tables}] then
      raise exception using errcode = 'QF004',
        message = format('schema %I holds fairqueue without its function fq_version(), and the tables %s, which are '
          'not those of version {version}; name the version that was installed',
          v_schema, array_to_string(v_tables, ', '));
    end if;
  else
{installed}
  end if;"""


_GRANTABLE = (
    _NAMELESS
    + """\
  if to_regprocedure(format('%I.fq_version()', v_schema)) is null then
    raise exception using errcode = 'QF004',
      message = format('fairqueue is not installed in schema %I; '
        'name the schema that op.create_fairqueue() was given', v_schema);
  end if;
  execute format('select %I.fq_version()', v_schema) into v_version;
  if v_version <> all (array[{versions}]) then
    raise exception using errcode = 'QF004',
      message = format('schema %I holds fairqueue version %s, which this library does not know; '
        'upgrade the library', v_schema, v_version);
  end if;"""
)


def install_guard(version: int, schema: str | None) -> str:
    """Return a block that raises unless the schema exists and every name that the version needs in it is free."""
    return _block(_INSTALL.replace("{taken}", _taken(_names(version))), schema)


def installed_guard(version: int, schema: str | None) -> str:
    """Return a block that raises unless the schema holds exactly this version."""
    return _block(_INSTALLED.replace("{version}", str(version)), schema)


def repair_guard(version: int, schema: str | None) -> str:
    """Return a block that raises unless the schema holds this version, or its tables without ``fq_version()``."""
    checks = _REPAIRABLE.replace("{known}", _array(tables(latest_version()))).replace(
        "{tables}", _array(tables(version))
    )
    return _block(checks.replace("{installed}", _INSTALLED).replace("{version}", str(version)), schema)


def grants_guard(schema: str | None) -> str:
    """Return a block that raises unless the schema holds a version that this library knows."""
    return _block(_GRANTABLE.replace("{versions}", ", ".join(map(str, versions()))), schema)


def change_guard(before: int, after: int, schema: str | None) -> str:
    """Return a block that raises unless the schema holds one version, and the names that the other adds are free.

    And unless the transaction sees what others commit: an installation has nothing yet, and needs no such transaction.
    """
    there = set(_names(before))
    added = [name for name in _names(after) if name not in there]
    checks = [_READ_COMMITTED, _INSTALLED.replace("{version}", str(before))] + ([_taken(added)] if added else [])
    return _block("\n".join(checks), schema)


def same_transaction_guard(refusal: str) -> str:
    """Return a block that raises unless it runs in the transaction of the guard before it."""
    return _SAME_TRANSACTION.format(body=BODY, refusal=quoted_literal(refusal))


def _names(version: int) -> tuple[str, ...]:
    return (*relations(version), *functions(version))


def _taken(names: Iterable[str]) -> str:
    return _TAKEN.replace("{names}", _array(names))


def _array(names: Iterable[str]) -> str:
    return ", ".join(quoted_literal(name) for name in sorted(names))


def _block(checks: str, schema: str | None) -> str:
    return block(f"{_PASSED}\n{_NO_SCHEMA}\n{_LOOK}\n{checks}", schema, _VARIABLES)
