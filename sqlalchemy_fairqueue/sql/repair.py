"""The statements that bring the functions and triggers of a version back after somebody changed them by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.sql.catalog import expected_catalog
from sqlalchemy_fairqueue.sql.files import functions, triggers
from sqlalchemy_fairqueue.sql.grants import renew_grants
from sqlalchemy_fairqueue.sql.guards import repair_guard
from sqlalchemy_fairqueue.sql.privileges import close_functions, give_back_privileges, note_privileges
from sqlalchemy_fairqueue.sql.schema import QUALIFIER, block, in_schema, quoted_literal
from sqlalchemy_fairqueue.sql.stages import make_stage_schema
from sqlalchemy_fairqueue.sql.statements import in_order, replacing

if TYPE_CHECKING:
    from collections.abc import Iterator

# Definitions are compared as texts.
_PLAIN = """\
  perform set_config('quote_all_identifiers', 'off', true);
{body}
  perform set_config('quote_all_identifiers', v_quotes, true);"""

_QUOTES = {"v_quotes": "text := current_setting('quote_all_identifiers')"}

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

# A function that is dropped with cascade takes its trigger along. Tables whose triggers are right are not locked, and
# the lock of another one is asked for as a step asks: behind vacuums, then in tries, so that no transactions queue
# behind a long one.
_TRIGGERS = """\
  for v_trigger in
    select c.oid::regclass::text as table, e.name, e.make, t.oid is not null as is_there
    from (values
{expected}
    ) e(relation, name, definition, make)
    join pg_namespace n on n.nspname = v_schema
    join pg_class c on c.relnamespace = n.oid and c.relname = e.relation
    left join pg_trigger t on t.tgrelid = c.oid and t.tgname = e.name
    where t.oid is null
      or t.tgenabled <> 'O'
      or replace(replace(pg_get_triggerdef(t.oid),
        format(' ON %I.', v_schema), ' ON '), format(' EXECUTE FUNCTION %I.', v_schema), ' EXECUTE FUNCTION ')
        <> e.definition
    order by e.relation, e.name
  loop
    perform set_config('lock_timeout', '60s', true);
    execute format('lock table %s in share update exclusive mode', v_trigger.table);
    for v_try in 1..300 loop
      begin
        perform set_config('lock_timeout', '50ms', true);
        execute format('lock table %s in %s mode', v_trigger.table,
          case when v_trigger.is_there then 'access exclusive' else 'share row exclusive' end);
        exit;
      exception when lock_not_available then
        if v_try = 300 then
          raise exception 'table % was in use at each of % tries to bring back its trigger %',
              v_trigger.table, v_try, v_trigger.name
            using errcode = '55P03',
              hint = 'end the transactions that have written to it (pg_stat_activity names them), then repair again';
        end if;
        perform pg_sleep(0.2);
      end;
    end loop;
    perform set_config('lock_timeout', v_timeout, true);
    if v_trigger.is_there then
      execute format('drop trigger %I on %s', v_trigger.name, v_trigger.table);
    end if;
    execute replace(v_trigger.make, {qualifier}, '"' || replace(v_schema, '"', '""') || '".fq_');
  end loop;"""
_TRIGGER_VARIABLES = {"v_trigger": "record", "v_timeout": "text := current_setting('lock_timeout')"}


def repair_statements(version: int, schema: str | None) -> Iterator[str]:
    """Return statements that make every function, every trigger and the stages' schema anew, as the version has them.

    Columns, indexes and constraints are left alone.

    Privileges are kept, except that PUBLIC may execute no function afterwards. Roles get again what their grants stand
    for.

    Raises:
        ValueError: The version is not known, or PostgreSQL cannot keep the schema's name.
    """
    yield repair_guard(version, schema)
    wanted = functions(version)
    yield note_privileges(wanted, schema)
    clear = _PLAIN.format(body=_CLEAR.format(expected=_expected(version)))
    yield block(clear, schema, {"v_function": "regprocedure"} | _QUOTES)
    for function in in_order(wanted).values():
        yield in_schema(replacing(function), schema)
    yield give_back_privileges(schema)
    yield close_functions(wanted, schema)
    if expected := _expected_triggers(version):
        restore = _TRIGGERS.format(expected=expected, qualifier=quoted_literal(QUALIFIER))
        yield block(_PLAIN.format(body=restore), schema, _TRIGGER_VARIABLES | _QUOTES)
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


def _expected_triggers(version: int) -> str:
    made = {name: text for step in range(1, version + 1) for name, text in triggers(step).items()}
    rows = []
    for key, facts in expected_catalog(version).items():
        if key.startswith("trigger "):
            relation, _, name = key.removeprefix("trigger ").partition(".")
            texts = (relation, name, facts["definition"], made[name])
            rows.append(f"      ({', '.join(quoted_literal(one) for one in texts)})")
    return ",\n".join(rows)
