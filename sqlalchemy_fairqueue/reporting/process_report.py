"""Fairness report in the process: figures, replays, advice and a page, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from sqlalchemy_fairqueue.reporting.columns import check_label_column, labels_of, last_labels
from sqlalchemy_fairqueue.reporting.errors import HistoryEmpty, no_attempts_of
from sqlalchemy_fairqueue.reporting.measurement import measure_table
from sqlalchemy_fairqueue.reporting.replaying import advice_of, figures_policy, recorded_queues, replay_queues
from sqlalchemy_fairqueue.reporting.reports import Objective, Report
from sqlalchemy_fairqueue.reporting.simulation.scenarios import check_scenarios

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from sqlalchemy_fairqueue.reporting.history import RecordedHistory
    from sqlalchemy_fairqueue.reporting.reports import Advice, Replay
    from sqlalchemy_fairqueue.reporting.simulation.scenarios import Scenario

    Progress = Callable[[str, int, int], None]


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

    It takes about 200 bytes of memory an attempt, and 500 for a replay.

    Args:
        history: What :func:`read_history` or :func:`read_archive` gives.
        scenarios: Scenarios that are replayed, for comparison with the history.
        output: The file of the page, which is replaced. None: no page.
        title: Its title.
        window: Width of the windows over time. None: one that makes at most 240 of them.
        objective: A target for the waits of each tenant, such as "p95 < 2 s".
        labels: The names of tenants on the page, by channel, or the column of the history that holds them; others stand
            as they are. Of a column the label of a channel's last attempt counts.
        tenant: A channel: the page is about it alone, on one sheet, and names no other. The figures are of all.
        replayed: Whether the record is replayed under its own policies, to tell how far forecasts can be trusted, and
            policies are tried for the tenant because of whom others were denied their share or miss the objective.
        progress: Called before each step with its name, its number from 0, and the number of all steps.

    Raises:
        HistoryEmpty: The history has no attempt, or none of *tenant*.
        InvalidArgument: A column is missing, the history is of several databases, or two scenarios have one name.
        ValueError: The objective cannot be read.

    Example:
        >>> queue.configure(engine, history=True)
        >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
        >>> queue.complete(engine, queue.dequeue(engine))
        >>> made = report(read_history(engine, queue=queue.name), output=None, replayed=False)
        >>> [channel] = made.figures.channels
        >>> channel.channel, channel.attempts, channel.wait.p95 < timedelta(minutes=1)
        ('customer-7', 1, True)
    """
    if isinstance(labels, str):
        check_label_column(labels, history.attempts.column_names)
        labels = labels_of([last_labels(history.attempts, labels)])
    if tenant is not None and not pc.any(pc.equal(history.attempts["channel"], tenant)).as_py():
        raise HistoryEmpty(no_attempts_of(tenant))
    target = Objective.parse(objective) if isinstance(objective, str) else objective
    named = check_scenarios(scenarios) if scenarios else {}
    steps = ["measuring the record", *(["replaying the record"] if replayed or named else [])]
    steps += [f"replaying {name!r}" for name in named]
    steps += [*(["trying policies"] if replayed else []), *(["drawing the page"] if output is not None else [])]
    begun = iter(enumerate(steps))

    def step() -> None:
        number, name = next(begun)
        if progress is not None:
            progress(name, number, len(steps))

    step()
    policies = {key: figures_policy(policy, history.plans.get(key)) for key, policy in history.policies.items()}
    figures = measure_table(history.attempts, policies=policies, window=window)
    replays: list[Replay] = []
    advice: tuple[Advice, ...] = ()
    if replayed or named:
        step()
        queues = recorded_queues(history)
        replays.append(replay_queues(queues, None, policies_known=history.policies_known, window=window))
        for scenario in named.values():
            step()
            replays.append(replay_queues(queues, scenario, policies_known=history.policies_known, window=window))
        if replayed:
            step()
            advice = advice_of(
                figures, queues, replays[0], policies_known=history.policies_known, objective=target,
                plans=history.plans,
            )  # fmt: skip
    made = Report(
        title=title, figures=figures, replays=tuple(replays), path=None if output is None else Path(output),
        made_at=datetime.now(UTC), objective=target, advice=advice, labels=labels or {},
    )  # fmt: skip
    if made.path is not None:
        step()
        from sqlalchemy_fairqueue.reporting.page import page_of, tenant_page_of  # noqa: PLC0415 - figures need no matplotlib

        page = page_of(made) if tenant is None else tenant_page_of(made, tenant)
        made.path.write_text(page, encoding="utf-8")
    return made
