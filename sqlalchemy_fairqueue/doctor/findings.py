"""What checks have in common: findings, contexts, and a function that finds persistent rows.

The function repeats a query for two seconds, and returns the rows that the query returned each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from importlib.resources import files
from time import sleep
from typing import TYPE_CHECKING, Any

from sqlalchemy import TextClause, text

from sqlalchemy_fairqueue.database.calls import once_a_schema, qualifier
from sqlalchemy_fairqueue.sql.schema import quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Mapping
    from datetime import timedelta

    from sqlalchemy import Connection, CursorResult, Row


REPAIR = "run fairqueue doctor --repair as the owner"


class Level(IntEnum):
    """The severity of a finding."""

    OK = 0
    WARNING = 1
    PROBLEM = 2

    @property
    def word(self) -> str:
        return self.name.lower()


class Role(StrEnum):
    """The kind of work that the connected database role should be able to do."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    MONITOR = "monitor"
    OPERATOR = "operator"
    LOADER = "loader"


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of a check.

    Attributes:
        check: What was checked, as a word such as ``leases``, which stays the same in every release.
        remedy: What to do; None: nothing.
        values: The figures behind the message, for programs.
        repair: Statements that ``fairqueue doctor --repair`` executes, as the owner.
    """

    check: str
    level: Level
    message: str
    remedy: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    repair: Sequence[str] = ()

    def document(self) -> dict[str, Any]:
        return {
            "check": self.check,
            "level": self.level.word,
            "message": self.message,
            "remedy": self.remedy,
            "values": dict(self.values),
            "repair": list(self.repair),
        }


_QUALIFIER = "fairqueue.fq_"


@once_a_schema
def query(name: str, schema: str | None = None) -> TextClause:
    """Return the statement ``queries/<name>.sql``; if *schema* is None, the search_path must find fairqueue."""
    return text(_statement(name).replace(_QUALIFIER, f"{qualifier(schema)}fq_"))


def pasted(name: str, schema: str) -> list[str]:
    """Return the statements of the file ``queries/<name>.sql``, which repairs something, each as one line to paste."""
    lines = (" ".join(statement.split()).removesuffix(";") + ";" for statement in _statement(name).split(";\n"))
    tidy = (line.replace("( ", "(").replace(" )", ")") for line in lines)
    # The schema is inserted last, since its name may contain blanks and brackets, which the steps above would change.
    return [line.replace(_QUALIFIER, f"{quoted(schema)}.fq_") for line in tidy]


def _statement(name: str) -> str:
    lines = (files(__package__) / "queries" / f"{name}.sql").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("--")).strip()


@dataclass(frozen=True, slots=True)
class CheckContext:
    """The installation that is checked, and the options of the check.

    Attributes:
        connection: Each check has its own read-only transaction on it.
        queue: The only queue to check; None: all.
        max_age: A queue is behind only if a message is deliverable and the oldest ready message waits longer than this.
        allowed: Objects that may differ from the installed version, such as ``index message_tenant``.
        role: The kind of work that the connected database role should be able to do.
    """

    connection: Connection
    schema: str
    version: int
    queue: str | None
    max_age: timedelta
    allowed: Collection[str] = ()
    role: Role = Role.CONSUMER

    def execute(self, name: str, **parameters: object) -> CursorResult[Any]:
        return self.connection.execute(query(name, self.schema), parameters)


Found = Callable[[CheckContext], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class Check:
    """A check: a function that yields findings.

    Attributes:
        nothing: What to say if there is no finding; None: say nothing.
        functions: Functions that the check calls. For a role that may not execute them, the check is left out.
        tables: Tables that the check reads. For a role that may not read them, the check is left out.
        any_version: Whether the check works with versions that this library cannot use.
    """

    function: Found
    nothing: str | None
    functions: tuple[str, ...]
    tables: tuple[str, ...]
    any_version: bool

    @property
    def subject(self) -> str:
        return self.function.__name__.removeprefix("check_")

    def __call__(self, context: CheckContext) -> Iterator[Finding]:
        found = False
        for finding in self.function(context):
            found = True
            yield finding
        if not found and self.nothing is not None:
            yield Finding(self.subject, Level.OK, self.nothing)


def check(
    nothing: str | None = None,
    *,
    functions: tuple[str, ...] = (),
    tables: tuple[str, ...] = (),
    any_version: bool = False,
) -> Callable[[Found], Check]:
    """Return a decorator that makes a :class:`Check` of a function; the arguments become attributes of the Check."""
    return lambda function: Check(function, nothing, functions, tables, any_version)


_SAMPLES = 20
_INTERVAL_SECONDS = 0.1
# Within a transaction, PostgreSQL repeats its first answer about sessions until the snapshot is cleared.
_CLEAR = text("select pg_stat_clear_snapshot()")


def _is_always_same(_before: Row[Any], _after: Row[Any]) -> bool:
    return True


def persistent_rows(
    connection: Connection,
    sample: Callable[[], Mapping[Hashable, Row[Any]]],
    is_same: Callable[[Row[Any], Row[Any]], bool] = _is_always_same,
) -> list[Row[Any]]:
    """Take samples for two seconds, and return the rows that every sample has; return at once when no row is left.

    *sample* returns rows by identity. *is_same* tells whether two rows of one identity show the same state.
    """
    connection.execute(_CLEAR)
    kept = sample()
    for _ in range(_SAMPLES):
        if not kept:
            break
        sleep(_INTERVAL_SECONDS)
        connection.execute(_CLEAR)
        now = sample()
        kept = {key: now[key] for key, row in kept.items() if key in now and is_same(row, now[key])}
    return list(kept.values())
