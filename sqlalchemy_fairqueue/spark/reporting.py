"""Makes fairness reports of a history by Spark, and replays many queues under many scenarios in parallel.

The functions of ``sqlalchemy_fairqueue.reporting`` compute the figures. A queue is never split among Spark's Python
workers, since the delivery of a message depends on all messages before it.
"""

from __future__ import annotations

import pickle
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import IntegerType, IntegralType, LongType, StringType, TimestampNTZType, TimestampType

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.reporting.columns import (
    COLUMNS,
    COST,
    PRIORITY,
    REPLAYED_COLUMNS,
    check_columns,
    check_label_column,
)
from sqlalchemy_fairqueue.reporting.history import policy_of
from sqlalchemy_fairqueue.reporting.making import Asked, assembled, of_queue, queue_report
from sqlalchemy_fairqueue.reporting.replaying import merged_replay, recorded_queue, replay_of
from sqlalchemy_fairqueue.reporting.reports import Objective
from sqlalchemy_fairqueue.reporting.simulation.replay import SCHEMA, replay_queue
from sqlalchemy_fairqueue.reporting.simulation.scenarios import RECORDED, REPLAYED, check_scenarios
from sqlalchemy_fairqueue.spark.executors import shipped

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from pyspark.sql import DataFrame, GroupedData
    from pyspark.sql.types import DataType

    from sqlalchemy_fairqueue.reporting.reports import Replay, Report
    from sqlalchemy_fairqueue.reporting.simulation.scenarios import QueueSettings, Scenario
    from sqlalchemy_fairqueue.values.policies import ChannelPolicy

    Key = tuple[str, str]

R = TypeVar("R")

_SCHEMA = from_arrow_schema(SCHEMA)
# The accepted types of a column in a history that is replayed.
_ACCEPTED: dict[type[DataType], tuple[type[DataType], ...]] = {
    **dict.fromkeys((LongType, IntegerType), (IntegralType,)),
    StringType: (StringType,),
    TimestampType: (TimestampType, TimestampNTZType),
}
_COLUMNS = ("queue", "channel", "max_concurrency", "rate_interval", "rate_burst", "weight")


def report(
    history: DataFrame,
    *,
    policies: DataFrame | None = None,
    settings: Mapping[str, QueueSettings] | None = None,
    scenarios: Sequence[Scenario] = (),
    output: str | os.PathLike[str] | None = "fairness.html",
    title: str = "Fairness report",
    replays: Sequence[Replay] = (),
    window: timedelta | None = None,
    objective: Objective | str | None = None,
    labels: Mapping[str, str] | str | None = None,
    tenant: str | None = None,
    replayed: bool = False,
) -> Report:
    """Make a fairness report: figures, and a page that shows and defines them.

    The history is read once and shuffled once by queue. The attempts of a queue must fit in the memory of a Python
    worker, at about 200 bytes each, or 500 bytes each with *scenarios* or *replayed*.

    Args:
        history: From ``spark.read.format("fairqueue")`` or an archive, whole or filtered by queue or time.
        policies: The policies of the channels, as a frame that ``spark.read.format("fairqueue")`` with the option
            ``table=channels`` gives. The call reads the frame once. Default: no limits, and equal weights.
        settings: The settings of the recorded queues, for replays, from
            :func:`sqlalchemy_fairqueue.reporting.history.read_settings`.
        output: As for :func:`sqlalchemy_fairqueue.reporting.report`; so are *title*, *window*, *objective*, *labels*,
            *tenant* and *replayed*.
        replays: Replays from :func:`~sqlalchemy_fairqueue.spark.replays`, instead of *scenarios* and *replayed*.

    Raises:
        HistoryEmpty: The history has no attempts, or none of *tenant*.
        InvalidArgument: A column is missing, the history is from several databases, two scenarios have the same name,
            or *replays* are given together with *scenarios* or *replayed*.
        ValueError: The objective is invalid.
    """
    if replays and (scenarios or replayed):
        raise InvalidArgument("a report has replays, and scenarios or replayed=True too: give only one of them")
    known, plans = _known(policies)
    asked = Asked(
        policies=known, policies_known=policies is not None, plans=plans, settings=settings or {},
        scenarios=check_scenarios(scenarios) if scenarios else {}, replayed=replayed, window=window,
        objective=Objective.of(objective), label=labels if isinstance(labels, str) else None,
    )  # fmt: skip
    check_columns(history.columns)
    needed = [*COLUMNS, COST]
    if asked.replays:
        _check_replayed(history)
        needed += [*REPLAYED_COLUMNS, PRIORITY]
    if asked.label is not None:
        check_label_column(asked.label, history.columns)
        needed.append(asked.label)
    read = history.select(*(name for name in dict.fromkeys(needed) if name in history.columns))
    parts = _results_of(read.groupBy("queue"), partial(queue_report, asked=asked))
    return assembled(parts, asked, output=output, title=title, labels=labels, tenant=tenant, replays=replays)


def replay(
    history: DataFrame, scenarios: Sequence[Scenario], *, recorded: bool = True, policies: DataFrame | None = None
) -> DataFrame:
    """Return the history that each scenario would have given, without ``group`` and with a column ``scenario``.

    Replayed rows have new ids, the times of the replay, a consumer like "worker 1", the recorded outcome, and neither
    error nor recorded_xid. Each action of Spark replays again; keep the frame (``persist``, or write it) if you read it
    more than once. A queue's attempts must fit in a Python worker's memory, at about 500 bytes each.

    Args:
        history: An archive, a live history, or another frame with the columns of a history; each row once. The frame
            may have a column ``priority`` of the messages, which a history itself lacks; null means none.
        recorded: Whether the result also has the recorded history, as scenario "as recorded".
        policies: The recorded policies, as for :func:`report`. This call reads the frame at once. Default: no limits.
            If a scenario gives no *workers*, their number is estimated from how many messages were leased while others
            waited for a worker. The policies serve only to leave waits for a limit or a rate out of this estimate.

    Raises:
        InvalidArgument: A column is missing or has another type; there are no scenarios, or two with the same name. A
            repeated row, or a message in two channels, fails Spark's job with this error.
    """
    named, known = check_scenarios(scenarios), _known(policies)[0]

    def replay_group(rows: pa.Table) -> pa.Table:
        return replay_queue(rows, named[rows["scenario"][0].as_py()], of_queue(known, rows["queue"][0].as_py()))

    replayed = _groups(history, list(named)).applyInArrow(shipped(replay_group), _SCHEMA)
    if not recorded:
        return replayed
    columns = {COST: F.lit(1), **{name: F.col(name) for name in history.columns}}
    columns["scenario"] = F.lit(RECORDED)
    whole = [columns.get(one.name, F.lit(None)).cast(one.dataType).alias(one.name) for one in _SCHEMA]
    return history.select(*whole).unionByName(replayed)


def replays(
    history: DataFrame,
    scenarios: Sequence[Scenario],
    *,
    policies: DataFrame | None = None,
    settings: Mapping[str, QueueSettings] | None = None,
    window: timedelta | None = None,
) -> tuple[Replay, ...]:
    """Return the figures of each scenario, for a report that compares them with the history.

    An additional first result, "as recorded, replayed", is a replay under the recorded policies. The closer this result
    is to the history, the more the other results can be trusted. A scenario's figures are the same as if you called
    :func:`replay`, and then called :func:`report` with the scenario's rows and the scenario's policies. The history is
    read and shuffled once.

    Args:
        history: As for :func:`replay`.
        policies: The recorded policies, as for :func:`report`; by default no limits, and equal weights.
        settings: The recorded settings by queue, from :func:`sqlalchemy_fairqueue.reporting.history.read_settings`.
            A queue that has no settings there counts as fair by messages, without a limit.
        window: As for the report.

    Raises:
        InvalidArgument: As for :func:`replay`. A repeated row, or a message in two channels, raises it at this call.
        HistoryEmpty: The history has no attempts.
    """
    named, known = check_scenarios(scenarios), _known(policies)[0]
    # The function below is pickled, so it must not refer to the frame.
    policies_known = policies is not None

    def replay_rows(rows: pa.Table) -> Replay:
        name = rows["queue"][0].as_py()
        queue = recorded_queue(rows, of_queue(known, name), (settings or {}).get(name))
        scenario = named.get(rows["scenario"][0].as_py())
        return replay_of(queue, scenario, policies_known=policies_known, window=window)

    names = [REPLAYED, *named]
    found = _results_of(_groups(history, names), replay_rows)
    return tuple(merged_replay(name, [one for one in found if one.name == name]) for name in names)


def _groups(history: DataFrame, names: Sequence[str]) -> GroupedData:
    _check_replayed(history)
    read = [*REPLAYED_COLUMNS, *(name for name in (PRIORITY, COST) if name in history.columns)]
    rows = history.select(F.explode(F.array(*map(F.lit, names))).alias("scenario"), *read)
    return rows.groupBy("scenario", "queue")


def _check_replayed(history: DataFrame) -> None:
    check_columns(history.columns, REPLAYED_COLUMNS)
    wanted = {one.name: one.dataType for one in _SCHEMA if one.name in REPLAYED_COLUMNS}
    wanted |= {name: kind for name, kind in ((PRIORITY, IntegerType()), (COST, LongType())) if name in history.columns}
    for name, kind in wanted.items():
        found = history.schema[name].dataType
        if not isinstance(found, _ACCEPTED[type(kind)]):
            raise InvalidArgument(f"column {name} of the history is {found.simpleString()}; make it {kind.typeName()}")


def _known(policies: DataFrame | None) -> tuple[dict[Key, ChannelPolicy], dict[Key, str]]:
    """Return policies (without rates in cost) and plans, by queue and channel, from a frame of ``table=channels``."""
    if policies is None:
        return {}, {}
    missing = [name for name in _COLUMNS if name not in policies.columns]
    if missing:
        raise InvalidArgument(
            f"the policies lack {', '.join(missing)}: they have {', '.join(policies.columns)}; "
            'read them by format("fairqueue").option("table", "channels")'
        )
    interval = F.col("rate_interval")
    if "interval" in policies.schema["rate_interval"].dataType.typeName():
        # Spark cannot convert an interval to microseconds, so the epoch plus the interval is converted.
        interval = F.unix_micros(F.timestamp_micros(F.lit(0)) + interval)
    rows = policies.select(
        "queue", "channel", "max_concurrency", interval.cast("long").alias("rate_interval"), "rate_burst", "weight",
        F.col("plan") if "plan" in policies.columns else F.lit(None).cast("string").alias("plan"),
        F.col("rate_of") if "rate_of" in policies.columns else F.lit("messages").alias("rate_of"),
    ).collect()  # fmt: skip
    limits = {
        (row.queue, row.channel): policy_of(
            row.max_concurrency, None if row.rate_of == "cost" else row.rate_interval, row.rate_burst, row.weight
        )
        for row in rows
    }
    return limits, {(row.queue, row.channel): row.plan for row in rows if row.plan is not None}


def _results_of(groups: GroupedData, function: Callable[[pa.Table], R]) -> list[R]:
    rows = groups.applyInArrow(shipped(_pickled(function)), "made binary").collect()
    found = [pickle.loads(row.made) for row in rows]  # noqa: S301 - of our own executors
    for one in found:
        if isinstance(one, InvalidArgument):
            raise one
    return found


def _pickled(function: Callable[[pa.Table], R]) -> Callable[[pa.Table], pa.Table]:
    def handle(rows: pa.Table) -> pa.Table:
        made: R | InvalidArgument
        try:
            made = function(rows)
        except InvalidArgument as error:
            made = error
        return pa.table({"made": pa.array([pickle.dumps(made)], pa.binary())})

    return handle
