import inspect
import re

import pytest
from sqlalchemy.dialects import postgresql

from sqlalchemy_fairqueue import sql, statements
from sqlalchemy_fairqueue.sql import LATEST_VERSION

_BUILDERS = {
    name: builder
    for name, builder in vars(statements).items()
    if not name.startswith("_") and hasattr(builder, "cache_info") and name != "holder"
}


def _parameters(function: str) -> list[str]:
    text = dict(sql.functions(LATEST_VERSION).items())[function]
    signature, _, _ = text.partition("create function")[2].partition("as $$")
    return re.findall(r"\bp_(\w+)\s+[a-z]+", signature)


def test_there_is_one_for_every_verb() -> None:
    """The builders are named as the functions that they call."""
    assert set(_BUILDERS) >= {"enqueue", "dequeue", "complete", "retry", "release", "bury", "extend", "cancel", "hear"}


@pytest.mark.parametrize("name", sorted(_BUILDERS))
def test_parameters_are_those_of_the_function(name: str) -> None:
    """A builder passes the function's own parameters by name, and no other."""
    clause = _BUILDERS[name](None)
    passed = re.findall(r"p_(\w+) =>", clause.text)
    assert passed == [one for one in _parameters(f"fq_{name}") if one in passed]
    assert sorted(clause.compile().params) == sorted(passed)


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
    assert statements.enqueue("a") is statements.enqueue("a")
    assert "cache" in inspect.getsource(statements)
