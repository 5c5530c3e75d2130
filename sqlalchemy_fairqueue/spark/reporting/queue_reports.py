"""The parts of a report that are of one queue, made by the Python worker that has its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy_fairqueue.reporting.advice import advice_of
from sqlalchemy_fairqueue.reporting.labels import last_labels
from sqlalchemy_fairqueue.reporting.measurement import figures_of, measure_queue
from sqlalchemy_fairqueue.reporting.replaying import figures_policy, recorded_queue, replay_queues
from sqlalchemy_fairqueue.values.policies import ChannelPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    import pyarrow as pa

    from sqlalchemy_fairqueue.reporting.labels import LastLabels
    from sqlalchemy_fairqueue.reporting.measurement import MeasuredQueue
    from sqlalchemy_fairqueue.reporting.objectives import Objective
    from sqlalchemy_fairqueue.reporting.replays import Advice, Replay
    from sqlalchemy_fairqueue.simulation.scenarios import QueueSettings, Scenario


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
