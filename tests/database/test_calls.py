"""Calls of SQL functions by name: what the server gets is the function itself, with all of its parameters."""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import TextualSelect
from sqlalchemy.dialects import postgresql

import sqlalchemy_fairqueue
from sqlalchemy_fairqueue import Enqueue, database
from sqlalchemy_fairqueue.database.calls import ALL, Clause, Shape, Target, call, clause_of
from sqlalchemy_fairqueue.database.deliveries import _settling
from sqlalchemy_fairqueue.database.messages import Membership, _arrays, _enqueuing, _scalars
from sqlalchemy_fairqueue.sql import catalog
from sqlalchemy_fairqueue.sql import files as sql_files

_CALLING = {"call", "read", "read_by_queue"}
"""The functions and methods that take the name of a function of SQL."""


def _sites() -> Iterator[tuple[str, str, set[str], bool]]:
    """Each call in the package: where, the function of SQL, the names of its parameters, whether these are all."""
    for file in sorted(Path(sqlalchemy_fairqueue.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            # The methods are those of a Target, which gives the queue.
            of_queue = isinstance(node.func, ast.Attribute)
            called = getattr(node.func, "attr" if of_queue else "id", "")
            for function in [one.value for one in node.args if isinstance(one, ast.Constant)]:
                if called in _CALLING and isinstance(function, str) and function.startswith("fq_"):
                    names = {keyword.arg for keyword in node.keywords if keyword.arg is not None}
                    complete = len(names) == len(node.keywords)
                    if of_queue or called == "read_by_queue":
                        names.add("queue")
                    yield f"{file}:{node.lineno}", function, names, complete


@cache
def _functions() -> tuple[str, ...]:
    """The functions of SQL that the package calls."""
    return tuple(sorted({function for _, function, _, _ in _sites()} | _SETTLING))


_SUBJECTS = ("configuration", "deliveries", "messages", "schedules", "stats")
_SETTLING = {"fq_complete", "fq_end_attempts"}
_COSTLY = _settling(refusing=False, costs=True, alone=False)
_OF_ONE_OR_MANY: list[tuple[str, Callable[..., Shape], int]] = [
    ("fq_enqueue", _enqueuing, 15),
    ("fq_complete", partial(_settling, costs=False), 4),
    ("fq_complete", partial(_settling, costs=True), 9),
]


def _parameters(function: str) -> list[str]:
    """The names of a function's parameters in the catalog, without p_."""
    [arguments] = [
        facts.get("arguments", "")
        for name, facts in catalog.expected_catalog(sql_files.NEEDED_VERSION).items()
        if name.startswith(f"function {function}(")
    ]
    return re.findall(r"(?:^|, )p_(\w+) ", arguments)


def _casts(function: str) -> str:
    """All parameters of a function in their positions, each cast to its type in PostgreSQL's catalog."""
    [types] = [
        name.partition("(")[2].removesuffix(")").split(", ")
        for name in catalog.expected_catalog(sql_files.NEEDED_VERSION)
        if name.startswith(f"function {function}(")
    ]
    return ", ".join(f"cast(:{name} as {type_})" for name, type_ in zip(_parameters(function), types, strict=False))


def test_signatures() -> None:
    """The names of parameters and columns that are read from the files are those that PostgreSQL has."""
    for name, facts in catalog.expected_catalog(sql_files.NEEDED_VERSION).items():
        if name.startswith("function "):
            function = name.removeprefix("function ").partition("(")[0]
            found = sql_files.signature(function)
            result = facts["result"]
            columns = re.findall(r"OUT (\w+) ", facts.get("arguments", "")) or [function] * (result != "void")
            if result.startswith("TABLE("):
                columns = re.findall(r"(?:^|, )(\w+) ", result.removeprefix("TABLE("))
            assert (list(found.parameters), list(found.columns)) == (_parameters(function), columns), function


def test_each_call_gives_what_its_function_takes() -> None:
    """At all places of the package, the names of parameters are those of the function, and all are given."""
    sites = list(_sites())
    assert {"fq_dequeue", "fq_pause", "fq_stats", "fq_version"} <= {function for _, function, _, _ in sites}
    for where, function, names, complete in sites:
        taken = set(sql_files.signature(function).parameters)
        assert names == taken if complete else names < taken, (where, function)


def test_a_wrong_parameter() -> None:
    """A call that gives a parameter too many, too few or another one fails before anything is sent."""
    for values in ({}, {"queue": "a"}, {"queue": "a", "name": None, "extra": 1}, {"queue": "a", "names": None}):
        with pytest.raises(TypeError, match=r"^fq_plans takes queue, name; got"):
            call(None, "fq_plans", "list the plans", **values)
    with pytest.raises(ValueError, match="fq_plan'"):
        call(None, "fq_plan", "list the plans")


def test_every_function_is_typed() -> None:
    """A function takes a connection first, or a target if it only builds a call; all of it is typed."""
    modules = [import_module(f"{database.__name__}.{name}") for name in _SUBJECTS]
    functions = [
        function
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__
        and not name.startswith("_")
        and {"connection", "target"} & inspect.signature(function).parameters.keys()
    ]
    assert len(functions) > len(_SUBJECTS)
    for function in functions:
        signature = inspect.signature(function)
        first = next(iter(signature.parameters))
        assert first == "connection" or (signature.return_annotation == "Call" and first == "target")
        annotations = [parameter.annotation for parameter in signature.parameters.values()]
        assert inspect.Signature.empty not in {*annotations, signature.return_annotation}
        names = {node.id for text in annotations for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
        assert "Any" not in names


def test_parameters_are_those_of_the_function() -> None:
    """A call passes every parameter of the function in its position and type, so that no overload fits as well."""
    for function in _functions():
        clause = clause_of("s", function)
        assert str(clause.statement).endswith(f' from "s".{function}({_casts(function)})'), function
        assert list(clause.types) == _parameters(function), function


def test_one_function_for_each_of_several_queues() -> None:
    """The queues are one array, and the function is called with each of its elements."""
    text = str(clause_of("s", "fq_consumers", Shape(each="queue")).statement)
    assert "pg_catalog.unnest(cast(:queue as text[])) with ordinality e (element, place)" in text
    arguments = "e.element, cast(:limit as integer), cast(:handlers as integer)"
    assert text.endswith(f'cross join lateral "s".fq_consumers({arguments})')


def test_costs_are_told_before_the_settlement() -> None:
    """By the same statement, so that they are of its transaction where each statement is one."""
    text = str(clause_of(None, "fq_complete", _COSTLY).statement)
    told, _, settled = text.partition("as done) f cross join lateral fq_complete(f.queue, ")
    assert told.endswith(f"fq_correct_costs({_casts('fq_correct_costs')}) ")
    assert f"cast(:queue as text), {settled}" == f"{_casts('fq_complete')})"


@pytest.mark.parametrize("refusing", [False, True])
@pytest.mark.parametrize(("function", "shape", "arrays"), _OF_ONE_OR_MANY)
def test_one_message_alone(function: str, shape: Callable[..., Shape], arrays: int, *, refusing: bool) -> None:
    """A clause for one message takes the same parameters, the elements of the arrays instead of these.

    One that is sent together with COMMIT calls a function more, of the same schema and with exact types.
    """
    several, alone = (clause_of("a:b", function, shape(alone=alone, refusing=refusing)) for alone in (False, True))
    assert alone.statement.compile().params == several.statement.compile().params
    assert len(re.findall(r"array\[cast\(:\w+ as \w+\)\]", str(alone.statement))) == arrays
    assert "array[cast" not in str(several.statement)
    for clause in several, alone:
        assert ('"a:b".fq_refuse(' in str(clause.statement.compile())) is refusing
        assert not re.search(r"[^.(]= ?'", str(clause.statement))


@pytest.mark.parametrize(
    "schema", ["plain", 'we"ird', "per%cent", "a:b", "a::b", ":x", "x:", "back\\slash", "\\:x", "%(x)s", "'; --"]
)
def test_schema_names(schema: str) -> None:
    """A schema of any name is one quoted identifier in the statement that is sent, and no parameter."""
    for shape in (ALL, _COSTLY):
        clause = clause_of(schema, "fq_complete", shape)
        compiled = clause.statement.compile(dialect=postgresql.psycopg.dialect())  # type: ignore[no-untyped-call]
        sent = str(compiled) % dict.fromkeys(clause.types)
        quoted = '"' + schema.replace('"', '""') + '"'
        assert sent.count(f"{quoted}.fq_") == len(re.findall(r"\bfq_\w+\(", sent))
        assert set(clause.statement.compile().params) == set(clause.types)


def test_rows_have_known_shapes() -> None:
    """A clause names its columns to SQLAlchemy, which otherwise works them out at each call."""
    for function in _functions():
        if sql_files.signature(function).columns:
            assert isinstance(clause_of(None, function).statement, TextualSelect), function


def test_clauses_are_made_once() -> None:
    """The same clause is given again, so that SQLAlchemy's cache finds it; each schema and shape has its own."""

    def clause(schema: str | None, shape: Shape = ALL) -> Clause:
        return call(schema, "fq_plans", "list the plans", shape, queue="a", name=None).clause

    assert clause("a") is clause("a")
    assert len({id(one) for one in (clause("a"), clause("b"), clause(None), clause("a", Shape(readable=True)))}) == 4


def test_what_a_call_does() -> None:
    """An error names the queues or the channel of its call, as the parameters tell them."""
    target = Target("s", "documents")
    assert target.call("fq_stats", "read the stats of").described() == "read the stats of queue 'documents'"
    paused = target.call("fq_pause", "pause", channel="a", paused=True, new=False, notify=False)
    assert paused.described() == "pause channel 'a' of queue 'documents'"
    for queues, words in (([None], "all queues"), (["a"], "queue 'a'"), (["a", "b"], "2 queues"), ([], "0 queues")):
        limits = call("s", "fq_limits", "list the limits of", Shape(each="queue"), queue=queues, name=None)
        assert limits.described() == f"list the limits of {words}"
    assert call("s", "fq_now", "read the clock").described() == "read the clock"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"delay": timedelta(minutes=1), "coalesce": True, "ordering_key": "s", "cost": 3},
        {"at": datetime(2026, 1, 1, tzinfo=UTC), "priority": 2},
        {"key": "k", "on_duplicate": "raise", "unique_for": timedelta(hours=1), "unique_from": "completion"},
    ],
    ids=["plain", "delayed", "at", "key"],
)
def test_one_message_is_sent_as_one_of_several(options: dict[str, Any]) -> None:
    """What an enqueue sends of a single message is what it sends of each of several."""
    message: Any = SimpleNamespace(
        message=Enqueue(channel="a", payload=1, **options),
        content=b"1",
        headers="{}",
        max_attempts=3,
        membership=Membership(uuid4(), None) if "key" in options else None,
    )
    assert _arrays([message, message]) == {name: [value] * 2 for name, value in _scalars(message).items()}
