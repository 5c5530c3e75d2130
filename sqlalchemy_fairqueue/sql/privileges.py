"""Privileges on functions: taken from PUBLIC; those of functions that are made again are noted and given back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.sql.schema import block, quoted_literal

if TYPE_CHECKING:
    from collections.abc import Iterable

# What others than the owner may do. Where nothing was granted and nothing revoked that is PostgreSQL's own default.
_GRANTS = """(
      select coalesce(json_agg(json_build_object(
        'grantee', case a.grantee when 0 then 'public' else a.grantee::regrole::text end,
        'option', case when a.is_grantable then ' with grant option' else '' end) order by a.grantee), '[]')
      from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
      where a.grantee <> p.proowner)"""

# A setting of the transaction: no table is made for it, and it is gone when the transaction is.
_NOTE = """\
  perform set_config('fairqueue.privileges', coalesce((
    select json_agg(json_build_object('name', p.proname, 'grants', {grants}))
    from pg_proc p
    join pg_namespace n on n.oid = p.pronamespace
    where n.nspname = v_schema
      and p.proname = any (array[{names}]))::text, '[]'), true);"""

# A function that was made again has the database's default privileges, which nobody has decided about it.
_GIVE_BACK = """\
  for v_function in
    select p.oid::regprocedure as signature, noted.grants as wanted, {grants} as found
    from json_to_recordset(current_setting('fairqueue.privileges')::json) noted(name text, grants json)
    join pg_namespace n on n.nspname = v_schema
    join pg_proc p on p.pronamespace = n.oid and p.proname = noted.name
  loop
    continue when v_function.wanted::jsonb = v_function.found::jsonb;
    for v_grant in
      select g.grantee
      from json_to_recordset(v_function.found) g(grantee text)
    loop
      execute format('revoke all on function %s from %s', v_function.signature, v_grant.grantee);
    end loop;
    for v_grant in
      select g.grantee, g.option
      from json_to_recordset(v_function.wanted) g(grantee text, option text)
    loop
      execute format('grant execute on function %s to %s%s', v_function.signature, v_grant.grantee, v_grant.option);
    end loop;
  end loop;"""

# The functions run with the rights of their owner, which is that of the tables, whoever migrates.
_CLOSE = """\
  for v_made in
    select format('function %s', p.oid::regprocedure) as name, p.proowner = m.relowner as owned,
      pg_get_userbyid(m.relowner) as owner
    from pg_proc p
    join pg_namespace n on n.oid = p.pronamespace
    join pg_class m on m.relnamespace = n.oid and m.relname = 'fq_message'
    where n.nspname = v_schema
      and p.proname = any (array[{functions}])
      and pg_has_role(p.proowner, 'usage')
    order by p.proname
  loop
    execute format('revoke all on %s from public', v_made.name);
    if not v_made.owned then
      begin
        execute format('alter %s owner to %I', v_made.name, v_made.owner);
      exception when insufficient_privilege then
        raise warning '% does not belong to role %, as the tables do; let that role run this migration',
          v_made.name, v_made.owner;
      end;
    end if;
  end loop;"""


def close_functions(functions: Iterable[str], schema: str | None) -> str:
    """Return a block that revokes functions from PUBLIC, and makes the tables' owner theirs."""
    names = ", ".join(map(quoted_literal, functions))
    return block(_CLOSE.format(functions=names), schema, {"v_made": "record"})


def note_privileges(functions: Iterable[str], schema: str | None) -> str:
    """Return a block that writes down who may call the functions."""
    return block(_NOTE.format(grants=_GRANTS, names=", ".join(map(quoted_literal, functions))), schema)


def give_back_privileges(schema: str | None) -> str:
    """Return a block that grants exactly what was written down in the transaction."""
    return block(_GIVE_BACK.format(grants=_GRANTS), schema, {"v_function": "record", "v_grant": "record"})
