"""Reads the files of each version of the schema, by importlib.resources, so that a zipped package works too."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.resources.abc import Traversable

NEEDED_VERSION = 1
"""The version of the schema that this library needs. The library runs on newer versions too, even unknown ones."""

FOLDERS: list[Traversable] = [files(__package__) / folder for folder in ("v1",)]

# The folders of a version that hold its functions: its own, what people and dashboards read, what bulk loads call.
_SUBJECTS = ("", "reads", "loads")
# A semicolon at the end of a line ends a statement, unless it is within the body of a function.
_STATEMENT = re.compile(r"(?:\$\$.*?\$\$|.)*?(?:;[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
# These settings pin the names and the plans in a function, whatever the session has set. Plans are generic and use
# indexes, since a plan that was made while a table was empty must also serve a long backlog.
_SETTINGS = """
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set jit = off"""
# A name in PL/pgSQL that a column shares with a variable or a result means the column.
_COLUMNS_FIRST = "\n#variable_conflict use_column"
# Matches a parameter or a column: whether it is "out", its name without p_, its type.
_ARGUMENT = re.compile(r"(?:^|,)\s*(out )?(?:p_)?(\w+) ([^,()]+?)(?= default |,|$)")
_SIGNATURE = re.compile(
    r"^create function fairqueue\.\w+\((.*?)\)\n(?:returns (?:table \((.*?)\)|([^\n]+))\n)?", re.DOTALL | re.MULTILINE
)
_RELATION = re.compile(
    r"^\s*(?:create (?:unique )?index|create (?:unlogged )?table fairqueue\.|create sequence fairqueue\."
    r"|(?:.*\badd )?constraint) ?(\w+)(.*)$",
    re.MULTILINE,
)


class Signature(NamedTuple):
    """What a function takes and returns: SQL types by name, in order.

    Attributes:
        parameters: By their names without ``p_``.
        columns: If the function returns a single value, one column with the function's name; if void, none.
    """

    parameters: Mapping[str, str]
    columns: Mapping[str, str]


def versions() -> range:
    return range(1, len(FOLDERS) + 1)


def latest_version() -> int:
    return len(FOLDERS)


def folder(version: int) -> Traversable:
    return FOLDERS[checked_version(version) - 1]


def functions(version: int) -> Mapping[str, str]:
    """Return the ``create function`` statements of a version by name, with the literal qualifier ``fairqueue.``.

    Functions that roles or triggers call get ``set`` clauses for the search_path and the planner, unless the file
    sets a search_path itself. Other functions run with the settings of their caller.
    """
    texts: dict[str, str] = {}
    for step in range(1, checked_version(version) + 1):
        for subject in _SUBJECTS:
            texts |= _texts(step, subject)
    return {name: _with_settings(text.removesuffix(";")) for name, text in sorted(texts.items())}


def query(name: str) -> str:
    return (files(__package__) / "queries" / f"{name}.sql").read_text(encoding="utf-8").strip()


def names_of_ours(schema: str) -> dict[str, object]:
    """Return the parameters of statements in ``queries/``: the schema, and the names of our functions and tables."""
    return {
        "schema": schema,
        "functions": sorted({name for version in versions() for name in functions(version)}),
        "tables": sorted({name for version in versions() for name in tables(version)}),
    }


@cache
def signature(function: str) -> Signature:
    for step in range(NEEDED_VERSION, 0, -1):
        for subject in _SUBJECTS:
            file = folder(step).joinpath(subject, f"{function}.sql")
            if file.is_file():
                return _signature(function, file.read_text(encoding="utf-8"))
    problem = f"there is no function {function!r} in version {NEEDED_VERSION} of fairqueue's schema"
    raise ValueError(problem)


def _signature(function: str, text: str) -> Signature:
    found = _SIGNATURE.search(text)
    if found is None:
        problem = f"the file of {function!r} does not begin as the others do"
        raise ValueError(problem)
    parameters: dict[str, str] = {}
    columns: dict[str, str] = {}
    for out, name, type_ in _ARGUMENT.findall(found[1]):
        (columns if out else parameters)[name] = type_
    columns |= {name: type_ for _, name, type_ in _ARGUMENT.findall(found[2] or "")}
    if found[3] and found[3] != "void" and not columns:
        columns[function] = found[3].removeprefix("setof ")
    return Signature(MappingProxyType(parameters), MappingProxyType(columns))


def tables(version: int) -> Mapping[str, tuple[str, ...]]:
    """Return, for each table of a version, the statements that create the table and its indexes as they first were.

    Changes of a table by later versions are not included; :func:`upgrade_step` returns the statements for them.
    """
    steps = range(1, checked_version(version) + 1)
    return {name: made for step in steps for name, made in new_tables(step).items()}


def new_tables(step: int) -> Mapping[str, tuple[str, ...]]:
    return {name: _statements_of(text) for name, text in _texts(checked_version(step), "tables").items()}


def upgrade_step(step: int) -> tuple[str, ...]:
    """Return statements that change tables from version *step* - 1 to *step*. The caller first creates new tables."""
    return _statements_of(_text(checked_version(step), "upgrade.sql"))


def downgrade_step(step: int) -> tuple[str, ...]:
    """Return statements that undo :func:`upgrade_step`. The caller then drops the tables that version *step* added."""
    return _statements_of(_text(checked_version(step), "downgrade.sql"))


def triggers(step: int) -> Mapping[str, str]:
    """Return the triggers that version *step* adds, by name. Create them after its functions."""
    return {name: text.removesuffix(";") for name, text in _texts(checked_version(step), "triggers").items()}


def relations(version: int) -> tuple[str, ...]:
    """Return every name that the tables of a version take in their schema: tables, indexes, indexes of constraints."""
    steps = range(1, checked_version(version) + 1)
    made = [statement for statements in tables(version).values() for statement in statements]
    made += [statement for step in steps for statement in upgrade_step(step)]
    return tuple(sorted({name for statement in made for name in _relations_of(statement)}))


def checked_version(version: int) -> int:
    if type(version) is not int or version not in versions():
        numbers = ", ".join(str(number) for number in versions())
        problem = (
            f"there is no fairqueue version {version!r}: this library knows {numbers}; "
            "give one of them, or upgrade the library"
        )
        raise ValueError(problem)
    return version


def _with_settings(text: str) -> str:
    header, start, body = text.partition("\nas $$")
    if "\nlanguage plpgsql" in header and not body.startswith(_COLUMNS_FIRST):
        start += _COLUMNS_FIRST
    called_from_outside = "\nsecurity definer" in header or "\nreturns trigger" in header
    if called_from_outside and "\nset search_path" not in header:
        signature, more, own = header.partition("\nset ")
        header = signature + _SETTINGS + more + own
    return header + start + body


@cache
def _texts(step: int, kind: str) -> Mapping[str, str]:
    directory = folder(step) / kind if kind else folder(step)
    found = [file for file in directory.iterdir() if file.name.startswith("fq_")] if directory.is_dir() else []
    return MappingProxyType(
        {
            file.name.removesuffix(".sql"): file.read_text(encoding="utf-8").strip()
            for file in sorted(found, key=lambda file: file.name)
            if file.name.endswith(".sql")
        }
    )


@cache
def _text(step: int, name: str) -> str:
    file = folder(step) / name
    return file.read_text(encoding="utf-8").strip() if file.is_file() else ""


@cache
def _relations_of(statement: str) -> tuple[str, ...]:
    return tuple(match[1] for match in _RELATION.finditer(statement) if not match[2].startswith(" check"))


@cache
def _statements_of(text: str) -> tuple[str, ...]:
    parts = (part.strip().removesuffix(";").strip() for part in _STATEMENT.findall(text))
    return tuple(part for part in parts if _CODE.search(part))


# A line that is neither empty nor a comment: a file may hold nothing but its header.
_CODE = re.compile(r"^(?!\s*--)\s*\S", re.MULTILINE)
