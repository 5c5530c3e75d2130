"""Replays of many queues under many scenarios, in parallel on the cluster: one group a scenario and queue.

One Python worker replays a whole queue: the delivery of a message depends on all messages before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from sqlalchemy_fairqueue.reporting.replaying import merged_replay, recorded_queue, replay_queues
from sqlalchemy_fairqueue.reporting.simulation.replay import replay_queue
from sqlalchemy_fairqueue.reporting.simulation.scenarios import RECORDED, REPLAYED, check_scenarios
from sqlalchemy_fairqueue.reporting.simulation.trace import COLUMNS, COST, PRIORITY
from sqlalchemy_fairqueue.spark.executors import shipped
from sqlalchemy_fairqueue.spark.reporting import TYPES, check_replayed_columns, known_policies, results_of
from sqlalchemy_fairqueue.values.policies import ChannelPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    import pyarrow as pa
    from pyspark.sql import DataFrame, GroupedData

    from sqlalchemy_fairqueue.reporting.reports import Replay
    from sqlalchemy_fairqueue.reporting.simulation.scenarios import QueueSettings, Scenario

    Known = dict[str, dict[str, ChannelPolicy]]

_SCHEMA = ", ".join(f"{name} {kind}" for name, kind in {"scenario": "string", **TYPES}.items())


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
    replayed = _groups(history, list(named)).applyInArrow(shipped(_replayer(named, _known(policies))), _SCHEMA)
    if not recorded:
        return replayed
    known = {COST: F.lit(1), **{name: F.col(name) for name in history.columns}}
    whole = [known.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in TYPES.items()]
    return history.select(F.lit(RECORDED).alias("scenario"), *whole).unionByName(replayed)


def replays(
    history: DataFrame,
    scenarios: Sequence[Scenario],
    *,
    policies: DataFrame | None = None,
    settings: Mapping[str, QueueSettings] | None = None,
    window: timedelta | None = None,
) -> tuple[Replay, ...]:
    """The figures of each scenario, for a report that compares them with the history.

    The first is a replay under the record's own policies, in turn, as "as recorded, replayed": its error against the
    record tells how far the others can be trusted. They are the report's figures of the result of :func:`replay`; fair
    shares are by the scenario's policies. The scenarios are replayed and measured in parallel, in one shuffle: the
    history is read once, and only figures come back.

    Args:
        history: As for :func:`replay`.
        scenarios: The scenarios.
        policies: What ``table=channels`` reads: the record's own policies. None: no channel had limits, and all weighed
            the same.
        settings: The record's own settings of queues, by queue: what
            :func:`sqlalchemy_fairqueue.reporting.history.read_settings` reads. Others are fair by messages, without a
            limit.
        window: Width of the windows over time. None: as for the report.

    Raises:
        InvalidArgument: As for :func:`replay`.
        HistoryEmpty: The history has no attempt.
    """
    named = check_scenarios(scenarios)
    names = [REPLAYED, *named]
    replay_rows = _measurer(named, _known(policies), settings or {}, window, policies_known=policies is not None)
    found = results_of(_groups(history, names), replay_rows)
    return tuple(merged_replay(name, [one for one in found if one.name == name]) for name in names)


def _known(policies: DataFrame | None) -> Known:
    """The policies that limit or weigh channels."""
    known: Known = {}
    for (queue, channel), policy in ({} if policies is None else known_policies(policies).policies).items():
        if policy != ChannelPolicy():
            known.setdefault(queue, {})[channel] = policy
    return known


def _groups(history: DataFrame, names: Sequence[str]) -> GroupedData:
    """The rows of each scenario and queue."""
    check_replayed_columns(history)
    read = [*COLUMNS, *(name for name in (PRIORITY, COST) if name in history.columns)]
    rows = history.select(F.explode(F.array(*map(F.lit, names))).alias("scenario"), *read)
    return rows.groupBy("scenario", "queue")


def _measurer(
    named: Mapping[str, Scenario],
    known: Known,
    settings: Mapping[str, QueueSettings],
    window: timedelta | None,
    *,
    policies_known: bool,
) -> Callable[[pa.Table], Replay]:
    def replay_rows(rows: pa.Table) -> Replay:
        scenario = named.get(rows["scenario"][0].as_py())
        name = rows["queue"][0].as_py()
        queue = recorded_queue(rows, known.get(name, {}), settings.get(name))
        return replay_queues([queue], scenario, policies_known=policies_known, window=window)

    return replay_rows


def _replayer(named: Mapping[str, Scenario], known: Known) -> Callable[[pa.Table], pa.Table]:
    def replay_group(rows: pa.Table) -> pa.Table:
        policies = known.get(rows["queue"][0].as_py(), {})
        return replay_queue(rows, named[rows["scenario"][0].as_py()], policies)

    return replay_group
