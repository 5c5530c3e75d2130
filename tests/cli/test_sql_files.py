from importlib.resources import files
from importlib.resources.abc import Traversable

import pytest
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

import sqlalchemy_fairqueue.cli
from sqlalchemy_fairqueue.cli.sql_files import pasted, query
from sqlalchemy_fairqueue.sql.schema import quoted

_ODD = "a ( b  c ) :d"


def _found(folder: Traversable, path: str = "") -> list[str]:
    paths = []
    for item in folder.iterdir():
        name = f"{path}{item.name}"
        paths += _found(item, f"{name}/") if item.is_dir() else [name] if name.endswith(".sql") else []
    return paths


_PATHS = sorted(_found(files(sqlalchemy_fairqueue.cli)))


def test_pasted_statements_keep_the_name_of_the_schema() -> None:
    """Statements for people name the schema as it is, each on one line."""
    statements = pasted("doctor/queries/future_times_repair.sql", _ODD)
    assert len(statements) == 10
    assert all(f"{quoted(_ODD)}.fq_" in statement and "\n" not in statement for statement in statements)


@pytest.mark.parametrize("path", _PATHS)
def test_queries_take_any_schema(path: str) -> None:
    """A schema of any name is put in verbatim, and no part of it is taken for a parameter."""
    compiled = query(path, _ODD).compile(dialect=PGDialect_psycopg())  # type: ignore[no-untyped-call]
    assert "fairqueue.fq_" not in str(compiled)
    assert not any(name.startswith("d") for name in compiled.params)


@pytest.mark.parametrize("path", _PATHS)
def test_files_have_headers(path: str) -> None:
    """Each file begins with a header of a few lines, and no line is longer than 120 characters."""
    lines = (files(sqlalchemy_fairqueue.cli) / path).read_text(encoding="utf-8").splitlines()
    header = next(number for number, line in enumerate(lines) if not line.startswith("-- "))
    assert 1 <= header <= 12
    assert max(map(len, lines)) <= 120
