"""Page of a report: one HTML file without scripts and external resources.

Names of tenants are arbitrary text: jinja2 escapes them, characters that do not print are shown as escapes, and the
page forbids scripts and foreign resources (Content-Security-Policy).

The page about one tenant has its figures and nobody else's, so that the tenant itself may get it. Other tenants are not
named.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import fields, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy_fairqueue.reporting import formats, plots
from sqlalchemy_fairqueue.reporting.errors import HistoryEmpty, no_attempts_of
from sqlalchemy_fairqueue.reporting.figures import Outcomes
from sqlalchemy_fairqueue.reporting.plots import drawing
from sqlalchemy_fairqueue.reporting.reports import TRUSTED_ERROR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy_fairqueue.reporting.figures import ChannelFigures, Denial, PlanFigures, QueueFigures
    from sqlalchemy_fairqueue.reporting.reports import Objective, Replay, ReplayedQueue, Report

_LISTED = 100
_FIRST = 5
_DRAWN = 20
_COMPARED = 15
# Above this ratio of the greatest to the least capacity, a change of the capacity is named as a reason.
_STEADY = 1.25


class Definition(NamedTuple):
    """The meaning of a figure.

    Attributes:
        title: Its name on the page.
        meaning: Its meaning.
        fields: The fields of the values in ``figures`` that hold it.
        source: The data that it is read from, or the publication that defines it.
    """

    title: str
    meaning: str
    fields: list[str]
    source: str = "fq_history: enqueued_at, ready_at, started_at, finished_at, by the database's clock"

    @property
    def anchor(self) -> str:
        """Its anchor on the page."""
        return "def-" + self.title.lower().replace(" ", "-").replace("'", "")


_TEXTS = Path(__file__).with_name("template") / "definitions.toml"
DEFINITIONS = [Definition(**figure) for figure in tomllib.loads(_TEXTS.read_text(encoding="utf-8"))["figure"]]


def page_of(report: Report) -> str:
    """The page as HTML."""
    shown = labelled(report)
    with drawing():
        sections = [_section(queue, shown, number) for number, queue in enumerate(shown.figures.queues, 1)]
    return rendered(
        "report.html.jinja",
        report=report,
        sections=sections,
        definitions=DEFINITIONS,
    )


def rendered(template: str, **values: object) -> str:
    """A page of a template, with the style and the formats that all pages share."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - the figures do not need it

    environment = Environment(
        loader=PackageLoader("sqlalchemy_fairqueue.reporting", "template"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "name": formats.name,
        "duration": formats.duration,
        "amount": formats.number,
        "ratio": formats.ratio,
        "percent": formats.percent,
        "moment": formats.moment,
        "anchors": {field: one.anchor for one in DEFINITIONS for field in one.fields},
        "trusted_error": TRUSTED_ERROR,
        "outcomes": [field.name for field in fields(Outcomes)],
        "titles": {field: one.title for one in DEFINITIONS for field in one.fields},
    }
    loader = environment.loader
    assert loader is not None  # noqa: S101 - it was just given
    style, _, _ = loader.get_source(environment, "style.css")
    version = metadata.version("sqlalchemy-fairqueue")
    return environment.get_template(template).render(**values, style=_safe(style), version=version)


def _section(queue: QueueFigures, report: Report, number: int) -> dict[str, Any]:
    """What the template shows of a queue."""
    channels = report.figures.of(queue.queue)
    starved = sorted(
        (one for one in channels if one.longest_starvation),
        key=lambda one: one.longest_starvation.lasted if one.longest_starvation else queue.busy,
        reverse=True,
    )[:_DRAWN]
    drawn = channels[:_DRAWN]
    pictures = {
        "denied_waits": plots.denied_waits(drawn, f"s{number}a"),
        "course": plots.course(queue, f"s{number}b"),
        "waits": plots.waits(queue, f"s{number}c"),
        "fairness": plots.fairness(queue, f"s{number}d") if queue.fairness is not None else "",
    }
    compared = [one for one in report.replays if any(other.queue == queue.queue for other in one.channels)]
    if compared:
        pictures["comparison"] = plots.comparison(drawn[:_COMPARED], compared, f"s{number}g")
    left = len(channels) - _LISTED
    late = () if report.objective is None else report.objective.missed(channels)
    setting, advice = _advice(queue, report)
    dearest = sorted(
        (one for one in channels if one.by_cost), key=lambda one: (-_denied_cost(one), -_cost(one), one.channel)
    )[:_DRAWN]
    replayed = [(one.name, other) for one in report.replays for other in one.replayed if other.queue == queue.queue]
    return {
        "queue": queue,
        "channels": channels[:_LISTED],
        "starved": starved,
        "replays": _compared(drawn[:_COMPARED], compared) if compared else (),
        "replayed": replayed,
        "doubts": [doubt for _, one in replayed if not one.trusted for doubt in _doubts(one)],
        "plots": {key: _safe(picture) for key, picture in pictures.items()},
        "summary": _summary(queue, channels),
        "left_out": f" ({left:,} that were denied less are left out)" if left > 0 else "",
        "objective": "" if report.objective is None else _objective(report.objective, len(late), len(channels)),
        "late": late[:_FIRST],
        "late_left_out": f" ({len(late) - _FIRST:,} are left out)" if len(late) > _FIRST else "",
        "victims": [one for one in channels if one.denial][:_FIRST],
        "plans": _plans(report.figures.plans, queue, late)[:_DRAWN],
        "dearest": dearest,
        "by_cost": _by_cost(queue, dearest),
        "setting": setting,
        "advice": advice,
    }


def _plans(
    plans: Sequence[PlanFigures], queue: QueueFigures, late: Sequence[ChannelFigures]
) -> list[tuple[PlanFigures, int]]:
    """The plans of a queue, each with the number of its tenants that miss the target."""
    missed = Counter(one.policy.plan if one.policy else None for one in late)
    return [(one, missed[one.plan]) for one in plans if one.queue == queue.queue]


def _cost(one: ChannelFigures) -> int:
    return one.by_cost.cost if one.by_cost else 0


def _denied_cost(one: ChannelFigures) -> float:
    return one.by_cost.denied_cost if one.by_cost else 0.0


def _by_cost(queue: QueueFigures, channels: Sequence[ChannelFigures]) -> str:
    """The shares by cost, in a sentence."""
    if queue.by_cost is None or not channels:
        return ""
    worst = channels[0]
    denial = worst.by_cost.denial if worst.by_cost else None
    if denial is None:
        return "No tenant was denied a part of its share of the costs."
    because = f", most of it because of {formats.name(denial.culprits[0].channel, 60)}" if denial.culprits else ""
    whole = formats.number(queue.by_cost.cost)
    return (
        f"{formats.name(worst.channel, 60)} was denied most of its share of the costs: "
        f"{formats.number(_denied_cost(worst))} of {whole} that all attempts cost{because}."
    )


def _objective(objective: Objective, late: int, channels: int) -> str:
    if not late:
        return f"All {channels:,} tenants keep the target for waits, {objective}."
    return f"{late:,} of {channels:,} tenants miss the target for waits, {objective}."


def _advice(queue: QueueFigures, report: Report) -> tuple[str, str]:
    """The call that sets a policy, and its replayed effect."""
    found = next((one for one in report.advice if one.queue == queue.queue), None)
    if found is None:
        return "", ""
    label = formats.name(report.labels.get(found.channel, found.channel), 60)
    if found.max_concurrency is None or found.after is None:
        return "", f"No policy is advised for {label}: {found.reason}."
    error = next(
        (
            one.replay_error
            for replay in report.replays
            for one in replay.replayed
            if one.queue == queue.queue and one.replay_error is not None
        ),
        None,
    )
    name, limit = f"{found.channel!a}", f"max_concurrency={found.max_concurrency}"
    effect = (
        f"By a replay, the tenants above then wait {formats.duration(found.after)} on average "
        f"instead of {formats.duration(found.before)}, and {label} {formats.duration(found.own_after)} instead of "
        f"{formats.duration(found.own_before)}. A replay of the record differs from it by {formats.percent(error)}."
    )
    if found.plan is not None:
        return f"Queue({queue.queue!a}).plans.configure(engine, {found.plan!a}, {limit})", effect
    return f"Queue({queue.queue!a}).configure_channel(engine, {name}, {limit})", effect


def labelled(report: Report) -> Report:
    """The report with the labels of tenants instead of their names, but for the advice."""
    if not report.labels:
        return report

    def label(one: ChannelFigures) -> ChannelFigures:
        by_cost = one.by_cost and replace(one.by_cost, denial=label_culprits(one.by_cost.denial))
        name = report.labels.get(one.channel, one.channel)
        return replace(one, channel=name, denial=label_culprits(one.denial), by_cost=by_cost)

    def label_culprits(denial: Denial | None) -> Denial | None:
        return denial and replace(
            denial,
            culprits=tuple(
                replace(culprit, channel=report.labels.get(culprit.channel, culprit.channel))
                for culprit in denial.culprits
            ),
        )

    return replace(
        report,
        figures=replace(report.figures, channels=tuple(map(label, report.figures.channels))),
        replays=tuple(replace(one, channels=tuple(map(label, one.channels))) for one in report.replays),
    )


def _compared(
    channels: Sequence[ChannelFigures], replays: Sequence[Replay]
) -> list[tuple[ChannelFigures, list[tuple[str, ChannelFigures | None]]]]:
    found = [(one.name, {(other.queue, other.channel): other for other in one.channels}) for one in replays]
    return [
        (one, [("as recorded", one), *((name, by_name.get((one.queue, one.channel))) for name, by_name in found)])
        for one in channels
    ]


def _doubts(one: ReplayedQueue) -> list[str]:
    """The reasons for which a replay under the record's own policies may differ from the record."""
    found = []
    if not one.backlogged:
        found.append(
            f"The queue was hardly ever backlogged, so the record does not show the capacity of its workers. "
            f"{one.workers:.1f} at once is the most that they handled."
        )
    elif one.greatest_workers > _STEADY * one.least_workers:
        found.append(
            f"The capacity changed: of the backlogged time, it was {one.least_workers:.1f} at once in one quarter and "
            f"{one.greatest_workers:.1f} in another. Workers came or went, stood still, or slowed each other down."
        )
    if not one.policies_known:
        found.append("The policies of the record are not known, so the replay has no limits and equal weights.")
    if one.replay_bias is not None and one.replay_bias < 0:
        found.append(
            "The replay is faster than the record was. It knows neither the duration of calls nor workers that were "
            "stopped, blocked or away, nor pauses of the queue."
        )
    else:
        found.append(
            "The replay is slower than the record was. The workers were more, or faster, at other times than those in "
            "which the capacity was measured; or priorities or other policies were in force."
        )
    return found


def _summary(queue: QueueFigures, channels: Sequence[ChannelFigures]) -> str:
    denied = [one for one in channels if one.denied_wait]
    if not denied:
        return (
            f"None of the {len(channels):,} tenants was denied a part of its fair share in any window of "
            f"{formats.duration(queue.fairness_window)}."
        )
    worst = denied[0]
    return (
        f"{len(denied):,} of {len(channels):,} tenants were denied a part of their fair share at some time. "
        f"{formats.name(worst.channel, 60)} was denied most: it waited {formats.duration(worst.mean_wait)} on average, "
        f"at least {formats.duration(worst.denied_wait)} of that because {_culprit(worst)} got its share."
    )


def _culprit(victim: ChannelFigures) -> str:
    if victim.denial is None or not victim.denial.culprits:
        return "other tenants"
    first, *others = victim.denial.culprits
    name = formats.name(first.channel, 60)
    return f"{name} ({formats.percent(first.part)}) and others" if others else name


def _safe(text: str) -> Any:
    from markupsafe import Markup  # noqa: PLC0415 - comes with jinja2

    # The package's own style sheet, and drawings whose texts matplotlib has escaped.
    return Markup(text)  # noqa: S704


# Figures that the page does not show are not defined on it.
_LEFT_OUT = frozenset({"Throughput", "Jain's index", "Capacity"})


def tenant_page_of(report: Report, channel: str) -> str:
    """The page as HTML.

    Args:
        report: The report.
        channel: The tenant's channel, in all queues of the report.

    Raises:
        HistoryEmpty: The report has no such channel.
    """
    sections = [
        _tenant_section(report, queue, one)
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
    )


def _tenant_section(report: Report, queue: QueueFigures, one: ChannelFigures) -> dict[str, Any]:
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
    return {
        "queue": queue,
        "one": one,
        "summary": _tenant_summary(one),
        "objective": objective,
        "late": late,
        "by_cost": _tenant_costs(queue, one),
        "replays": replays,
        "doubtful": doubtful,
    }


def _tenant_summary(one: ChannelFigures) -> str:
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


def _tenant_costs(queue: QueueFigures, one: ChannelFigures) -> str:
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
