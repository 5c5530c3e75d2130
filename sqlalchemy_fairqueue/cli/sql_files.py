"""SQL of the command line, one statement a file: what no function of the library gives.

The files are in the folders ``queries``. They qualify fairqueue's objects as ``fairqueue.fq_...``, as those of the
schema do, and take their parameters as ``:name``.
"""

from __future__ import annotations

from importlib.resources import files

from sqlalchemy import TextClause, text

from sqlalchemy_fairqueue.database.clauses import once_a_schema, qualifier
from sqlalchemy_fairqueue.sql.schema import quoted

_QUALIFIER = "fairqueue.fq_"


@once_a_schema
def query(path: str, schema: str | None = None) -> TextClause:
    """The statement of a file, for an installation.

    Args:
        path: The file, from this folder: ``doctor/queries/gates.sql``.
        schema: The schema of the installation; None: the statement names none of its objects.
    """
    return text(_statement(path).replace(_QUALIFIER, f"{qualifier(schema)}fq_"))


def pasted(path: str, schema: str) -> list[str]:
    """The statements of a file for people to paste, one a line."""
    lines = (" ".join(statement.split()).removesuffix(";") + ";" for statement in _statement(path).split(";\n"))
    tidy = (line.replace("( ", "(").replace(" )", ")") for line in lines)
    # The schema comes last: its name may hold blanks and brackets.
    return [line.replace(_QUALIFIER, f"{quoted(schema)}.fq_") for line in tidy]


def _statement(path: str) -> str:
    """The text of a file without its comments."""
    lines = (files(__package__) / path).read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("--")).strip()
