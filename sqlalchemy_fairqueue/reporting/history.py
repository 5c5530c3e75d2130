"""Histories as Arrow tables: read from the database in one transaction, or from a Parquet archive."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue.database.drivers import driver_of
from sqlalchemy_fairqueue.database.engines import isolate, without_pool
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.reporting.columns import COST, HISTORY, REPLAYED_COLUMNS, TIME, check_label_column
from sqlalchemy_fairqueue.reporting.copying import copied_text, parsed
from sqlalchemy_fairqueue.reporting.errors import HistoryEmpty, HistoryTooLong, HistoryUnreadable, empty_history
from sqlalchemy_fairqueue.reporting.simulation.scenarios import QueueSettings
from sqlalchemy_fairqueue.sql.schema import quoted
from sqlalchemy_fairqueue.times import duration, instant_microseconds
from sqlalchemy_fairqueue.values.checks import check_instant
from sqlalchemy_fairqueue.values.fields import Rate
from sqlalchemy_fairqueue.values.policies import ChannelPolicy

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from sqlalchemy import Engine

_FILE = re.compile(r"(?:.*/)?day=(\d{4}-\d{2}-\d{2})/history-(\d+)-(\d+)\.parquet")
_EPOCH = date(1970, 1, 1)


class ArchiveFile(NamedTuple):
    """A file of an archive, with attempts that ended on one UTC day (*day* days after 1970-01-01).

    The transactions that recorded these attempts have ids from *low* to below *high*.
    """

    day: int
    low: int
    high: int

    @classmethod
    def named(cls, path: str) -> ArchiveFile | None:
        found = _FILE.fullmatch(path)
        return found and cls((date.fromisoformat(found[1]) - _EPOCH).days, int(found[2]), int(found[3]))

    @property
    def folder(self) -> str:
        return f"day={day_of(self.day).isoformat()}"

    @property
    def path(self) -> str:
        return f"{self.folder}/history-{self.low}-{self.high}.parquet"


def day_of(number: int) -> date:
    return _EPOCH + timedelta(days=number)


def _in_order(paths: Iterable[str]) -> Iterator[tuple[ArchiveFile, str, int]]:
    files = ((file, path) for path in paths if (file := ArchiveFile.named(path)))
    reached = defaultdict[int, int](int)
    for file, path in sorted(files, key=lambda one: (one[0].day, one[0].low, -one[0].high, one[1])):
        yield file, path, reached[file.day]
        reached[file.day] = max(reached[file.day], file.high)


def superseded(paths: Iterable[str]) -> set[str]:
    """Return the paths of files that a compaction joined into another but has not removed yet; readers skip them."""
    return {path for file, path, reached in _in_order(paths) if 0 < file.high <= reached}


def has_gap(paths: Iterable[str]) -> bool:
    """Return whether a day's files have a gap in transaction ids. A compaction during the listing can cause a gap."""
    return any(file.low > reached for file, _, reached in _in_order(paths))


MOST_ATTEMPTS = 20_000_000
"""The most attempts that :func:`read_history` reads by default. Each takes about 200 bytes, or 500 with a replay."""

_TEXTS = ("queue", "channel", "kind", "outcome")
_CODES = pa.dictionary(pa.int32(), pa.string())
COLUMNS = (*REPLAYED_COLUMNS, COST)

_SCHEMA = pa.schema([(name, _CODES if name in _TEXTS else HISTORY.field(name).type) for name in COLUMNS])
# For these columns the server sends the difference to ``enqueued_at``, which has fewer digits.
_SINCE = dict.fromkeys(("ready_at", "started_at", "finished_at"), "enqueued_at")
_SETTINGS = "set jit = off; set client_encoding = 'UTF8'; set statement_timeout = 0"
_BEGIN = "begin transaction isolation level repeatable read, read only"
_EXPRESSIONS = (f"h.{name} - h.{_SINCE[name]}" if name in _SINCE else f"h.{name}" for name in COLUMNS)
_ROWS = " ".join(["select", ", ".join(_EXPRESSIONS), "from {schema}fq_history h where {condition}"])
_COUNT = "select count(*) from (select from {schema}fq_history h where {condition} limit %(most)s) h"
_POLICIES = (
    "select c.queue, c.name, s.max_concurrency, case s.rate_of when 'messages' then s.rate_interval end, s.rate_burst, "
    "s.weight from {schema}fq_channel c "
    "cross join lateral (select * from {schema}fq_channel_state s where s.channel_id = c.id "
    "order by s.channel_id desc, s.row_version desc limit 1) s where {condition}"
)
_PLANS = (
    "select p.queue, c.name, p.plan from {schema}fq_channel_plan p join {schema}fq_channel c on c.id = p.channel_id "
    "where p.plan is not null and {condition}"
)
_QUEUES = "select q.name, q.fair_by, q.max_concurrency from {schema}fq_queue q where {condition}"


@dataclass(frozen=True, slots=True)
class RecordedHistory:
    """A history: a row for each ended attempt, and the policies, plans and settings that were read or given with it.

    Attributes:
        policies: By queue and channel.
        policies_known: Whether policies were read or given.
        settings: By queue; queues that were never configured are missing.
        plans: By queue and channel; channels without a plan are missing.

    See Also:
        :func:`read_history`
    """

    attempts: pa.Table
    policies: Mapping[tuple[str, str], ChannelPolicy] = field(default_factory=dict)
    policies_known: bool = False
    settings: Mapping[str, QueueSettings] = field(default_factory=dict)
    plans: Mapping[tuple[str, str], str] = field(default_factory=dict)


def read_history(
    engine: Engine,
    *,
    queue: str | None = None,
    schema: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    most: int = MOST_ATTEMPTS,
) -> RecordedHistory:
    """Read the history of a database, and the policies of its channels, in one read-only transaction.

    The call opens a psycopg connection of its own without statement timeout, and takes no lock that a queue waits for.
    Until everything is read, at one to two million attempts a second, its snapshot keeps vacuums from removing rows.

    Args:
        queue: Default: all queues.
        schema: The schema of the installation. Default: the first of the search_path that has one.
        since: Earliest end of an attempt, inclusive.
        until: Latest end of an attempt, exclusive.

    Raises:
        HistoryEmpty: There is no such attempt.
        HistoryTooLong: There are more such attempts than *most*.
        HistoryUnreadable: The server is unreachable, or refuses.
        InvalidArgument: A time has no time zone. InvalidArgument is a ValueError.
        ValueError: The engine is asynchronous, or not of psycopg.

    Example:
        >>> queue.configure(engine, history=True)
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> queue.complete(engine, queue.dequeue(engine))
        >>> read_history(engine, queue=queue.name, since=datetime.now(UTC) - timedelta(days=7)).attempts.num_rows
        1
    """
    clauses, values = _condition(queue, since, until)
    names = {"schema": _qualifier(schema), "condition": clauses}
    with _connection(engine) as connection:
        connection.execute(_BEGIN)
        found = connection.execute(_COUNT.format(**names).encode(), {**values, "most": most + 1}).fetchone()
        if found and found[0] > most:
            raise HistoryTooLong(
                f"the history has more than {most:,} attempts; narrow it by a queue or by time, or use Spark"
            )
        chunks = copied_text(connection, _ROWS.format(**names), values)
        batches = [parsed(chunk, _SCHEMA, _SINCE, use_threads=True) for chunk in chunks]
        if not batches:
            raise HistoryEmpty(empty_history())
        policies, settings = _policies(connection, queue, schema), _settings(connection, queue, schema)
        plans = _plans(connection, queue, schema)
    attempts = pa.Table.from_batches(batches).unify_dictionaries()
    return RecordedHistory(attempts, policies, policies_known=True, settings=settings, plans=plans)


def read_policies(
    engine: Engine, *, queue: str | None = None, schema: str | None = None
) -> dict[tuple[str, str], ChannelPolicy]:
    """Read policies by queue and channel, for :func:`read_archive`.

    *queue*, *schema*, HistoryUnreadable and ValueError are as in :func:`read_history`.
    """
    with _connection(engine) as connection:
        return _policies(connection, queue, schema)


def read_plans(engine: Engine, *, queue: str | None = None, schema: str | None = None) -> dict[tuple[str, str], str]:
    """Read plans by queue and channel, for :func:`read_archive`; arguments and errors as in :func:`read_policies`."""
    with _connection(engine) as connection:
        return _plans(connection, queue, schema)


def read_settings(engine: Engine, *, queue: str | None = None, schema: str | None = None) -> dict[str, QueueSettings]:
    """Read settings by queue, for :func:`read_archive`; arguments and errors as in :func:`read_policies`."""
    with _connection(engine) as connection:
        return _settings(connection, queue, schema)


def read_archive(
    path: str | os.PathLike[str],
    *,
    queue: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    policies: Mapping[tuple[str, str], ChannelPolicy] | None = None,
    settings: Mapping[str, QueueSettings] | None = None,
    plans: Mapping[tuple[str, str], str] | None = None,
    label: str | None = None,
) -> RecordedHistory:
    """Read an archive that Spark made, in a local folder; *queue*, *since* and *until* are as in :func:`read_history`.

    Args:
        path: The folder, or one of its Parquet files.
        policies: From :func:`read_policies`, since an archive has none.
        settings: From :func:`read_settings`.
        plans: From :func:`read_plans`.
        label: A further column to read, with labels of tenants.

    Raises:
        HistoryEmpty: The archive has no such attempts.
        HistoryUnreadable: The folder does not exist, or is no archive.
        InvalidArgument: The archive has no column *label*, or a time has no time zone. InvalidArgument is a ValueError.
    """
    from pyarrow import dataset  # noqa: PLC0415 - a history in the database needs none

    try:
        found = dataset.dataset(_files_of(Path(path)), format="parquet", exclude_invalid_files=False)
        # The first file determines the columns. If it is from before costs existed, the costs of later files would be
        # hidden, so the column is added. A null means a cost of 1.
        if "cost" not in found.schema.names:
            found = found.replace_schema(found.schema.append(pa.field("cost", pa.int64())))
        conditions = [pc.scalar(True)]
        if queue is not None:
            conditions.append(pc.field("queue") == queue)
        if since is not None:
            check_instant("since", since)
            conditions.append(pc.field("finished_at") >= pa.scalar(since, TIME))
        if until is not None:
            check_instant("until", until)
            conditions.append(pc.field("finished_at") < pa.scalar(until, TIME))
        if label is not None:
            check_label_column(label, found.schema.names)
        columns = dict.fromkeys([*COLUMNS, *([label] if label else [])])
        table = found.to_table(columns=list(columns), filter=reduce(and_, conditions))
    except (OSError, pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise HistoryUnreadable(f"there is no archive at {str(path)!r}: {error}") from error
    if not len(table):
        raise HistoryEmpty(empty_history())
    costs = pc.fill_null(table["cost"], 1)
    table = table.set_column(table.schema.get_field_index("cost"), "cost", costs)
    return RecordedHistory(
        table, policies or {}, policies_known=policies is not None, settings=settings or {}, plans=plans or {}
    )


LISTINGS = 5
"""The most listings of a folder. A listing is repeated if it lacks rows, because a compaction ran meanwhile."""


def _files_of(path: Path) -> Path | list[str]:
    files: list[str] = []
    for _ in range(LISTINGS):
        files = sorted(file.as_posix() for file in path.rglob("*.parquet") if not _is_hidden(file.relative_to(path)))
        if not has_gap(files):
            break
    covered = superseded(files)
    return [file for file in files if file not in covered] or path


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _condition(queue: str | None, since: datetime | None, until: datetime | None) -> tuple[str, dict[str, Any]]:
    clauses, values = ["true"], dict[str, Any]()
    if queue is not None:
        clauses.append("h.queue = %(queue)s")
        values["queue"] = queue
    for name, bound, comparison in (("since", since, ">="), ("until", until, "<")):
        if bound is not None:
            clauses.append(f"h.finished_at {comparison} %({name})s")
            check_instant(name, bound)
            values[name] = instant_microseconds(bound)
    return " and ".join(clauses), values


def _qualifier(schema: str | None) -> str:
    # Percent signs are doubled for statements with parameters.
    return f"{quoted(schema)}.".replace("%", "%%") if schema else ""


def _policies(
    connection: psycopg.Connection, queue: str | None, schema: str | None
) -> dict[tuple[str, str], ChannelPolicy]:
    return {(row[0], row[1]): policy_of(*row[2:]) for row in _rows(connection, _POLICIES, "c.queue", queue, schema)}


def _plans(connection: psycopg.Connection, queue: str | None, schema: str | None) -> dict[tuple[str, str], str]:
    return {(row[0], row[1]): row[2] for row in _rows(connection, _PLANS, "p.queue", queue, schema)}


def _settings(connection: psycopg.Connection, queue: str | None, schema: str | None) -> dict[str, QueueSettings]:
    return {row[0]: QueueSettings(*row[1:]) for row in _rows(connection, _QUEUES, "q.name", queue, schema)}


def _rows(
    connection: psycopg.Connection, statement: str, column: str, queue: str | None, schema: str | None
) -> list[tuple[Any, ...]]:
    condition, values = ("true", {}) if queue is None else (f"{column} = %(queue)s", {"queue": queue})
    text = statement.format(schema=_qualifier(schema), condition=condition)
    return connection.execute(text.encode(), values).fetchall()


def policy_of(
    max_concurrency: int | None, rate_interval: int | None, rate_burst: int | None, weight: int | None
) -> ChannelPolicy:
    """Return the policy made of columns of a state row; *rate_interval* is in microseconds."""
    rate = Rate.every(duration(rate_interval or 0), rate_burst or 1)
    return ChannelPolicy(max_concurrency=max_concurrency, rate=rate, weight=weight or 1)


@contextmanager
def _connection(engine: Engine) -> Iterator[psycopg.Connection]:
    """Yield a psycopg connection in autocommit. Errors of the server become HistoryUnreadable."""
    dialect = engine.dialect
    if dialect.driver != "psycopg" or dialect.is_async:
        kind = "an AsyncEngine of " if dialect.is_async else ""
        raise InvalidArgument(
            f"the history is read by psycopg's COPY, and the engine is {kind}{dialect.name}+{dialect.driver}; give "
            "create_engine('postgresql+psycopg://...') to the same database, or the command --database-url"
        )
    try:
        # A connection outside of the pool, since its settings are changed.
        with without_pool(engine).connect() as opened:
            isolate(opened, {"isolation_level": "AUTOCOMMIT"})
            connection = opened.connection.driver_connection
            assert isinstance(connection, psycopg.Connection)  # noqa: S101 - by the name of the driver
            try:
                connection.execute(_SETTINGS)
                yield connection
            finally:
                driver_of(engine).end(connection, asyncio.run)
                opened.invalidate()
    except (psycopg.Error, DBAPIError) as error:
        # SQLAlchemy wraps errors of the connection attempt.
        cause: Any = error.orig if isinstance(error, DBAPIError) else error
        said = cause.diag.message_primary or str(cause).strip() or type(cause).__name__
        raise HistoryUnreadable(
            f"the history cannot be read: {said} (SQLSTATE {cause.sqlstate or 'none: the connection was lost'})"
        ) from cause
