"""Privileges on functions that have to be dropped and made again: written down before, given back after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.sql.schema import BODY, quoted_literal, schema_expression

if TYPE_CHECKING:
    from collections.abc import Iterable

# A setting of the transaction: no table is made for it, and it is gone when the transaction is.
_NOTE = """\
do {body}
begin
  perform set_config('fairqueue.privileges', coalesce((
    select json_agg(json_build_object('name', p.proname, 'grants', (
      select coalesce(json_agg(json_build_object(
        'grantee', case a.grantee when 0 then 'public' else a.grantee::regrole::text end,
        'option', case when a.is_grantable then ' with grant option' else '' end)), '[]')
      from aclexplode(p.proacl) a
      where a.grantee <> p.proowner)))
    from pg_proc p
    join pg_namespace n on n.oid = p.pronamespace
    where n.nspname = {schema}
      and p.proname = any (array[{names}])
      and p.proacl is not null)::text, '[]'), true);
end
{body}"""

_GIVE_BACK = """\
do {body}
declare
  v_function record;
  v_grant record;
begin
  for v_function in
    select p.oid::regprocedure as signature, noted.grants
    from json_to_recordset(current_setting('fairqueue.privileges')::json) noted(name text, grants json)
    join pg_namespace n on n.nspname = {schema}
    join pg_proc p on p.pronamespace = n.oid and p.proname = noted.name
  loop
    execute format('revoke all on function %s from public', v_function.signature);
    for v_grant in
      select g.grantee, g.option
      from json_to_recordset(v_function.grants) g(grantee text, option text)
    loop
      execute format('grant execute on function %s to %s%s', v_function.signature, v_grant.grantee, v_grant.option);
    end loop;
  end loop;
end
{body}"""


def note_privileges(functions: Iterable[str], schema: str | None) -> str:
    """A block that writes down who may call the functions, where that is not PostgreSQL's default."""
    names = ", ".join(quoted_literal(name) for name in functions)
    return _NOTE.format(body=BODY, schema=schema_expression(schema), names=names)


def give_back_privileges(schema: str | None) -> str:
    """A block that grants what was written down in the transaction, and no more."""
    return _GIVE_BACK.format(body=BODY, schema=schema_expression(schema))
