"""Assembles a fairness report: the figures, replays and advice of each queue, and the page of all."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pyarrow.compute as pc

from sqlalchemy_fairqueue.reporting.columns import check_columns, check_label_column, labels_of, last_labels, queues_of
from sqlalchemy_fairqueue.reporting.errors import HistoryEmpty, no_attempts_of
from sqlalchemy_fairqueue.reporting.measurement import figures_of, measure_queue
from sqlalchemy_fairqueue.reporting.replaying import advice_of, figures_policy, merged_replay, recorded_queue, replay_of
from sqlalchemy_fairqueue.reporting.reports import Objective, Report
from sqlalchemy_fairqueue.reporting.simulation.scenarios import REPLAYED, check_scenarios

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    import pyarrow as pa

    from sqlalchemy_fairqueue.reporting.columns import LastLabels
    from sqlalchemy_fairqueue.reporting.history import RecordedHistory
    from sqlalchemy_fairqueue.reporting.measurement import MeasuredQueue
    from sqlalchemy_fairqueue.reporting.reports import Advice, Replay
    from sqlalchemy_fairqueue.reporting.simulation.scenarios import QueueSettings, Scenario
    from sqlalchemy_fairqueue.values.policies import ChannelPolicy

    Progress = Callable[[str, int, int], None]

V = TypeVar("V")


def of_queue(values: Mapping[tuple[str, str], V], queue: str) -> dict[str, V]:
    return {channel: value for (name, channel), value in values.items() if name == queue}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a report is made from besides attempts. *label* is the name of the history's column of labels, or None."""

    policies: Mapping[tuple[str, str], ChannelPolicy]
    policies_known: bool
    plans: Mapping[tuple[str, str], str]
    settings: Mapping[str, QueueSettings]
    scenarios: Mapping[str, Scenario]
    replayed: bool
    window: timedelta | None
    objective: Objective | None
    label: str | None

    @property
    def replays(self) -> list[str]:
        return [REPLAYED, *self.scenarios] if self.replayed or self.scenarios else []

    @property
    def steps(self) -> list[str]:
        replays = [f"replaying {'the record' if name == REPLAYED else repr(name)}" for name in self.replays]
        return ["measuring the record", *replays, *(["trying policies"] if self.replayed else [])]


class QueueReport(NamedTuple):
    """The figures, labels, replays and advice of one queue. The first replay is under the recorded policies."""

    measured: MeasuredQueue
    labels: LastLabels
    replays: Sequence[Replay] = ()
    advice: Advice | None = None


def queue_report(rows: pa.Table, asked: Asked, tell: Callable[[], object] = lambda: None) -> QueueReport:
    """Make the report of one queue from its attempts, here or in a worker of Spark; call *tell* before each step."""
    name: str = rows["queue"][0].as_py()
    policies, plans = of_queue(asked.policies, name), of_queue(asked.plans, name)
    shown = {(name, channel): figures_policy(policy, plans.get(channel)) for channel, policy in policies.items()}
    tell()
    measured = measure_queue(rows, shown, asked.window)
    labels = {} if asked.label is None else last_labels(rows, asked.label)
    if not asked.replays:
        return QueueReport(measured, labels)
    recorded = recorded_queue(rows, policies, asked.settings.get(name))
    replays = []
    for scenario in asked.replays:
        tell()
        chosen, known = asked.scenarios.get(scenario), asked.policies_known
        replays.append(replay_of(recorded, chosen, policies_known=known, window=asked.window))
    advice = None
    if asked.replayed:
        tell()
        advice = advice_of(
            figures_of([measured]).channels, recorded, replays[0],
            policies_known=asked.policies_known, objective=asked.objective, plans=plans,
        )  # fmt: skip
    return QueueReport(measured, labels, replays, advice)


def assembled(
    parts: Sequence[QueueReport],
    asked: Asked,
    *,
    output: str | os.PathLike[str] | None,
    title: str,
    labels: Mapping[str, str] | str | None,
    tenant: str | None,
    replays: Sequence[Replay] = (),
) -> Report:
    """Assemble the report and write its page, as :func:`report` does. *replays* are used only if *parts* have none."""
    figures = figures_of([one.measured for one in parts])
    if tenant is not None and tenant not in {one.channel for one in figures.channels}:
        raise HistoryEmpty(no_attempts_of(tenant))
    if isinstance(labels, str):
        labels = labels_of(one.labels for one in parts)
    made = Report(
        title=title,
        figures=figures,
        replays=tuple(
            merged_replay(name, [one.replays[number] for one in parts]) for number, name in enumerate(asked.replays)
        ) or tuple(replays),
        path=None if output is None else Path(output),
        made_at=datetime.now(UTC),
        objective=asked.objective,
        advice=tuple(sorted((one.advice for one in parts if one.advice), key=lambda advice: advice.queue)),
        labels=labels or {},
    )  # fmt: skip
    if made.path is not None:
        from sqlalchemy_fairqueue.reporting.page import page_of, tenant_page_of  # noqa: PLC0415 - figures need no jinja2

        page = page_of(made) if tenant is None else tenant_page_of(made, tenant)
        made.path.write_text(page, encoding="utf-8")
    return made


def report(
    history: RecordedHistory,
    *,
    scenarios: Sequence[Scenario] = (),
    output: str | os.PathLike[str] | None = "fairness.html",
    title: str = "Fairness report",
    window: timedelta | None = None,
    objective: Objective | str | None = None,
    labels: Mapping[str, str] | str | None = None,
    tenant: str | None = None,
    replayed: bool = True,
    progress: Progress | None = None,
) -> Report:
    """Make a fairness report in this process: figures, and a page that shows and defines them.

    The process needs about 200 bytes of memory for each attempt, or 500 bytes for each if the history is replayed.

    Args:
        history: From :func:`read_history` or :func:`read_archive`.
        scenarios: Other policies or workers. The history is replayed under each of them, as a forecast.
        output: The file of the page, which is replaced. None: no page.
        window: The width of the windows over time. Default: a width that gives about 240 windows or fewer.
        objective: A target for the waits of each tenant, such as "p95 < 2 s".
        labels: Labels of tenants on the page, by channel; or the name of a column of the history. If a column is named,
            a channel's label is the value of this column in the channel's latest attempt that has a value. Channels
            without a label keep their names.
        tenant: The only channel that the page shows and names. The returned figures cover all channels in any case.
        replayed: Whether to try limits for a tenant that made others wait. If this is true or there are *scenarios*,
            the history is also replayed under its own policies, which tells how far forecasts can be trusted.
        progress: Called before each step with its name, its number from 0, and the number of steps.

    Raises:
        HistoryEmpty: The history has no attempts, or none of *tenant*.
        InvalidArgument: A column is missing, two scenarios have one name, or the history is from several databases.
        ValueError: The objective is invalid.

    Example:
        >>> queue.configure(engine, history=True)
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> queue.complete(engine, queue.dequeue(engine))
        >>> [channel] = report(read_history(engine, queue=queue.name), output=None, replayed=False).figures.channels
        >>> channel.channel, channel.attempts, channel.wait.p95 < timedelta(minutes=1)
        ('customer-7', 1, True)
    """
    check_columns(history.attempts.column_names)
    if isinstance(labels, str):
        check_label_column(labels, history.attempts.column_names)
    if tenant is not None and not pc.any(pc.equal(history.attempts["channel"], tenant)).as_py():
        raise HistoryEmpty(no_attempts_of(tenant))
    asked = Asked(
        policies=history.policies, policies_known=history.policies_known, plans=history.plans,
        settings=history.settings, scenarios=check_scenarios(scenarios) if scenarios else {}, replayed=replayed,
        window=window, objective=Objective.of(objective), label=labels if isinstance(labels, str) else None,
    )  # fmt: skip
    queues = [rows for _, rows in queues_of(history.attempts)]
    names = [*(asked.steps * len(queues)), *([] if output is None else ["drawing the page"])]
    told = iter(enumerate(names))

    def tell() -> None:
        number, name = next(told)
        if progress is not None:
            progress(name, number, len(names))

    parts = [queue_report(rows, asked, tell) for rows in queues]
    if output is not None:
        tell()
    return assembled(parts, asked, output=output, title=title, labels=labels, tenant=tenant)
