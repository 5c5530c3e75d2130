"""Fairness report: the figures of a history, replays and advice, and their page."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.reporting.columns import COLUMNS, check_columns
from sqlalchemy_fairqueue.reporting.errors import HistoryEmpty, no_attempts_of
from sqlalchemy_fairqueue.reporting.labels import check_label_column, labels_of
from sqlalchemy_fairqueue.reporting.measurement import figures_of
from sqlalchemy_fairqueue.reporting.objectives import Objective
from sqlalchemy_fairqueue.reporting.page import page_of
from sqlalchemy_fairqueue.reporting.replaying import merged_replay
from sqlalchemy_fairqueue.reporting.reports import Report
from sqlalchemy_fairqueue.reporting.tenant_page import tenant_page_of
from sqlalchemy_fairqueue.simulation.scenarios import REPLAYED, check_scenarios
from sqlalchemy_fairqueue.simulation.trace import COLUMNS as REPLAYED_COLUMNS
from sqlalchemy_fairqueue.simulation.trace import COST, PRIORITY
from sqlalchemy_fairqueue.spark.reporting.groups import results_of
from sqlalchemy_fairqueue.spark.reporting.history_columns import check_replayed_columns
from sqlalchemy_fairqueue.spark.reporting.policies import KnownPolicies, known_policies
from sqlalchemy_fairqueue.spark.reporting.queue_reports import Asked, maker_of

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from pyspark.sql import DataFrame

    from sqlalchemy_fairqueue.reporting.figures import Figures
    from sqlalchemy_fairqueue.reporting.replays import Replay
    from sqlalchemy_fairqueue.simulation.scenarios import QueueSettings, Scenario


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
