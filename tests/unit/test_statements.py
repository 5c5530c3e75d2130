import re

import pytest
from sqlalchemy.dialects import postgresql

from sqlalchemy_fairqueue import sql, statements
from sqlalchemy_fairqueue.sql import NEEDED_VERSION

# These read tables, and call no function.
_QUERIES = {"held", "holder", "max_backlog", "dead_letters", "hold_queue"}
_BUILDERS = {name: getattr(statements, name) for name in statements.__all__ if name not in _QUERIES}


def _parameters(function: str) -> list[str]:
    text = dict(sql.functions(NEEDED_VERSION).items())[function]
    signature, _, _ = text.partition("create function")[2].partition("as $$")
    return re.findall(r"\bp_(\w+)\s+[a-z]+", signature)


def test_there_is_one_for_every_verb() -> None:
    """The builders are named as the functions that they call, each of which the schema has."""
    assert set(_BUILDERS) >= {"enqueue", "dequeue", "complete", "retry", "release", "bury", "extend", "cancel", "hear"}
    assert {name for name in _BUILDERS if f"fq_{name}" not in sql.functions(NEEDED_VERSION)} == set()


@pytest.mark.parametrize("name", sorted(_BUILDERS))
def test_parameters_are_those_of_the_function(name: str) -> None:
    """A builder passes each parameter of the function by its name, and no other."""
    clause = _BUILDERS[name](None)
    passed = re.findall(r"p_(\w+) =>", str(clause))
    assert sorted(passed) == sorted(_parameters(f"fq_{name}"))
    assert sorted(clause.compile().params) == sorted(passed)


@pytest.mark.parametrize(("name", "arrays"), [("enqueue", 10), ("complete", 4)])
def test_one_message_alone(name: str, arrays: int) -> None:
    """A builder for one message takes the same parameters, the elements of the arrays instead of these."""
    builder = _BUILDERS[name]
    several, alone = builder(None), builder(None, alone=True)
    assert alone.compile().params == several.compile().params
    assert len(re.findall(r"=> array\[cast\(:\w+ as \w+\)\]", str(alone))) == arrays
    assert "=> array[" not in str(several)


@pytest.mark.parametrize(
    "schema", ["plain", 'we"ird', "per%cent", "a:b", "a::b", ":x", "x:", "back\\slash", "\\:x", "%(x)s", "'; --"]
)
def test_schema_names(schema: str) -> None:
    """A schema of any name is one quoted identifier in the statement that is sent, and no parameter."""
    clause = statements.complete(schema)
    compiled = clause.compile(dialect=postgresql.psycopg.dialect())  # type: ignore[no-untyped-call]
    assert f'from "{schema.replace(chr(34), chr(34) * 2)}".fq_complete(' in (
        str(compiled) % dict.fromkeys(clause.compile().params)
    )
    assert set(clause.compile().params) == {"queue", "ids", "rows", "lease_ids", "deliveries"}


def test_statements_are_made_once() -> None:
    """The same clause is given again, so that SQLAlchemy's cache finds it."""
    for builder in _BUILDERS.values():
        assert builder("a") is builder("a")
