"""Checks the installed schema: version, drift, sequences, history, times in the future, and repeated state rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.doctor.findings import REPAIR, Finding, Level, check, pasted
from sqlalchemy_fairqueue.doctor.installation import current_role, outdated
from sqlalchemy_fairqueue.formats import format_duration, plural
from sqlalchemy_fairqueue.sql.catalog import find_drift
from sqlalchemy_fairqueue.sql.files import versions
from sqlalchemy_fairqueue.sql.schema import quoted, quoted_literal, schema_argument
from sqlalchemy_fairqueue.times import duration, instant, microseconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Row

    from sqlalchemy_fairqueue.doctor.findings import CheckContext


_DRIFT_REMEDY = "find out who changed it outside the migrations; --allow '{}' where that was on purpose"


@check(any_version=True)
def check_version(context: CheckContext) -> Iterator[Finding]:
    values = {"schema": context.schema, "version": context.version}
    failure = outdated(context.schema, context.version, context.schema)
    if failure is None:
        message = f"fairqueue version {context.version} in schema {context.schema!r}"
        if context.version not in versions():
            message += ", which this library does not know, so that it is not compared with its migrations"
        yield Finding("version", Level.OK, message, None, values)
    else:
        yield Finding("version", Level.PROBLEM, str(failure), failure.remedy, values)


@check()
def check_drift(context: CheckContext) -> Iterator[Finding]:
    if context.version not in versions():
        return
    # Grants have a check of their own.
    found = [one for one in find_drift(context.connection, context.schema) if one.kind != "grant"]
    differences = [one for one in found if one.named not in context.allowed]
    repair = f"op.repair_fairqueue({context.version}{schema_argument(context.schema)}) in a migration brings it back"
    for difference in differences:
        remedy = repair if difference.kind == "function" else _DRIFT_REMEDY.format(difference.named)
        values = {"kind": difference.kind, "object": difference.name, "state": difference.state}
        yield Finding("drift", Level.PROBLEM, str(difference), remedy, values)
    if not differences:
        note = f", but for {len(found)} that may differ" if found else ""
        yield Finding("drift", Level.OK, f"every table, index and function is as the migrations left it{note}")
    unmet = {one for one in context.allowed if not one.startswith("grant ")} - {one.named for one in found}
    for unseen in sorted(unmet):
        yield Finding("drift", Level.WARNING, f"{unseen!r} is allowed and does not differ", "leave it out of --allow")


# The ids of these tables are checked only if the role may read the tables: its work with the queue needs no such right.
_READABLE_QUERIES = {
    "fq_history": "history_ids_in_use",
    "fq_pruned_history": "pruned_ids_in_use",
    "fq_schedule": "schedule_ids_in_use",
}


@check(
    "the next ids of messages, signals and channels are new ones",
    tables=("fq_message", "fq_dead_letter", "fq_channel", "fq_signal", "fq_channel_state"),
)
def check_sequences(context: CheckContext) -> Iterator[Finding]:
    """Check that the next id of each sequence is above all ids in use, and that no dead letter has a message's id."""
    # The sequences are read after the ids: ids that are drawn in between are no problem.
    in_use = _ids_in_use(context)
    rows = context.execute("sequences", schema=context.schema, tables=list(in_use)).all()
    for row in rows:
        if (finding := _sequence_finding(context, row, in_use[row.table])) is not None:
            yield finding
    if repeated := context.execute("repeated_ids").scalar_one():
        yield _repeated_ids(context.schema, repeated)


def _ids_in_use(context: CheckContext) -> dict[str, int]:
    found = dict(context.execute("ids_in_use").one()._asdict())
    tables = list(_READABLE_QUERIES)
    for table in context.execute("readable_tables", schema=context.schema, tables=tables).scalars().all():
        found[table] = context.execute(_READABLE_QUERIES[table]).scalar()
    return {table: greatest or 0 for table, greatest in found.items()}


def _sequence_finding(context: CheckContext, row: Row[Any], greatest: int) -> Finding | None:
    sequence = f"{quoted(context.schema)}.{quoted(row.sequence)}"
    is_optional, last = row.table in _READABLE_QUERIES, row.last or 0
    if not row.readable:
        if is_optional:
            return None
        role = current_role(context.connection)
        return Finding(
            "sequences", Level.WARNING, f"role {role!r} may not read the last value of sequence {row.sequence}",
            f"grant select on sequence {sequence} to {quoted(role)};",
        )  # fmt: skip
    if last >= greatest:
        return None
    literal = quoted_literal(sequence)
    least = f"(select max(id) from {quoted(context.schema)}.{row.table})" if is_optional else str(greatest)  # noqa: S608 (quoted)
    return Finding(
        "sequences", Level.PROBLEM,
        f"sequence {row.sequence} is at {last:,}, and {row.table} was at {greatest:,}: its next ids are old ones",
        REPAIR, {"sequence": row.sequence, "last": last, "greatest": greatest},
        [f"select setval({literal}, greatest(nextval({literal}), {least}));"],
    )  # fmt: skip


def _repeated_ids(schema: str, count: int) -> Finding:
    return Finding(
        "sequences", Level.PROBLEM,
        f"{plural(count, 'dead letter')} with the id of an existing message, which cannot become a dead letter",
        REPAIR, {"dead_letters": count},
        pasted("repeated_ids_repair", schema),
    )  # fmt: skip


_PRUNE = "fairqueue history prune; a worker does it by itself if its role may execute fq_keep_history"
_MAX_COUNTED = 100_000
_FIRST = timedelta(minutes=5)
"""Rows may be in the default partition for this long: the housekeeping of a new worker begins within a minute."""


@check(tables=("fq_queue",))
def check_history(context: CheckContext) -> Iterator[Finding]:
    yield from _partitions(context)
    yield from _impostors(context)
    yield from _transactions(context)


def _impostors(context: CheckContext) -> Iterator[Finding]:
    found = context.execute("history_impostors", schema=context.schema).all()
    if found:
        names, owners = [row.name for row in found], sorted({row.owner for row in found})
        yield Finding(
            "history", Level.WARNING,
            f"{plural(len(found), 'relation')} with the name of a partition of the history that is none ({names[0]}, "
            f"which belongs to {found[0].owner!r}): the housekeeping gives the partition of that day another name",
            f"rename or drop it, and run: revoke create on schema {quoted(context.schema)} from {quoted(owners[0])};",
            {"relations": names, "owners": owners},
        )  # fmt: skip


def _transactions(context: CheckContext) -> Iterator[Finding]:
    # Readers of the history go on after the last transaction id that they read, so they miss rows with ids of another
    # server. A role that may not read the history gets no finding here, since its work needs no such right.
    if not context.execute("history_readable", schema=context.schema).scalar():
        return
    foreign = context.execute("history_foreign", most=_MAX_COUNTED).scalar()
    if foreign:
        at_least = "at least " if foreign == _MAX_COUNTED else ""
        yield Finding(
            "history", Level.PROBLEM,
            f"{at_least}{plural(foreign, 'row')} of the history with transaction ids that this server has not come "
            "to, as after a restore: archives and Spark do not see them, and top counts them again and again",
            REPAIR, {"foreign": foreign},
            pasted("foreign_history_repair", context.schema),
        )  # fmt: skip


def _partitions(context: CheckContext) -> Iterator[Finding]:
    row = context.execute("history_state", schema=context.schema).one()
    strays = None
    if row.readable:
        strays = context.execute("history_strays", most=_MAX_COUNTED, grace=microseconds(_FIRST)).scalar()
    days = [_day(name) for name in context.execute("history_partitions", schema=context.schema).scalars()]
    today = instant(row.now).replace(hour=0, minute=0, second=0, microsecond=0)
    ahead = sum(day > today for day in days)
    values = {"queues": row.queues, "partitions": len(days), "ahead": ahead, "strays": strays}
    if strays:
        at_least = "at least " if strays == _MAX_COUNTED else ""
        yield Finding(
            "history", Level.WARNING,
            f"{at_least}{plural(strays, 'row')} of the history in its default partition, as their day had none",
            _PRUNE, values,
        )  # fmt: skip
    if row.queues and not days and strays == 0:
        yield Finding(
            "history", Level.OK, "no partition of the history yet: the first housekeeping of a worker makes them",
            None, values,
        )  # fmt: skip
    elif row.queues and (not ahead or today not in days):
        missing = today if today not in days else today + timedelta(days=1)
        yield Finding(
            "history", Level.WARNING, f"the history has no partition for {missing:%Y-%m-%d}", _PRUNE, values
        )  # fmt: skip
    elif not strays:
        kept = f"{plural(row.queues, 'queue')}, partitions of {plural(len(days), 'day')}, {ahead:,} of them ahead"
        yield Finding("history", Level.OK, kept if row.queues else "no queue records its history", None, values)


def _day(partition: str) -> datetime:
    return datetime.strptime(partition.removeprefix("fq_history_p")[:8], "%Y%m%d").replace(tzinfo=UTC)


_GRACE = timedelta(minutes=1)
_NOUNS = ("channel", "message", "limit", "plan", "key", "group", "schedule")


@check(
    "nothing was served, enqueued or run at a time that is to come",
    tables=("fq_channel", "fq_channel_state", "fq_message"),
)
def check_times(context: CheckContext) -> Iterator[Finding]:
    for row in context.execute("future_times", grace=microseconds(_GRACE), queue=context.queue):
        ahead = duration(row.ahead)
        counts = {f"{noun}s": int(getattr(row, f"{noun}s")) for noun in _NOUNS}
        shown = ", ".join(plural(counts[f"{noun}s"], noun) for noun in _NOUNS if counts[f"{noun}s"])
        yield Finding(
            "times", Level.PROBLEM,
            f"queue {row.queue!r} has {shown} with times up to {format_duration(ahead)} ahead of the server's clock, "
            "which was wrong then: they wait for that long",
            f"stop the workers; {REPAIR}; start them again",
            {"queue": row.queue, **counts, "ahead_seconds": ahead}, pasted("future_times_repair", context.schema),
        )  # fmt: skip


@check(
    "no channel is set aside, and no channel, queue or shared limit has several state rows",
    tables=("fq_channel", "fq_channel_state", "fq_queue_state", "fq_limit_share"),
)
def check_states(context: CheckContext) -> Iterator[Finding]:
    for row in context.execute("set_aside", queue=context.queue):
        yield Finding(
            "states", Level.WARNING,
            f"channel {row.channel!r} of queue {row.queue!r} is paused: {row.problem}",
            "cancel the message, or mend its row as the owner; then resume the channel",
            {"queue": row.queue, "channel": row.channel, "problem": row.problem},
        )  # fmt: skip
    yield from _repeated_states(context)


def _repeated_states(context: CheckContext) -> Iterator[Finding]:
    for row in context.execute("repeated_states", queue=context.queue):
        yield _several(
            context, "repeated_states_repair",
            f"queue {row.queue!r}: {plural(len(row.channel_ids), 'channel')} with several state rows; their limits do "
            "not hold",
            {"queue": row.queue, "channel_ids": list(row.channel_ids)},
        )  # fmt: skip
    for row in context.execute("repeated_queue_states", queue=context.queue):
        yield _several(
            context, "repeated_queue_states_repair",
            f"queue {row.queue!r} has {row.rows} state rows; its limit does not hold",
            {"queue": row.queue, "rows": row.rows},
        )  # fmt: skip
    for row in context.execute("repeated_limit_states", queue=context.queue):
        rows = f"rows for queue {row.share_of!r}" if row.share_of else "state rows"
        yield _several(
            context, "repeated_limit_states_repair",
            f"shared limit {row.limit_name!r} has {row.rows} {rows}; it does not hold",
            {"limit": row.limit_name, "rows": row.rows},
        )  # fmt: skip


def _several(context: CheckContext, repair: str, message: str, values: Mapping[str, Any]) -> Finding:
    remedy = f"somebody has inserted rows; {REPAIR} keeps the newest"
    return Finding("states", Level.PROBLEM, message, remedy, values, pasted(repair, context.schema))
