"""Page about one tenant: its figures and nobody else's, so that the tenant itself may get it.

Other tenants are not named. The page needs nothing else, as the whole report's.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.reporting import formats
from sqlalchemy_fairqueue.reporting.definitions import DEFINITIONS
from sqlalchemy_fairqueue.reporting.errors import HistoryEmpty, no_attempts_of
from sqlalchemy_fairqueue.reporting.figures import Outcomes
from sqlalchemy_fairqueue.reporting.page import rendered
from sqlalchemy_fairqueue.reporting.replays import TRUSTED_ERROR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy_fairqueue.reporting.figures import ChannelFigures, Denial, QueueFigures
    from sqlalchemy_fairqueue.reporting.reports import Report

# Figures that the page does not show are not defined on it.
_LEFT_OUT = frozenset({"Throughput", "Jain's index", "Capacity"})


@dataclass(frozen=True, slots=True)
class _Section:
    """Section of the page about the tenant in one queue."""

    queue: QueueFigures
    one: ChannelFigures
    summary: str
    objective: str
    late: bool
    by_cost: str
    replays: Sequence[tuple[str, ChannelFigures]]
    doubtful: bool


def tenant_page_of(report: Report, channel: str) -> str:
    """The page as HTML.

    Args:
        report: The report.
        channel: The tenant's channel, in all queues of the report.

    Raises:
        HistoryEmpty: The report has no such channel.
    """
    sections = [
        _section(report, queue, one)
        for queue in report.figures.queues
        for one in report.figures.of(queue.queue)
        if one.channel == channel
    ]
    if not sections:
        raise HistoryEmpty(no_attempts_of(channel))
    return rendered(
        "tenant.html.jinja",
        report=report,
        label=report.labels.get(channel, channel),
        sections=sections,
        definitions=[one for one in DEFINITIONS if one.title not in _LEFT_OUT],
        trusted_error=TRUSTED_ERROR,
        outcomes=[field.name for field in fields(Outcomes)],
    )


def _section(report: Report, queue: QueueFigures, one: ChannelFigures) -> _Section:
    objective, late = "", False
    if report.objective is not None:
        late = bool(report.objective.missed([one]))
        objective = f"The target for waits, {report.objective}, is {'missed' if late else 'kept'}."
    replays = [
        (replay.name, other)
        for replay in report.replays
        for other in replay.channels
        if (other.queue, other.channel) == (one.queue, one.channel)
    ]
    doubtful = any(
        not other.trusted for replay in report.replays for other in replay.replayed if other.queue == one.queue
    )
    return _Section(queue, one, _summary(one), objective, late, _by_cost(queue, one), replays, doubtful)


def _summary(one: ChannelFigures) -> str:
    waited = f"{formats.number(one.attempts)} attempts waited {formats.duration(one.mean_wait)} on average"
    if one.denial is None or not one.denied_wait:
        return f"{waited}. No part of the fair share was denied."
    return (
        f"{waited}, at least {formats.duration(one.denied_wait)} of that because others got a part of the fair share: "
        f"most of it from {formats.moment(one.denial.from_)} to {formats.moment(one.denial.to)}{_others(one.denial)}."
    )


def _others(denial: Denial) -> str:
    """How many others got it; they are not named."""
    parts = [formats.percent(culprit.part) for culprit in denial.culprits]
    if not parts:
        return ""
    return f", {parts[0]} of it by one other tenant"


def _by_cost(queue: QueueFigures, one: ChannelFigures) -> str:
    if one.by_cost is None or queue.by_cost is None:
        return ""
    cost = f"The attempts cost {formats.number(one.by_cost.cost)} of {formats.number(queue.by_cost.cost)} in the queue"
    if one.by_cost.denial is None:
        return f"{cost}. No part of the fair share of the costs was denied."
    return (
        f"{cost}. {formats.number(one.by_cost.denied_cost)} more was the fair share, most of it from "
        f"{formats.moment(one.by_cost.denial.from_)} to {formats.moment(one.by_cost.denial.to)}"
        f"{_others(one.by_cost.denial)}."
    )
