"""Makes the page of a report, an HTML file whose Content-Security-Policy forbids scripts and external resources.

The page about one tenant contains nobody else's figures or names, so you can give it to that tenant.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy_fairqueue.reporting import formats
from sqlalchemy_fairqueue.reporting.errors import HistoryEmpty, no_attempts_of
from sqlalchemy_fairqueue.reporting.figures import Outcomes
from sqlalchemy_fairqueue.reporting.plots import over_time
from sqlalchemy_fairqueue.reporting.reports import TRUSTED_ERROR
from sqlalchemy_fairqueue.texts import library_version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy_fairqueue.reporting.figures import ChannelFigures, QueueFigures
    from sqlalchemy_fairqueue.reporting.reports import Replay, Report

_PLANS = 20
_COMPARED = 15


class Definition(NamedTuple):
    """The definition of a figure: its title on the page, the fields that hold it, and what it is read from."""

    title: str
    meaning: str
    fields: list[str]
    source: str = "fq_history: enqueued_at, ready_at, started_at, finished_at, by the database's clock"

    @property
    def anchor(self) -> str:
        return "def-" + self.title.lower().replace(" ", "-").replace("'", "")


_TEXTS = Path(__file__).with_name("template") / "definitions.toml"
DEFINITIONS = [Definition(**figure) for figure in tomllib.loads(_TEXTS.read_text(encoding="utf-8"))["figure"]]


def page_of(report: Report) -> str:
    sections = [_section(queue, report) for queue in report.figures.queues]
    return rendered("report.html.jinja", report, sections=sections, definitions=DEFINITIONS)


def rendered(template: str, report: Report, **values: object) -> str:
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
        "label": lambda channel: report.labels.get(channel, channel),
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
    return environment.get_template(template).render(**values, report=report, version=library_version() or "")


def _section(queue: QueueFigures, report: Report) -> dict[str, Any]:
    channels = report.figures.of(queue.queue)
    compared = [one for one in report.replays if any(other.queue == queue.queue for other in one.channels)]
    late = () if report.objective is None else report.objective.missed(channels)
    replayed = [(one.name, other) for one in report.replays for other in one.replayed if other.queue == queue.queue]
    missed = Counter(one.policy.plan if one.policy else None for one in late)
    return {
        "queue": queue,
        "tenants": channels,
        "replays": _compared(channels[:_COMPARED], compared) if compared else (),
        "replayed": replayed,
        "drawings": over_time(queue),
        "late": late,
        "plans": [(one, missed[one.plan]) for one in report.figures.plans if one.queue == queue.queue][:_PLANS],
        "advice": next((one for one in report.advice if one.queue == queue.queue), None),
        "error": next((one.replay_error for _, one in replayed if one.replay_error is not None), None),
    }


def _compared(
    channels: Sequence[ChannelFigures], replays: Sequence[Replay]
) -> list[tuple[ChannelFigures, list[tuple[str, ChannelFigures | None]]]]:
    found = [(one.name, {(other.queue, other.channel): other for other in one.channels}) for one in replays]
    return [
        (one, [("as recorded", one), *((name, by_name.get((one.queue, one.channel))) for name, by_name in found)])
        for one in channels
    ]


# The page about one tenant does not show these figures, so it does not define them.
_LEFT_OUT = frozenset({"Throughput", "Jain's index", "Capacity"})


def tenant_page_of(report: Report, channel: str) -> str:
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
        report,
        channel=channel,
        sections=sections,
        definitions=[one for one in DEFINITIONS if one.title not in _LEFT_OUT],
    )


def _tenant_section(report: Report, queue: QueueFigures, one: ChannelFigures) -> dict[str, Any]:
    replays = [
        (replay.name, other)
        for replay in report.replays
        for other in replay.channels
        if (other.queue, other.channel) == (one.queue, one.channel)
    ]
    doubtful = any(
        not other.trusted for replay in report.replays for other in replay.replayed if other.queue == one.queue
    )
    return {"queue": queue, "one": one, "replays": replays, "doubtful": doubtful}
