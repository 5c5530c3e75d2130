"""Replays of many queues under many scenarios, in parallel on the cluster: one group a scenario and queue.

One Python worker replays a whole queue: the delivery of a message depends on all messages before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import DataType, IntegralType, StringType, TimestampNTZType, TimestampType

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.reporting.figures import Replay, ReplayedQueue
from sqlalchemy_fairqueue.simulation.replay import measured_replay
from sqlalchemy_fairqueue.simulation.scenarios import RECORDED, REPLAYED, as_recorded, check_scenarios
from sqlalchemy_fairqueue.simulation.trace import COLUMNS, PRIORITY
from sqlalchemy_fairqueue.spark.reporting.measurement import measure
from sqlalchemy_fairqueue.spark.reporting.policies import known_policies
from sqlalchemy_fairqueue.spark.reporting.queries import SparkQueries
from sqlalchemy_fairqueue.times import duration, microseconds
from sqlalchemy_fairqueue.values import ChannelPolicy, Rate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    import pyarrow as pa
    from pyspark.sql import DataFrame, Row

    from sqlalchemy_fairqueue.simulation.scenarios import Scenario

    Known = dict[str, dict[str, ChannelPolicy]]

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
_CAPACITY = {"workers": "double", "backlogged": "long", "least_workers": "double", "greatest_workers": "double"}
_SCHEMA = ", ".join(
    f"{name} {kind}"
    for name, kind in {"scenario": "string", **_TYPES, "recorded_response": "long", **_CAPACITY}.items()
)
_POLICIES = "queue string, channel string, max_concurrency long, rate_interval long, rate_burst long, weight long"


def replay(
    history: DataFrame, scenarios: Sequence[Scenario], *, recorded: bool = True, policies: DataFrame | None = None
) -> DataFrame:
    """The history that each of the scenarios would have given.

    It is computed by an action, and by each action again: keep the result (``persist``, or write it) if it is read more
    than once. A queue's attempts must fit in a Python worker's memory, at about 500 bytes each.

    Args:
        history: An archive, a live history, or anything with its columns; each row once. A column ``priority`` (of the
            message; null: none) is honoured: a history itself has no priorities.
        scenarios: The scenarios.
        recorded: Whether the recorded history is in the result too, as scenario "as recorded".
        policies: What ``table=channels`` reads, to tell a shortage of workers from a limit; read at this call.
            None: no channel has limits.

    Returns:
        The columns of a history behind a column ``scenario``. Replayed rows have times of the replay, the number of a
        worker as consumer, the outcome that the attempt had, and neither error nor recorded_xid.

    Raises:
        InvalidArgument: A column is missing or of another type; there are no scenarios, or two of one name. A row that
            is there twice, or a message in two channels, fails the job with this error.
    """
    named = check_scenarios(scenarios)
    replayed = _measured(history, named, list(named), _known(history, policies)).select("scenario", *_TYPES)
    if not recorded:
        return replayed
    known = {name: F.col(name) for name in history.columns}
    whole = [known.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in _TYPES.items()]
    return history.select(F.lit(RECORDED).alias("scenario"), *whole).unionByName(replayed)


def replays(
    history: DataFrame,
    scenarios: Sequence[Scenario],
    *,
    policies: DataFrame | None = None,
    window: timedelta | None = None,
) -> tuple[Replay, ...]:
    """The figures of each scenario, for a report that compares them with the history.

    The first is a replay under the record's own policies, in turn, as "as recorded, replayed": its error against the
    record tells how far the others can be trusted. They are the report's figures of the result of :func:`replay`; fair
    shares are by the scenario's policies. The scenarios are replayed in parallel, and kept on disk until all are
    measured: the history is read once.

    Args:
        history: As for :func:`replay`.
        scenarios: The scenarios.
        policies: What ``table=channels`` reads: the record's own policies. None: no channel had limits, and all weighed
            the same.
        window: Width of the windows over time. None: as for the report.

    Raises:
        InvalidArgument: As for :func:`replay`.
        HistoryEmpty: The history has no attempt.
    """
    named, known = check_scenarios(scenarios), _known(history, policies)
    names = [REPLAYED, *named]
    kept = _measured(history, named, names, known).persist(StorageLevel.DISK_ONLY)
    try:
        channels = kept.select("queue", "channel").distinct().collect()
        found = _replayed_queues(kept, named, policies_known=policies is not None)
        return tuple(
            _figures(kept, name, _policies_of(named.get(name), channels, known), found[name], window) for name in names
        )
    finally:
        kept.unpersist()


def _known(history: DataFrame, policies: DataFrame | None) -> Known:
    """The policies that limit or weigh channels."""
    known: Known = {}
    if policies is not None:
        with SparkQueries(history.sparkSession) as queries:
            for (queue, channel), row in known_policies(policies, queries).items():
                policy = ChannelPolicy(
                    max_concurrency=row.max_concurrency,
                    rate=Rate.of(duration(row.rate_interval or 0), row.rate_burst),
                    weight=row.weight,
                )
                if policy != ChannelPolicy():
                    known.setdefault(queue, {})[channel] = policy
    return known


def _measured(history: DataFrame, named: Mapping[str, Scenario], names: Sequence[str], known: Known) -> DataFrame:
    _check_columns(history)
    read = [*COLUMNS, *([PRIORITY] if PRIORITY in history.columns else [])]
    groups = history.select(F.explode(F.array(*map(F.lit, names))).alias("scenario"), *read)
    return groups.groupBy("scenario", "queue").applyInArrow(_replayer(named, known), _SCHEMA)


def _replayed_queues(
    kept: DataFrame, named: Mapping[str, Scenario], *, policies_known: bool
) -> dict[str, list[ReplayedQueue]]:
    """The queues of each scenario."""
    response = (F.unix_micros("finished_at") - F.unix_micros("ready_at")).cast("double")
    recorded = F.col("recorded_response").cast("double")
    rows = (
        kept.groupBy("scenario", "queue")
        .agg(
            *(F.first(name).alias(name) for name in _CAPACITY),
            F.sum(F.abs(response - recorded)).alias("apart"),
            F.sum(response - recorded).alias("later"),
            F.sum(recorded).alias("recorded"),
        )
        .orderBy("queue")
        .collect()
    )
    found: dict[str, list[ReplayedQueue]] = {}
    for row in rows:
        is_record = row.scenario == REPLAYED
        one = ReplayedQueue(
            queue=row.queue,
            workers=row.workers,
            estimated=is_record or named[row.scenario].workers is None,
            backlogged=duration(row.backlogged),
            least_workers=row.least_workers,
            greatest_workers=row.greatest_workers,
            policies_known=policies_known,
            replay_error=row.apart / max(row.recorded, 1.0) if is_record else None,
            replay_bias=row.later / max(row.recorded, 1.0) if is_record else None,
        )
        found.setdefault(row.scenario, []).append(one)
    return found


def _policies_of(
    scenario: Scenario | None, channels: Sequence[Row], known: Known
) -> list[tuple[str, str, ChannelPolicy]]:
    """Queue, channel and policy of each channel; without a scenario, the recorded policies."""
    if scenario is None:
        default = ChannelPolicy()
        return [(row.queue, row.channel, known.get(row.queue, {}).get(row.channel, default)) for row in channels]
    return [
        (channels[number].queue, channels[number].channel, policy)
        for policy, numbers in scenario.policies_of([row.channel for row in channels])
        for number in numbers
    ]


def _figures(
    kept: DataFrame,
    name: str,
    policies: Sequence[tuple[str, str, ChannelPolicy]],
    replayed: Sequence[ReplayedQueue],
    window: timedelta | None,
) -> Replay:
    rows = [
        (
            queue,
            channel,
            policy.max_concurrency,
            0 if policy.rate is None else microseconds(policy.rate.interval),
            1 if policy.rate is None else policy.rate.burst,
            policy.weight,
        )
        for queue, channel, policy in policies
    ]
    frame = kept.sparkSession.createDataFrame(rows, _POLICIES)
    figures = measure(kept.where(F.col("scenario") == name), policies=frame, window=window)
    return Replay(name, figures.channels, figures.queues, replayed)


def _replayer(named: Mapping[str, Scenario], known: Known) -> Callable[[pa.Table], pa.Table]:
    def replay_group(history: pa.Table) -> pa.Table:
        policies = known.get(history["queue"][0].as_py(), {})
        scenario = named.get(history["scenario"][0].as_py())
        return measured_replay(history, as_recorded(policies) if scenario is None else scenario, policies)

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
