"""Replays of many queues under many scenarios, in parallel on the cluster: one group a scenario and queue.

One Python worker replays a whole queue: the delivery of a message depends on all messages before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import DataType, IntegralType, StringType, TimestampNTZType, TimestampType

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.spark.reporting.figures import Replay
from sqlalchemy_fairqueue.spark.reporting.measurement import measure
from sqlalchemy_fairqueue.spark.simulation.replay import replay_queue
from sqlalchemy_fairqueue.spark.simulation.scenarios import RECORDED, check_scenarios
from sqlalchemy_fairqueue.spark.simulation.trace import COLUMNS, PRIORITY
from sqlalchemy_fairqueue.times import microseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    import pyarrow as pa
    from pyspark.sql import DataFrame, Row

    from sqlalchemy_fairqueue.spark.simulation.scenarios import Scenario

_TYPES = {
    "id": "long",
    "queue": "string",
    "channel_id": "long",
    "channel": "string",
    "message_id": "long",
    "kind": "string",
    "consumer": "string",
    "attempt": "int",
    "enqueued_at": "timestamp",
    "ready_at": "timestamp",
    "started_at": "timestamp",
    "finished_at": "timestamp",
    "outcome": "string",
    "error": "string",
    "recorded_xid": "long",
}
_KINDS: dict[str, tuple[type[DataType], ...]] = {
    "long": (IntegralType,),
    "int": (IntegralType,),
    "string": (StringType,),
    "timestamp": (TimestampType, TimestampNTZType),
}
_SCHEMA = ", ".join(f"{name} {kind}" for name, kind in {"scenario": "string", **_TYPES}.items())
_POLICIES = "queue string, channel string, max_concurrency long, rate_interval long, rate_burst long, weight long"


def replay(history: DataFrame, scenarios: Sequence[Scenario], *, recorded: bool = True) -> DataFrame:
    """The history that each of the scenarios would have given.

    It is computed by an action, and by each action again: keep the result (``persist``, or write it) if it is read more
    than once. A queue's attempts must fit in a Python worker's memory, at about 500 bytes each.

    Args:
        history: An archive, a live history, or anything with its columns; each row once. A column ``priority`` (of the
            message; null: none) is honoured: a history itself has no priorities.
        scenarios: The scenarios.
        recorded: Whether the recorded history is in the result too, as scenario "as recorded".

    Returns:
        The columns of a history behind a column ``scenario``. Replayed rows have times of the replay, the number of a
        worker as consumer, the outcome that the attempt had, and neither error nor recorded_xid.

    Raises:
        InvalidArgument: A column is missing or of another type; there are no scenarios, or two of one name. A row that
            is there twice, or a message in two channels, fails the job with this error.
    """
    named = check_scenarios(scenarios)
    _check_columns(history)
    read = [*COLUMNS, *([PRIORITY] if PRIORITY in history.columns else [])]
    groups = history.select(F.explode(F.array(*map(F.lit, named))).alias("scenario"), *read)
    replayed = groups.groupBy("scenario", "queue").applyInArrow(_replayer(named), _SCHEMA)
    if not recorded:
        return replayed
    known = {name: F.col(name) for name in history.columns}
    whole = [known.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in _TYPES.items()]
    return history.select(F.lit(RECORDED).alias("scenario"), *whole).unionByName(replayed)


def replays(
    history: DataFrame, scenarios: Sequence[Scenario], *, window: timedelta | None = None
) -> tuple[Replay, ...]:
    """The figures of each scenario, in their order, for a report that compares them with the history.

    They are the report's figures of the result of :func:`replay`; fair shares are by the scenario's policies. The
    scenarios are replayed in parallel, and kept on disk until all are measured.

    Args:
        history: As for :func:`replay`.
        scenarios: The scenarios.
        window: Width of the windows over time. None: as for the report.

    Raises:
        InvalidArgument: As for :func:`replay`.
        HistoryEmpty: The history has no attempt.
    """
    kept = replay(history, scenarios, recorded=False).persist(StorageLevel.DISK_ONLY)
    try:
        channels = kept.select("queue", "channel").distinct().collect()
        return tuple(_measured(kept, scenario, channels, window) for scenario in scenarios)
    finally:
        kept.unpersist()


def _measured(kept: DataFrame, scenario: Scenario, channels: Sequence[Row], window: timedelta | None) -> Replay:
    rows = [
        (
            channels[number].queue,
            channels[number].channel,
            policy.max_concurrency,
            microseconds(policy.rate_interval),
            policy.rate_burst,
            policy.weight,
        )
        for policy, numbers in scenario.policies_of([row.channel for row in channels])
        for number in numbers
    ]
    policies = kept.sparkSession.createDataFrame(rows, _POLICIES)
    figures = measure(kept.where(F.col("scenario") == scenario.name), policies=policies, window=window)
    return Replay(scenario.name, figures.channels, figures.queues)


def _replayer(scenarios: Mapping[str, Scenario]) -> Callable[[pa.Table], pa.Table]:
    def replay_group(history: pa.Table) -> pa.Table:
        return replay_queue(history, scenarios[history["scenario"][0].as_py()])

    return replay_group


def _check_columns(history: DataFrame) -> None:
    missing = [name for name in COLUMNS if name not in history.columns]
    if missing:
        raise InvalidArgument(
            f"the history lacks {', '.join(missing)}: it has {', '.join(history.columns)}; "
            'read it by format("fairqueue") or from an archive'
        )
    wanted = {name: _TYPES[name] for name in COLUMNS} | ({PRIORITY: "int"} if PRIORITY in history.columns else {})
    for name, kind in wanted.items():
        found = history.schema[name].dataType
        if not isinstance(found, _KINDS[kind]):
            raise InvalidArgument(f"column {name} of the history is {found.simpleString()}; make it {kind}")
