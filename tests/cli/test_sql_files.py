from importlib.resources import files

import pytest
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

import sqlalchemy_fairqueue.doctor
from sqlalchemy_fairqueue.doctor.findings import pasted, query
from sqlalchemy_fairqueue.sql.schema import quoted

_ODD = "a ( b  c ) :d"


_QUERIES = files(sqlalchemy_fairqueue.doctor) / "queries"
_NAMES = sorted(item.name.removesuffix(".sql") for item in _QUERIES.iterdir())


def test_pasted_statements_keep_the_name_of_the_schema() -> None:
    """Statements for people name the schema as it is, each on one line."""
    statements = pasted("future_times_repair", _ODD)
    assert len(statements) == 10
    assert all(f"{quoted(_ODD)}.fq_" in statement and "\n" not in statement for statement in statements)


@pytest.mark.parametrize("name", _NAMES)
def test_queries_take_any_schema(name: str) -> None:
    """A schema of any name is put in verbatim, and no part of it is taken for a parameter."""
    compiled = query(name, _ODD).compile(dialect=PGDialect_psycopg())  # type: ignore[no-untyped-call]
    assert "fairqueue.fq_" not in str(compiled)
    assert not any(parameter.startswith("d") for parameter in compiled.params)


@pytest.mark.parametrize("name", _NAMES)
def test_files_have_headers(name: str) -> None:
    """Each file begins with a header of a few lines, and no line is longer than 120 characters."""
    lines = (_QUERIES / f"{name}.sql").read_text(encoding="utf-8").splitlines()
    header = next(number for number, line in enumerate(lines) if not line.startswith("-- "))
    assert 1 <= header <= 12
    assert max(map(len, lines)) <= 120
