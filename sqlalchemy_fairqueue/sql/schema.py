"""Puts the target schema in place of ``fairqueue.`` in the files' SQL; also writes SQL for staging tables and guards.

The schema None means the connection's default schema, which only the server knows. In this case a DO block around the
statement puts ``current_schema()`` in when it runs. So a script for psql can be written without a connection.

Staging tables of bulk loads have a schema of their own, since loaders would otherwise need the right to create in the
schema of the queues, where they could add functions. Guards are DO blocks that raise, before anything is changed, if
an operation is not possible.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from sqlalchemy_fairqueue.sql.files import functions, latest_version, relations, tables, versions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

QUALIFIER = "fairqueue.fq_"
"""The text that is replaced: every object of ours starts with it, and nothing else in the files contains it."""

BODY = "$fairqueue$"
"""The quotes of function bodies and DO blocks as sent. The files say ``$$``, which a schema's name might contain."""

_MAX_BYTES = 63
_PLACE = re.compile(r"\{(\w+)\}")


def quoted(schema: str) -> str:
    """Quote a name as an identifier. Raise ValueError if PostgreSQL cannot keep the name unchanged."""
    return '"' + _kept(schema).replace('"', '""') + '"'


def quoted_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def named_schema(schema: str | None) -> str:
    return "the connection's default schema" if schema is None else f"schema {schema!r}"


UNRELEASED = -1
"""The version of an installation that was made before the first release, whatever its number was."""

IS_UNRELEASED = "holds fairqueue of an unreleased version, which nothing upgrades: drop its tables and functions"
"""What errors say of such an installation, after the name of its schema."""

VERSION_COLUMN = (
    "case when pg_catalog.pg_typeof(fq_version) operator(pg_catalog.=) cast('pg_catalog.int4' as pg_catalog.regtype)"
    f" then {UNRELEASED} else fq_version end"
)
"""SQL for the version, from the result of ``fq_version()``, which was an integer before the first release."""


def schema_argument(schema: str | None) -> str:
    return "" if schema is None else f", schema={schema!r}"


def schema_expression(schema: str | None) -> str:
    """Write SQL for the name of the target schema: a string, or ``current_schema()``, which may be null."""
    return "current_schema()" if schema is None else quoted_literal(_kept(schema)) + "::text"


def in_schema(statement: str, schema: str | None) -> str:
    """Put the schema into a statement; for None, return a DO block that does so when it runs.

    Send the result as it is: percent signs and colons in it stand for no parameters.
    """
    statement = statement.replace("$$", BODY)
    if schema is not None:
        return statement.replace(QUALIFIER, quoted(schema) + ".fq_")
    return (
        "do $fairqueue_do$ begin execute replace($fairqueue_sql$\n"
        f"{statement}\n"
        f"$fairqueue_sql$, '{QUALIFIER}', "
        """'"' || replace(current_schema()::text, '"', '""') || '".fq_'); end $fairqueue_do$"""
    )


def part(file: str, /, **values: str) -> str:
    """Read a part of a DO block from a file in ``blocks/``, and replace the words in braces by *values*."""
    text = (files(__package__) / "blocks" / f"{file}.sql").read_text(encoding="utf-8").rstrip()
    lines = text.splitlines()
    while lines[0].startswith("--"):
        del lines[0]
    return _PLACE.sub(lambda found: values[found[1]], "\n".join(lines))


def block(body: str, schema: str | None, variables: Mapping[str, str] | None = None) -> str:
    """Return a DO block that declares *variables*, by name and type, and has the target schema's name in ``v_schema``.

    The block's search_path has only pg_catalog. Otherwise the migrating role could call a function that somebody else
    has put into a schema of the search_path. At its end the block restores the former search_path.
    """
    declared = "".join(f"  {name} {kind};\n" for name, kind in (variables or {}).items())
    return (
        f"do {BODY}\n"
        "declare\n"
        f"  v_schema text := {schema_expression(schema)};\n"
        "  v_path text := current_setting('search_path');\n"
        f"{declared}"
        "begin\n"
        "  perform set_config('search_path', 'pg_catalog, pg_temp', true);\n"
        f"{body}\n"
        "  perform set_config('search_path', v_path, true);\n"
        f"end\n{BODY}"
    )


def _kept(schema: str) -> str:
    if not schema or "\0" in schema or BODY in schema or len(schema.encode()) > _MAX_BYTES:
        problem = (
            f"schema {schema!r} is not a name that PostgreSQL keeps: "
            f"give 1 to {_MAX_BYTES} bytes without NUL and without {BODY}, or None for the connection's default schema"
        )
        raise ValueError(problem)
    return schema


STAGE_NAME: Final = "fq_stage_[0-9]{1,18}_[0-9a-f]{12}"
"""A regular expression, for Python and PostgreSQL alike, that matches the names that ``fq_make_stage`` makes."""
STAGE_COLUMNS: Final = frozenset({"attempt", "channel", "kind", "content"})
"""Columns of every stage; a table with such a name but without these columns is the user's."""
STAGE_SCHEMA: Final = (
    "case when octet_length({0}) <= 56 then {0} || '_stages' "
    "else left({0}, 11) || '_' || left(md5({0}), 8) || '_stages' end"
)
"""SQL for the name of the stages' schema, as ``fq_stage_schema()`` makes it; format it with SQL for the schema."""

_OF_STAGES = {"v_stages": "text", "v_owner": "text", "v_stage": "record"}


def make_stage_schema(schema: str | None) -> str:
    """Return a DO block that creates a missing schema of staging tables, or warns if the migrating role may not."""
    return block(part("make_stages", name=STAGE_SCHEMA.format("v_schema")), schema, _OF_STAGES)


def drop_stage_schema(schema: str | None) -> str:
    """Return a DO block that drops staging tables, as far as the migrating role may, and then their schema if empty."""
    columns = f"array[{', '.join(quoted_literal(column) for column in sorted(STAGE_COLUMNS))}]"
    name = STAGE_SCHEMA.format("v_schema")
    return block(
        part("drop_stages", schema=name, name=quoted_literal(f"^{STAGE_NAME}$"), columns=columns), schema, _OF_STAGES
    )


SCHEMA_MISMATCH = "QF004"
"""The SQLSTATE of a guard that refuses because of what the schema holds or lacks, or because of AUTOCOMMIT."""

_OF_GUARDS = {"v_nameless": "boolean", "v_tables": "text[]", "v_taken": "text", "v_version": "integer"}

# A setting of the transaction: if the next statement does not see it, each statement was committed by itself.
_PASSED = "  perform set_config('fairqueue.guard', 'passed', true);"


def install_guard(version: int, schema: str | None) -> str:
    """Return a DO block that raises unless the schema exists and every name that the version needs in it is free."""
    return _block([part("is_named"), part("is_not_installed"), _taken(_names(version))], schema)


def installed_guard(version: int, schema: str | None) -> str:
    return _block(_installed(version), schema)


def repair_guard(version: int, schema: str | None) -> str:
    """Return a DO block that raises unless the schema holds this version, or its tables without ``fq_version()``."""
    checks = part(
        "repairable",
        known=_array(tables(latest_version())),
        tables=_array(tables(version)),
        installed="\n".join(_installed(version)),
        version=str(version),
    )
    return _block([checks], schema)


def grants_guard(schema: str | None) -> str:
    """Return a DO block that raises unless the schema holds a version that this library knows."""
    known = part("is_known", versions=", ".join(map(str, versions())))
    return _block([part("is_named"), part("read_version"), known], schema)


def change_guard(before: int, after: int, schema: str | None) -> str:
    """Return a DO block that raises unless the schema can change from the version *before* to the version *after*.

    The schema must hold *before*. All names that *after* adds must be free. The transaction must be READ COMMITTED,
    since the guard must see what others commit.
    """
    there = set(_names(before))
    added = [name for name in _names(after) if name not in there]
    return _block([part("read_committed"), *_installed(before), *([_taken(added)] if added else [])], schema)


def same_transaction_guard(refusal: str) -> str:
    """Return a DO block that raises *refusal* unless it runs in the same transaction as the guard before it."""
    return part("same_transaction", body=BODY, refusal=quoted_literal(refusal))


def _names(version: int) -> tuple[str, ...]:
    return (*relations(version), *functions(version))


def _taken(names: Iterable[str]) -> str:
    return part("names_are_free", names=_array(names))


def _array(names: Iterable[str]) -> str:
    return ", ".join(quoted_literal(name) for name in sorted(names))


def _installed(version: int) -> list[str]:
    return [part("is_named"), part("read_version"), part("is_version", version=str(version))]


def _block(checks: Iterable[str], schema: str | None) -> str:
    before = (_PASSED, part("schema_exists"), part("look", unreleased=IS_UNRELEASED))
    return block("\n".join([*before, *checks]), schema, _OF_GUARDS)
