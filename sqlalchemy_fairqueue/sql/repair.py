"""The statements that bring the functions of a version back after somebody changed them by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.sql.catalog import expected_catalog
from sqlalchemy_fairqueue.sql.files import functions
from sqlalchemy_fairqueue.sql.grants import renew_grants
from sqlalchemy_fairqueue.sql.guards import repair_guard
from sqlalchemy_fairqueue.sql.privileges import close_functions, give_back_privileges, note_privileges
from sqlalchemy_fairqueue.sql.schema import block, in_schema, quoted_literal
from sqlalchemy_fairqueue.sql.stages import make_stage_schema
from sqlalchemy_fairqueue.sql.statements import in_order, replacing

if TYPE_CHECKING:
    from collections.abc import Iterator

# What has one of our names and is not called as ours is cannot be replaced, and would be found beside ours.
_CLEAR = """\
  for v_function in
    select p.oid
    from pg_proc p
    join pg_namespace n on n.oid = p.pronamespace
    join (values
{expected}
    ) e(name, arguments, result) on e.name = p.proname
    where n.nspname = v_schema
      and (
        replace(pg_get_function_arguments(p.oid), quote_ident(n.nspname) || '.', ''),
        replace(pg_get_function_result(p.oid), quote_ident(n.nspname) || '.', '')
      ) is distinct from (e.arguments, e.result)
  loop
    execute format('drop function %s', v_function);
  end loop;"""


def repair_statements(version: int, schema: str | None) -> Iterator[str]:
    """Statements that make every function what the version has, and the stages' schema; tables are left alone.

    Privileges are kept, except that PUBLIC may execute no function afterwards. Roles get again what their grants stand
    for.

    Raises:
        ValueError: The version is not known, or PostgreSQL cannot keep the schema's name.
    """
    yield repair_guard(version, schema)
    wanted = functions(version)
    yield note_privileges(wanted, schema)
    yield block(_CLEAR.format(expected=_expected(version)), schema, {"v_function": "regprocedure"})
    for function in in_order(wanted).values():
        yield in_schema(replacing(function), schema)
    yield give_back_privileges(schema)
    yield close_functions(wanted, schema)
    yield make_stage_schema(schema)
    yield renew_grants(version, version, schema)


def _expected(version: int) -> str:
    rows = []
    for name, facts in expected_catalog(version).items():
        if name.startswith("function "):
            short = name.removeprefix("function ").partition("(")[0]
            texts = (short, facts.get("arguments", ""), facts["result"])
            rows.append(f"      ({', '.join(quoted_literal(one) for one in texts)})")
    return ",\n".join(rows)
