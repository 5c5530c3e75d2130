"""Fairness report of a history by Spark.

The figures are those of ``sqlalchemy_fairqueue.reporting``, by the same kernel: Spark brings the rows of each queue to
a Python worker, which measures and replays them: one shuffle, and one result a queue.
"""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import DataType, IntegralType, StringType, TimestampNTZType, TimestampType

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.reporting.columns import COLUMNS, check_columns, check_label_column, labels_of, last_labels
from sqlalchemy_fairqueue.reporting.errors import HistoryEmpty, no_attempts_of
from sqlalchemy_fairqueue.reporting.measurement import figures_of, measure_queue
from sqlalchemy_fairqueue.reporting.page import page_of, tenant_page_of
from sqlalchemy_fairqueue.reporting.replaying import (
    advice_of,
    figures_policy,
    merged_replay,
    recorded_queue,
    replay_queues,
)
from sqlalchemy_fairqueue.reporting.reports import Objective, Report
from sqlalchemy_fairqueue.reporting.simulation.scenarios import REPLAYED, check_scenarios
from sqlalchemy_fairqueue.reporting.simulation.trace import COLUMNS as REPLAYED_COLUMNS
from sqlalchemy_fairqueue.reporting.simulation.trace import COST, PRIORITY
from sqlalchemy_fairqueue.spark.executors import shipped
from sqlalchemy_fairqueue.spark.reading.tables import HISTORY
from sqlalchemy_fairqueue.times import duration
from sqlalchemy_fairqueue.values.fields import Rate
from sqlalchemy_fairqueue.values.policies import ChannelPolicy

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from pyspark.sql import DataFrame, GroupedData

    from sqlalchemy_fairqueue.reporting.columns import LastLabels
    from sqlalchemy_fairqueue.reporting.figures import Figures
    from sqlalchemy_fairqueue.reporting.measurement import MeasuredQueue
    from sqlalchemy_fairqueue.reporting.reports import Advice, Replay
    from sqlalchemy_fairqueue.reporting.simulation.scenarios import QueueSettings, Scenario

TYPES = {column.name: column.type.typeName() for column in HISTORY.columns if column.name != "group"}
"""The type of each column of a history; a replay knows no groups."""

_KINDS: dict[str, tuple[type[DataType], ...]] = {
    "long": (IntegralType,),
    "integer": (IntegralType,),
    "string": (StringType,),
    "timestamp": (TimestampType, TimestampNTZType),
}


def check_replayed_columns(history: DataFrame) -> None:
    """Refuse what cannot be replayed.

    Raises:
        InvalidArgument: A column is missing or of another type.
    """
    missing = [name for name in REPLAYED_COLUMNS if name not in history.columns]
    if missing:
        raise InvalidArgument(
            f"the history lacks {', '.join(missing)}: it has {', '.join(history.columns)}; "
            'read it by format("fairqueue") or from an archive'
        )
    wanted = {name: TYPES[name] for name in REPLAYED_COLUMNS}
    wanted |= {name: kind for name, kind in ((PRIORITY, "integer"), (COST, "long")) if name in history.columns}
    for name, kind in wanted.items():
        found = history.schema[name].dataType
        if not isinstance(found, _KINDS[kind]):
            raise InvalidArgument(f"column {name} of the history is {found.simpleString()}; make it {kind}")


_COLUMNS = ("queue", "channel", "max_concurrency", "rate_interval", "rate_burst", "weight")


class KnownPolicies(NamedTuple):
    """Policies by queue and channel, and the plans that channels follow."""

    policies: dict[tuple[str, str], ChannelPolicy]
    plans: dict[tuple[str, str], str]


def known_policies(policies: DataFrame) -> KnownPolicies:
    """The policies and the plans by queue and channel; the frame is read once.

    Args:
        policies: What ``table=channels`` reads: queue, channel, max_concurrency, rate_interval (an interval, or
            whole microseconds), rate_burst, weight; and rate_of and plan, if they are there. Of rates in cost the
            report knows nothing.

    Raises:
        InvalidArgument: A column is missing.
    """
    missing = [name for name in _COLUMNS if name not in policies.columns]
    if missing:
        raise InvalidArgument(
            f"the policies lack {', '.join(missing)}: they have {', '.join(policies.columns)}; "
            'read them by format("fairqueue").option("table", "channels")'
        )
    interval = F.col("rate_interval")
    if "interval" in policies.schema["rate_interval"].dataType.typeName():
        # An interval in whole microseconds is the distance by which it moves an instant.
        interval = F.unix_micros(F.timestamp_micros(F.lit(0)) + interval)
    rows = policies.select(
        "queue", "channel", "max_concurrency", interval.cast("long").alias("rate_interval"), "rate_burst", "weight",
        F.col("plan") if "plan" in policies.columns else F.lit(None).cast("string").alias("plan"),
        F.col("rate_of") if "rate_of" in policies.columns else F.lit("messages").alias("rate_of"),
    ).collect()  # fmt: skip
    found = {
        (row.queue, row.channel): ChannelPolicy(
            max_concurrency=row.max_concurrency,
            rate=Rate.every(duration(row.rate_interval or 0), row.rate_burst or 1) if row.rate_of != "cost" else None,
            weight=row.weight or 1,
        )
        for row in rows
    }
    return KnownPolicies(found, {(row.queue, row.channel): row.plan for row in rows if row.plan is not None})


R = TypeVar("R")


def results_of(groups: GroupedData, function: Callable[[pa.Table], R]) -> list[R]:
    """The results of a function for each group.

    Raises:
        InvalidArgument: The function raised it. Any other error fails the job.
    """
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


class QueueReport(NamedTuple):
    """What a report says of one queue.

    Attributes:
        measured: Its figures.
        replays: The replay of the record and that of each scenario; empty: nothing was to be replayed.
        advice: A policy for it.
        labels: The labels of its channels, each with the time of the attempt that has it.
    """

    measured: MeasuredQueue
    replays: tuple[Replay, ...]
    advice: tuple[Advice, ...]
    labels: LastLabels


class Asked(NamedTuple):
    """What a report is to say of each queue.

    Attributes:
        policies: The policies of channels, by queue and channel.
        plans: The plans that they follow.
        policies_known: Whether policies and plans were given.
        settings: The settings of queues.
        scenarios: The scenarios to replay.
        replayed: Whether the record is replayed and policies are tried.
        window: Width of the windows over time.
        objective: The target for waits.
        label: The column of labels.
    """

    policies: Mapping[tuple[str, str], ChannelPolicy]
    plans: Mapping[tuple[str, str], str]
    policies_known: bool
    settings: Mapping[str, QueueSettings]
    scenarios: Sequence[Scenario] = ()
    replayed: bool = False
    window: timedelta | None = None
    objective: Objective | None = None
    label: str | None = None


def maker_of(asked: Asked) -> Callable[[pa.Table], QueueReport]:
    """The function that makes the report of a queue, of its rows."""
    shown = {key: figures_policy(policy, asked.plans.get(key)) for key, policy in asked.policies.items()}

    def make(rows: pa.Table) -> QueueReport:
        measured = measure_queue(rows, shown, asked.window)
        labels = {} if asked.label is None else last_labels(rows, asked.label)
        if not asked.replayed and not asked.scenarios:
            return QueueReport(measured, (), (), labels)
        name = rows["queue"][0].as_py()
        policies = {
            channel: policy
            for (queue, channel), policy in asked.policies.items()
            if queue == name and policy != ChannelPolicy()
        }
        queue = recorded_queue(rows, policies, asked.settings.get(name))
        replays = tuple(
            replay_queues([queue], scenario, policies_known=asked.policies_known, window=asked.window)
            for scenario in (None, *asked.scenarios)
        )
        advice = (
            advice_of(
                figures_of([measured]), [queue], replays[0], policies_known=asked.policies_known,
                objective=asked.objective, plans=asked.plans,
            )
            if asked.replayed
            else ()
        )  # fmt: skip
        return QueueReport(measured, replays, advice, labels)

    return make


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

    The history is read once, and shuffled once by queue: the worker that has the rows of a queue also replays them.
    Archive a live one before, so that the report can be made again. The attempts of a queue must fit in the memory of a
    Python worker, at about 200 bytes each, and 500 for a replay.

    Args:
        history: What ``spark.read.format("fairqueue")`` or an archive gives, whole or a part: filter it by queue or
            time as you like. Attempts that a filter removes do not count.
        policies: What ``table=channels`` reads, read once. None: no channel has limits, and all weigh the same.
        settings: The settings of the recorded queues, for replays: what
            :func:`sqlalchemy_fairqueue.reporting.history.read_settings` reads.
        scenarios: Scenarios that are replayed, for comparison with the history.
        output: The file of the page, which is replaced. None: no page.
        title: Its title.
        replays: Replays that :func:`~sqlalchemy_fairqueue.spark.replays` made, instead of *scenarios*.
        window: Width of the windows over time. None: one that makes at most 240 of them.
        objective: A target for the waits of each tenant, such as "p95 < 2 s".
        labels: The names of tenants on the page, by channel, or the column of the history that holds them; others stand
            as they are. Of a column the label of a channel's last attempt counts.
        tenant: A channel: the page is about it alone, on one sheet, and names no other. The figures are of all.
        replayed: Whether the record is replayed under its own policies, to tell how far forecasts can be trusted, and
            policies are tried for the tenant because of whom others were denied their share or miss the objective.

    Raises:
        HistoryEmpty: The history has no attempt, or none of *tenant*.
        InvalidArgument: A column is missing, or the history is of several databases; two scenarios have one name, or
            both *scenarios* and *replays* are given.
        ValueError: The objective cannot be read.
    """
    if scenarios and replays:
        raise InvalidArgument("a report has both scenarios and replays: give one of them")
    target = Objective.parse(objective) if isinstance(objective, str) else objective
    named = check_scenarios(scenarios) if scenarios else {}
    known = KnownPolicies({}, {}) if policies is None else known_policies(policies)
    asked = Asked(
        policies=known.policies, plans=known.plans, policies_known=policies is not None, settings=settings or {},
        scenarios=tuple(named.values()), replayed=replayed, window=window, objective=target,
        label=labels if isinstance(labels, str) else None,
    )  # fmt: skip
    found = results_of(_read(history, asked).groupBy("queue"), maker_of(asked))
    figures = figures_of([one.measured for one in found])
    if tenant is not None and tenant not in {one.channel for one in figures.channels}:
        raise HistoryEmpty(no_attempts_of(tenant))
    names = [REPLAYED, *named] if replayed or named else []
    if labels is None or isinstance(labels, str):
        labels = labels_of(one.labels for one in found)
    made = Report(
        title=title,
        figures=figures,
        replays=tuple(
            merged_replay(name, [one.replays[number] for one in found]) for number, name in enumerate(names)
        ) or tuple(replays),
        path=None if output is None else Path(output),
        made_at=datetime.now(UTC),
        objective=target,
        advice=tuple(sorted((advice for one in found for advice in one.advice), key=lambda advice: advice.queue)),
        labels=labels,
    )  # fmt: skip
    if made.path is not None:
        page = page_of(made) if tenant is None else tenant_page_of(made, tenant)
        made.path.write_text(page, encoding="utf-8")
    return made


def measure(history: DataFrame, *, policies: DataFrame | None = None, window: timedelta | None = None) -> Figures:
    """Take all figures of a history, by one shuffle of its rows to a Python worker a queue.

    The attempts of a queue must fit in the memory of a Python worker, at about 200 bytes each.

    Args:
        history: As for :func:`report`. It is read once.
        policies: As for the report; read once.
        window: Width of the windows over time. None: one that makes at most 240 of them.

    Raises:
        HistoryEmpty: The history has no attempt.
        InvalidArgument: A column is missing, or the history is of several databases.
    """
    return report(history, policies=policies, window=window, output=None).figures


def _read(history: DataFrame, asked: Asked) -> DataFrame:
    """The columns that are needed.

    Raises:
        InvalidArgument: One is missing, or cannot be replayed.
    """
    check_columns(history.columns)
    needed = [*COLUMNS]
    if asked.replayed or asked.scenarios:
        check_replayed_columns(history)
        needed += [*REPLAYED_COLUMNS, PRIORITY]
    if asked.label is not None:
        check_label_column(asked.label, history.columns)
        needed.append(asked.label)
    return history.select(*(name for name in dict.fromkeys([*needed, COST]) if name in history.columns))
