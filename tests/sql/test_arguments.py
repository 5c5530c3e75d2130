"""Calls within the SQL: every argument is passed, in the exact type of its parameter, and nobody else's code runs."""

import re
from collections.abc import Iterator

import psycopg
import pytest

from sqlalchemy_fairqueue.sql.files import NEEDED_VERSION, functions, tables, triggers
from sqlalchemy_fairqueue.sql.grants import function_roles
from tests.fixtures.database import Database
from tests.fixtures.planted import PLANTED, plant_overloads
from tests.sql.client import Kernel
from tests.sql.load.loads import copy

_TYPES = (
    r"(?:bigint|integer|text|boolean|jsonb|record|regclass|tid|bytea|smallint|xid8|xid|name|oid|uuid|pg_snapshot"
    r"|interval|timestamptz|fairqueue\.fq_\w+)(?:\[\])?"
)
_CALL = re.compile(r"(?:fairqueue|%s)\.(fq_\w+)\(")
_SIGNATURE = re.compile(
    r"create function fairqueue\.(\w+)\((.*?)\)\s*(?:returns ([\w\[\]]+)|returns|language)", re.DOTALL
)


def _files() -> dict[str, str]:
    """The functions without their comments."""
    return {
        name: re.sub(r"^\s*--.*$|\s-- .*$", "", text, flags=re.MULTILINE)
        for name, text in functions(NEEDED_VERSION).items()
    }


_FILES = _files()
_PARAMETERS = {
    name: re.findall(rf"\bp_\w+ ({_TYPES})", text[: text.index("\nlanguage")]) for name, text in _FILES.items()
}
_RESULTS = {name: found[3] for name, text in _FILES.items() if (found := _SIGNATURE.search(text))}
_COLUMNS: dict[str, set[str]] = {}
for _statements in tables(NEEDED_VERSION).values():
    for _name, _type in re.findall(rf"^  (\w+) ({_TYPES})\b", _statements[0], re.MULTILINE):
        _COLUMNS.setdefault(_name, set()).add(_type)


def _split(text: str) -> list[str]:
    """The parts between commas that are in no parentheses and in no string."""
    parts, depth, quoted = [""], 0, False
    for character in text:
        quoted ^= character == "'"
        if not quoted:
            depth += (character in "([") - (character in ")]")
        if character == "," and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def _group(text: str, start: int) -> str:
    """What is in the parentheses that were opened before an offset."""
    depth = 1
    for offset in range(start, len(text)):
        depth += (text[offset] in "([") - (text[offset] in ")]")
        if not depth:
            return text[start:offset]
    raise AssertionError(text[start:])


def _calls(text: str) -> Iterator[tuple[str, list[str]]]:
    body = text[text.index("as $$") :]
    for found in _CALL.finditer(body):
        if found[1] in _FILES:
            yield found[1], _split(_group(body, found.end()))


def _is_atom(text: str) -> bool:
    """Whether a cast behind the text counts for all of it."""
    text = re.sub(r"^(%s|[\w.]*)", "", text) if not text.startswith("'") else re.sub(r"^'[^']*'", "", text)
    while text and text[0] in "([":
        text = text[len(_group(text, 1)) + 2 :]
    return not text


def _is_exact(argument: str, wanted: str, declared: dict[str, set[str]]) -> bool:
    if argument.endswith(f"::{wanted}"):
        return _is_atom(argument.removesuffix(f"::{wanted}"))
    if argument.endswith(".*"):
        # a row: nothing but its type takes it
        return wanted.startswith("fairqueue.")
    if found := re.fullmatch(r"\w+\.(\w+)", argument):
        # The columns of a stage are those that fq_make_stage gives it.
        return _COLUMNS.get(found[1], {"bigint"} if found[1] in {"delay", "at"} else {"integer"}) == {wanted}
    if found := re.match(r"fairqueue\.(\w+)\(", argument):
        return _RESULTS[found[1]] == wanted
    return declared.get(argument) == {wanted}


def test_calls_are_exact() -> None:
    """A function passes every argument to others in its position, each in the type of the parameter."""
    assert sum(len(list(_calls(body))) for body in _FILES.values()) > 100
    for name, body in _FILES.items():
        declared: dict[str, set[str]] = {}
        for variable, type_ in re.findall(rf"\b((?:[pvc]_)?\w+) (?:constant )?({_TYPES})(?=[;,\s:)])", body):
            declared.setdefault(variable, set()).add(type_)
        for called, arguments in _calls(body):
            assert len(arguments) == len(_PARAMETERS[called]), (name, called, arguments)
            for argument, wanted in zip(arguments, _PARAMETERS[called], strict=True):
                exact = _is_exact(argument, wanted, declared)
                assert exact, f"{name} calls {called}: {argument!r} may be no {wanted}; cast it"


def test_verbs_are_closed(database: Database) -> None:
    """Nobody but the owner may execute a function, and each that takes the owner's rights pins its search_path."""
    found = database.rows(
        "select proname, prosecdef, proconfig, has_function_privilege('pg_monitor', oid, 'execute') as open "
        "from pg_proc where pronamespace = 'public'::regnamespace and starts_with(proname, 'fq_')"
    )
    assert {row.proname for row in found} == set(_FILES)
    assert not [row.proname for row in found if row.open]
    assert {row.proconfig[0] for row in found if row.prosecdef} == {"search_path=pg_catalog, pg_temp"}
    assert {row.proname for row in found if row.prosecdef} >= {"fq_enqueue", "fq_dequeue", "fq_complete", "fq_merge"}


def test_settings_are_pinned_by_the_outermost() -> None:
    """A function that does not pin the search_path is called by functions of ours alone, where it is pinned."""
    bare = {name for name, text in _FILES.items() if "\nlanguage plpgsql" in text and "\nset search_path" not in text}
    assert {name for name in bare if function_roles(NEEDED_VERSION)[name]} == set()
    assert [text for text in triggers(NEEDED_VERSION).values() if any(f".{name}(" in text for name in bare)] == []


def test_an_overload_that_an_untyped_null_prefers(kernel: Kernel, database: Database) -> None:
    """A dequeue that takes expired messages back calls fairqueue's own function."""
    [added] = kernel.enqueue("a")
    kernel.dequeue(lease=1)
    kernel.commit()
    database.execute(
        "create function fq_return_messages(text, bigint[], tid[], text, text, int, text) returns void "
        f"language plpgsql as $$ begin raise exception '{PLANTED}'; end $$"
    )
    database.execute("update fq_lease set expires_at = fq_now()")
    assert [hand.id for hand in kernel.dequeue().hands] == [added.message_id]


def test_a_load_beside_overloads(kernel: Kernel, database: Database) -> None:
    """A load calls fairqueue's own functions, whatever else has their names."""
    plant_overloads(database)
    stage = kernel.value("select fq_make_stage(3600000000::bigint)")
    copy(kernel, stage, "a", "b", "b", key=["k", None, "l"])
    made = "select fq_make_stage_channels('q'::text, %(stage)s::text, '{1}'::bigint[], 10::integer, null::jsonb)"
    assert kernel.value(made, stage=stage) == 2
    kernel.rows("select fq_configure_channel('q'::text, 'b'::text, '{\"max_backlog\": 9}'::jsonb, null::jsonb, true)")
    (merged,) = kernel.rows(
        "select * from fq_merge('q'::text, 'job'::text, %(stage)s::text, '{1}'::bigint[], 3::bigint, null::bigint,"
        " null::text, 'replace'::text, 0::bigint, true::boolean)",
        stage=stage,
    )
    assert merged["created"] == 3
    assert kernel.value("select fq_drop_stage(%(stage)s::text)", stage=stage) is True
    assert kernel.value("select fq_drop_stage(%(stage)s::text)", stage=stage) is False


@pytest.fixture
def loader(kernel: Kernel) -> Iterator[str]:
    """A role that may load."""
    name = kernel.value("select current_database() || '_loader'")
    kernel.rows(f'create role "{name}"')
    kernel.rows(f'grant execute on function fq_make_stage, fq_make_stage_channels, fq_merge, fq_drop_stage to "{name}"')
    yield name
    kernel.rows("reset role")
    kernel.rows(f'drop owned by "{name}"')
    kernel.rows(f'drop role "{name}"')


@pytest.mark.parametrize("planted", ["view {} as select 1 as attempt", "table {} (attempt bigint)"])
def test_a_stage_that_another_role_planted(kernel: Kernel, loader: str, planted: str) -> None:
    """What a role puts into the schema of the stages is not read with the rights of the owner."""
    kernel.rows(f'grant create on schema public_stages to "{loader}"')
    kernel.rows(f'set role "{loader}"')
    name = "fq_stage_1_0123456789ab"
    kernel.rows("create " + planted.format(f"public_stages.{name}"))
    with pytest.raises(psycopg.errors.UndefinedTable, match=f"staging table {name} does not exist in schema"):
        kernel.rows("select fq_make_stage_channels('q', %(name)s, '{1}', 10)", name=name)
