"""The app's business, which knows no queue: customers upload source files, and the app counts what is in them."""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import DateTime, ForeignKey, func
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

LEASE = timedelta(seconds=3)
"""The time for which a file stays with a dead worker. It is far below the default, because an audience waits."""


class Base(DeclarativeBase):
    """Base of the app's models."""

    type_annotation_map = {datetime: DateTime(timezone=True)}  # noqa: RUF012 - SQLAlchemy declares it without ClassVar


class Upload(Base):
    """A source file of a customer. An app with several machines would keep it in an object store, not at *path*."""

    __tablename__ = "upload"

    key: Mapped[str] = mapped_column(primary_key=True)
    customer: Mapped[str]
    path: Mapped[str]
    uploaded_at: Mapped[datetime] = mapped_column(server_default=func.now())


class SourceStats(Base):
    """The counts of an upload, or why it could not be parsed; the demo checks that each upload has exactly one."""

    __tablename__ = "source_stats"

    id: Mapped[int] = mapped_column(primary_key=True)
    upload_key: Mapped[str] = mapped_column(ForeignKey(Upload.key), index=True)
    lines: Mapped[int]
    functions: Mapped[int]
    classes: Mapped[int]
    imports: Mapped[int]
    error: Mapped[str | None]
    parsed_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


def parse(upload: Upload) -> SourceStats:
    """Parse an upload, and count what is in it. A file that is not valid Python gives a result with an error."""
    source = Path(upload.path).read_bytes()
    error, found = None, Counter[type[ast.AST]]()
    try:
        with warnings.catch_warnings(action="ignore"):  # the parser warns of odd escapes in other people's files
            found.update(map(type, ast.walk(ast.parse(source))))
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
