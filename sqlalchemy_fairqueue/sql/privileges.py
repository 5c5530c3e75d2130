"""Privileges on functions that have to be dropped and made again: written down before, given back after."""

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

# One that was made again has what the database's default privileges say by now, which nobody has decided about it.
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


def note_privileges(functions: Iterable[str], schema: str | None) -> str:
    """A block that writes down who may call the functions."""
    return block(_NOTE.format(grants=_GRANTS, names=", ".join(map(quoted_literal, functions))), schema)


def give_back_privileges(schema: str | None) -> str:
    """A block that grants what was written down in the transaction, and no more."""
    return block(_GIVE_BACK.format(grants=_GRANTS), schema, {"v_function": "record", "v_grant": "record"})
