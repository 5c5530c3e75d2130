"""Schema of the staging tables of bulk loads: made and dropped with the installation.

Loaders would otherwise need the right to create in the schema of the queues, where they could add functions of their
own.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy_fairqueue.sql.schema import block, quoted_literal

NAME: Final = "fq_stage_[0-9]{1,18}_[0-9a-f]{12}"
"""Names of stages, as a regular expression of Python's and of PostgreSQL's. `fq_make_stage` makes the names."""
COLUMNS: Final = frozenset({"attempt", "channel", "kind", "content"})
"""Columns that a table of that name has if it is a stage, and not the user's."""
SCHEMA_NAME: Final = (
    "case when octet_length({0}) <= 56 then {0} || '_stages' "
    "else left({0}, 11) || '_' || left(md5({0}), 8) || '_stages' end"
)
"""SQL for the name of the schema, to be formatted with the name of the installation's: as ``fq_stage_schema()``."""

_VARIABLES = {"v_stages": "text", "v_owner": "text", "v_stage": "record"}

_MAKE = """\
  v_stages := {name};
  select pg_get_userbyid(c.relowner) into v_owner
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = v_schema
    and c.relname = 'fq_message';
  begin
    if not exists (select from pg_namespace n where n.nspname = v_stages) then
      execute format('create schema %I authorization %I', v_stages, v_owner);
    end if;
    if not has_schema_privilege('public', v_stages, 'usage') then
      execute format('grant usage on schema %I to public', v_stages);
    end if;
  exception when insufficient_privilege then
    raise warning 'bulk loads need a schema % of role %, and role % may not make it', v_stages, v_owner, current_user
      using hint = format('let a role that may run: create schema %I authorization %I; '
        'grant usage on schema %I to public', v_stages, v_owner, v_stages);
  end;"""

_DROP = """\
  v_stages := {schema};
  for v_stage in
    select format('%I.%I', n.nspname, c.relname) as name
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = v_stages
      and c.relkind = 'r'
      and c.relpersistence = 'u'
      and c.relname ~ {name}
      and array(select a.attname::text from pg_attribute a where a.attrelid = c.oid) @> {columns}
      and (pg_has_role(c.relowner, 'usage') or pg_has_role(n.nspowner, 'usage'))
    order by c.relname collate "C"
  loop
    execute 'drop table ' || v_stage.name;
  end loop;
  if exists (select from pg_namespace n where n.nspname = v_stages) then
    begin
      execute format('drop schema %I', v_stages);
    exception
      when dependent_objects_still_exist then
        raise warning 'schema % holds objects that are not fairqueue''s and stays', v_stages;
      when insufficient_privilege then
        raise warning 'schema % belongs to another role and stays; let that role drop it', v_stages;
    end;
  end if;"""


def make_stage_schema(schema: str | None) -> str:
    """Return a block that makes the schema of the stages if it is missing, and warns if the role may not."""
    return block(_MAKE.format(name=SCHEMA_NAME.format("v_schema")), schema, _VARIABLES)


def drop_stage_schema(schema: str | None) -> str:
    """Return a block that drops every staging table, and their schema unless it holds something else."""
    columns = f"array[{', '.join(quoted_literal(column) for column in sorted(COLUMNS))}]"
    name = SCHEMA_NAME.format("v_schema")
    return block(_DROP.format(schema=name, name=quoted_literal(f"^{NAME}$"), columns=columns), schema, _VARIABLES)
