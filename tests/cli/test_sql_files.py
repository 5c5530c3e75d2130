from importlib.resources import files

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


def test_queries_take_any_schema() -> None:
    """A schema of any name is put in verbatim, and no part of it is taken for a parameter."""
    for name in _NAMES:
        compiled = query(name, _ODD).compile(dialect=PGDialect_psycopg())  # type: ignore[no-untyped-call]
        assert "fairqueue.fq_" not in str(compiled), name
        assert not any(parameter.startswith("d") for parameter in compiled.params), name
