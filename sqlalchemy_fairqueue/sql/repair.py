"""The statements that bring the functions and triggers of a version back after somebody changed them by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.sql.catalog import expected_catalog
from sqlalchemy_fairqueue.sql.files import functions, triggers
from sqlalchemy_fairqueue.sql.grants import close_functions, give_back_privileges, note_privileges, renew_grants
from sqlalchemy_fairqueue.sql.guards import repair_guard
from sqlalchemy_fairqueue.sql.schema import QUALIFIER, block, in_schema, make_stage_schema, part, quoted_literal
from sqlalchemy_fairqueue.sql.statements import in_order, replacing

if TYPE_CHECKING:
    from collections.abc import Iterator

# Definitions are compared as texts.
_PLAIN = """\
  perform set_config('quote_all_identifiers', 'off', true);
{body}
  perform set_config('quote_all_identifiers', v_quotes, true);"""

_QUOTES = {"v_quotes": "text := current_setting('quote_all_identifiers')"}

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
    clear = _PLAIN.format(body=part("clear_functions", expected=_expected(version)))
    yield block(clear, schema, {"v_function": "regprocedure"} | _QUOTES)
    for function in in_order(wanted).values():
        yield in_schema(replacing(function), schema)
    yield give_back_privileges(schema)
    yield close_functions(wanted, schema)
    if expected := _expected_triggers(version):
        restore = part("restore_triggers", expected=expected, qualifier=quoted_literal(QUALIFIER))
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
