"""The work itself: count what a source file holds."""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.demo.app.models import SourceStats

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy_fairqueue.demo.app.models import Upload


def parse(upload: Upload) -> SourceStats:
    """Count the definitions in an upload. A file that is not valid Python gives a result too: one with an error."""
    source = Path(upload.path).read_bytes()
    error, found = None, Counter[type[ast.AST]]()
    try:
        with warnings.catch_warnings(action="ignore"):  # the parser warns of odd escapes in other people's files
            found.update(map(type, _statements(ast.parse(source))))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        error = f"{type(problem).__name__}: {problem}"
    return SourceStats(
        upload_key=upload.key,
        lines=len(source.splitlines()),
        functions=found[ast.FunctionDef] + found[ast.AsyncFunctionDef],
        classes=found[ast.ClassDef],
        imports=found[ast.Import] + found[ast.ImportFrom],
        error=error,
    )


def _statements(module: ast.Module) -> Iterator[ast.AST]:
    """Every statement, however deep; not the expressions, which ``ast.walk`` would visit too: most of a tree."""
    waiting: list[ast.AST] = [*module.body]
    while waiting:
        statement = waiting.pop()
        yield statement
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(statement, block, ())
