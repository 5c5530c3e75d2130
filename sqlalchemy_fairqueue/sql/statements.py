"""Writes the statements that install, upgrade, downgrade, repair or drop a version, in order.

Send them verbatim, all in one transaction; no semicolon ends them. The first one is a guard: if the operation is not
possible in the schema, the guard raises before anything is changed. The functions here raise ValueError for an unknown
version, for versions in the wrong order, and for a schema name that PostgreSQL cannot keep.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.sql.catalog import expected_catalog
from sqlalchemy_fairqueue.sql.files import (
    checked_version,
    downgrade_step,
    functions,
    new_tables,
    tables,
    triggers,
    upgrade_step,
)
from sqlalchemy_fairqueue.sql.grants import (
    close_functions,
    give_back_privileges,
    note_privileges,
    renew_grants,
    take_usage,
)
from sqlalchemy_fairqueue.sql.schema import (
    QUALIFIER,
    block,
    change_guard,
    drop_stage_schema,
    in_schema,
    install_guard,
    installed_guard,
    make_stage_schema,
    part,
    quoted_literal,
    repair_guard,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_IN_SQL = re.compile(r"^language sql\b", re.MULTILINE)
_OF_TRIGGER = re.compile(r"^returns trigger\b", re.MULTILINE)
_CALLED = re.compile(r"fairqueue\.(\w+)\(")


def install_statements(version: int, schema: str | None) -> Iterator[str]:
    texts = functions(version)
    yield install_guard(version, schema)
    for statement in (*_table_steps(0, version), *in_order(texts).values(), *_triggers(0, version).values()):
        yield in_schema(statement, schema)
    yield close_functions(texts, schema)
    yield make_stage_schema(schema)


def upgrade_statements(old: int, new: int, schema: str | None) -> Iterator[str]:
    """Return the statements that upgrade an installed version. Rows and the privileges of functions stay.

    A function whose arguments or result change is dropped and created again; another change replaces it in place. Roles
    get the functions that their grants stand for in the newer version.
    """
    if checked_version(old) >= checked_version(new):
        problem = f"an upgrade goes to a newer version, and {old} to {new} does not; give the older version first"
        raise ValueError(problem)
    yield change_guard(old, new, schema)
    for statement in _table_steps(old, new):
        yield in_schema(statement, schema)
    yield from _function_changes(old, new, schema)
    for statement in _triggers(old, new).values():
        yield in_schema(statement, schema)
    yield renew_grants(old, new, schema)


def downgrade_statements(new: int, old: int, schema: str | None) -> Iterator[str]:
    """Return the statements of a downgrade. Messages are kept; data that only the newer version can store is lost."""
    if checked_version(new) <= checked_version(old):
        problem = f"a downgrade goes to an older version, and {new} to {old} does not; give the newer version first"
        raise ValueError(problem)
    yield change_guard(new, old, schema)
    for step in range(new, old, -1):
        for statement in downgrade_step(step):
            yield in_schema(statement, schema)
    yield from _function_changes(new, old, schema)
    yield renew_grants(new, old, schema)
    for step in range(new, old, -1):
        for name in new_tables(step):
            yield in_schema(_drop("table", name), schema)


def drop_statements(version: int, schema: str | None) -> Iterator[str]:
    """Return the statements that drop a version with all its rows, and revoke the ``usage`` that grants gave.

    Nothing is cascaded: if an object of the user's depends on one of ours, PostgreSQL refuses.
    """
    yield installed_guard(version, schema)
    yield drop_stage_schema(schema)
    yield take_usage(schema)
    # A function that takes a row of a table is dropped before the table. A trigger is dropped with its table, and needs
    # its function until then.
    texts = functions(version)
    of_triggers = [name for name, text in texts.items() if _OF_TRIGGER.search(text)]
    for name in sorted(texts.keys() - set(of_triggers)):
        yield in_schema(_drop("function", name), schema)
    for name in tables(version):
        yield in_schema(_drop("table", name), schema)
    for name in of_triggers:
        yield in_schema(_drop("function", name), schema)


def in_order(texts: Mapping[str, str]) -> Mapping[str, str]:
    """Order functions so that one in ``language sql`` comes after those that it calls: they must exist by then."""
    ordered: dict[str, str] = {}

    def add(name: str) -> None:
        if _IN_SQL.search(texts[name]):
            for called in _CALLED.findall(texts[name]):
                if called != name and called in texts and called not in ordered:
                    add(called)
        ordered[name] = texts[name]

    for name in texts:
        if name not in ordered:
            add(name)
    return ordered


def _signatures(version: int) -> dict[str, tuple[str, str]]:
    """Return arguments and result of each function; PostgreSQL replaces a function only if both stay."""
    return {
        key.removeprefix("function ").partition("(")[0]: (facts.get("arguments", ""), facts["result"])
        for key, facts in expected_catalog(version).items()
        if key.startswith("function ")
    }


def replacing(function: str) -> str:
    return re.sub(r"^create function ", "create or replace function ", function, count=1, flags=re.MULTILINE)


def _table_steps(old: int, new: int) -> Iterator[str]:
    for step in range(old + 1, new + 1):
        for statements in new_tables(step).values():
            yield from statements
        yield from upgrade_step(step)


def _triggers(old: int, new: int) -> dict[str, str]:
    return {name: text for step in range(old + 1, new + 1) for name, text in triggers(step).items()}


def _function_changes(before: int, after: int, schema: str | None) -> Iterator[str]:
    have, want = functions(before), functions(after)
    # The names of functions whose signature stays.
    same = {name for name, _ in _signatures(before).items() & _signatures(after).items()}
    again = sorted(have.keys() & want.keys() - same)
    if again:
        yield note_privileges(again, schema)
    for name in have:
        if name not in same:
            yield in_schema(_drop("function", name), schema)
    for name, text in in_order(want).items():
        if name not in same:
            yield in_schema(text, schema)
        elif text != have[name]:
            yield in_schema(replacing(text), schema)
    made = sorted(want.keys() - same)
    if made:
        yield close_functions(made, schema)
    if again:
        yield give_back_privileges(schema)


def _drop(kind: str, name: str) -> str:
    return f"drop {kind} {QUALIFIER}{name.removeprefix('fq_')}"


# Definitions are compared as texts, so identifiers must be quoted alike.
_PLAIN = """\
  perform set_config('quote_all_identifiers', 'off', true);
{body}
  perform set_config('quote_all_identifiers', v_quotes, true);"""

_QUOTES = {"v_quotes": "text := current_setting('quote_all_identifiers')"}

_TRIGGER_VARIABLES = {"v_trigger": "record", "v_timeout": "text := current_setting('lock_timeout')"}


def repair_statements(version: int, schema: str | None) -> Iterator[str]:
    """Return statements that restore every function, every trigger and the staging tables' schema of a version.

    Columns, indexes and constraints are left alone. Privileges are kept, except that PUBLIC may execute no function
    afterwards. Roles get again the functions that their grants stand for.
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
    texts = ((name, *signature) for name, signature in _signatures(version).items())
    return ",\n".join(f"      ({', '.join(map(quoted_literal, each))})" for each in texts)


def _expected_triggers(version: int) -> str:
    made, rows = _triggers(0, version), []
    for key, facts in expected_catalog(version).items():
        if key.startswith("trigger "):
            relation, _, name = key.removeprefix("trigger ").partition(".")
            texts = (relation, name, facts["definition"], made[name])
            rows.append(f"      ({', '.join(quoted_literal(one) for one in texts)})")
    return ",\n".join(rows)
