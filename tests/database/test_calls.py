import ast
import inspect
import pkgutil
import re
from collections.abc import Callable
from functools import partial
from importlib import import_module

import pytest
from sqlalchemy import TextualSelect
from sqlalchemy.dialects import postgresql

from sqlalchemy_fairqueue import database, sql
from sqlalchemy_fairqueue.database.calls import Clause
from sqlalchemy_fairqueue.database.enqueues import enqueue_clause
from sqlalchemy_fairqueue.database.settlement import complete_clause
from sqlalchemy_fairqueue.sql import NEEDED_VERSION

_MODULES = [import_module(f"{database.__name__}.{module.name}") for module in pkgutil.iter_modules(database.__path__)]
_CLAUSES: dict[str, Callable[[str | None], Clause]] = {
    name: member for module in _MODULES for name, member in vars(module).items() if name.endswith("_clause")
}


def _called(clause: Clause) -> str | None:
    """The function that a clause calls; None where it reads tables."""
    found = re.search(r"\bfrom (fq_\w+)\(", str(clause.statement))
    return found and found[1]


_CALLS = {name: function for name, build in _CLAUSES.items() if (function := _called(build(None)))}


def _parameters(function: str) -> list[tuple[str, str]]:
    text = dict(sql.functions(NEEDED_VERSION).items())[function]
    signature, _, _ = text.partition("create function")[2].partition("as $$")
    return re.findall(r"\bp_(\w+)\s+([a-z]+(?:\[\])?)", signature)


def test_one_python_function_a_sql_function() -> None:
    """What is called is a function of the schema, by one clause, and by a typed function of the same name."""
    called = list(_CALLS.values())
    assert set(called) >= {"fq_enqueue", "fq_dequeue", "fq_complete", "fq_retry", "fq_release", "fq_bury", "fq_hear"}
    assert set(called) <= set(sql.functions(NEEDED_VERSION))
    assert len(called) == len(set(called))
    assert {name.removeprefix("fq_") for name in called} <= set(database.__all__)


def test_every_function_is_typed() -> None:
    """A function takes a connection first, or a target if it only builds a call; all of it is typed."""
    functions = [member for name in database.__all__ if inspect.isfunction(member := getattr(database, name))]
    for function in functions:
        signature = inspect.signature(function)
        first = next(iter(signature.parameters))
        assert first == "connection" or (function.__name__.endswith("_call") and first == "target")
        annotations = [parameter.annotation for parameter in signature.parameters.values()]
        assert inspect.Signature.empty not in {*annotations, signature.return_annotation}
        names = {node.id for text in annotations for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
        assert "Any" not in names


def test_parameters_are_those_of_the_function() -> None:
    """A clause passes every parameter of the function in its position and type, so that no overload fits as well."""
    for name, function in _CALLS.items():
        clause = _CLAUSES[name](None)
        arguments = str(clause.statement).partition(f"{function}(")[2].removesuffix(")")
        assert arguments == ", ".join(f"cast(:{name} as {type_})" for name, type_ in _parameters(function)), name
        assert list(clause.statement.compile().params) == [name for name, _ in _parameters(function)], name


_COSTLY = partial(complete_clause, costs=True)


def test_costs_are_told_before_the_settlement() -> None:
    """By the same statement, so that they are of its transaction where each statement is one."""
    text = str(complete_clause(None, costs=True).statement)
    told, _, settled = text.partition("as done) f cross join lateral fq_complete(f.queue, ")
    arguments = ", ".join(f"cast(:{name} as {type_})" for name, type_ in _parameters("fq_correct_costs"))
    assert told.endswith(f"fq_correct_costs({arguments}) ")
    assert settled == ", ".join(f"cast(:{name} as {type_})" for name, type_ in _parameters("fq_complete")[1:]) + ")"


@pytest.mark.parametrize(("build", "arrays"), [(enqueue_clause, 14), (complete_clause, 4), (_COSTLY, 8)])
def test_one_message_alone(build: Callable[..., Clause], arrays: int) -> None:
    """A clause for one message takes the same parameters, the elements of the arrays instead of these."""
    several, alone = build(None), build(None, alone=True)
    assert alone.statement.compile().params == several.statement.compile().params
    assert len(re.findall(r"array\[cast\(:\w+ as \w+\)\]", str(alone.statement))) == arrays
    assert "array[" not in str(several.statement)


@pytest.mark.parametrize(
    "schema", ["plain", 'we"ird', "per%cent", "a:b", "a::b", ":x", "x:", "back\\slash", "\\:x", "%(x)s", "'; --"]
)
def test_schema_names(schema: str) -> None:
    """A schema of any name is one quoted identifier in the statement that is sent, and no parameter."""
    clause = complete_clause(schema)
    compiled = clause.statement.compile(dialect=postgresql.psycopg.dialect())  # type: ignore[no-untyped-call]
    assert f'from "{schema.replace(chr(34), chr(34) * 2)}".fq_complete(' in (
        str(compiled) % dict.fromkeys(clause.statement.compile().params)
    )
    assert set(clause.statement.compile().params) == {name for name, _ in _parameters("fq_complete")}


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("build", [enqueue_clause, complete_clause, _COSTLY])
def test_refusals(build: Callable[..., Clause], *, alone: bool) -> None:
    """A clause that is sent together with COMMIT calls a function more, of the same schema and with exact types."""
    plain, refusing = (build("a:b", alone=alone, refusing=refusing) for refusing in (False, True))
    assert refusing.statement.compile().params == plain.statement.compile().params
    assert '"a:b".fq_refuse(' in str(refusing.statement.compile())
    assert not re.search(r"[^.(]= ?'", str(refusing.statement))


def test_rows_have_known_shapes() -> None:
    """A clause of named columns says them to SQLAlchemy, which otherwise works them out at each call."""
    for name, build in _CLAUSES.items():
        statement = build(None).statement
        assert isinstance(statement, TextualSelect) or re.match(
            r"select (1|\*|fq_\w+\.\*, place) from", str(statement)
        ), name


def test_clauses_are_made_once() -> None:
    """The same clause is given again, so that SQLAlchemy's cache finds it."""
    for build in _CLAUSES.values():
        assert build("a") is build("a")
