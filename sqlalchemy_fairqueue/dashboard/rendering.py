"""Rendering of pages: templates, texts of values, and small drawings."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sqlalchemy_fairqueue.formats import format_duration, plural
from sqlalchemy_fairqueue.texts import clean
from sqlalchemy_fairqueue.values.reports import HANDLER_BOUNDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy_fairqueue.values.messages import GroupStatus
    from sqlalchemy_fairqueue.values.reports import HandlerTimes

_SPARK_WIDTH, _SPARK_HEIGHT = 120, 28
_FEW = 2
_FEW_QUEUES = 30
"""Queues that are offered by their names; where there are more, a name is entered."""
_NONE = "\N{EN DASH}"
_SMALL, _OVER = 0.1, 1.5
_THOUSAND, _MILLION = 10_000, 1_000_000
_LEVELS = {
    "no consumer": "bad", "queue limit": "warn", "queue rate": "warn", "shared limit": "warn", "shared rate": "warn",
    "own limit": "own", "rate": "own", "paused": "own", "queue paused": "own",
}  # fmt: skip


@cache
def templates() -> Environment:
    """The templates. Everything that is put into them is escaped."""
    environment = Environment(
        loader=PackageLoader("sqlalchemy_fairqueue.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "duration": duration_text,
        "number": number_text,
        "short": short_number,
        "rate": rate_text,
        "percent": percent_text,
        "instant": instant_text,
        "name": name_text,
        "plural": plural,
        "link": link,
        "sparkline": sparkline,
        "histogram": histogram,
        "thinned": thinned,
    }
    environment.globals |= {
        "share_bar": share_bar,
        "progress_bar": progress_bar,
        "few_queues": _FEW_QUEUES,
        "link": link,
        "reason_chip": reason_chip,
    }
    return environment


def duration_text(value: timedelta | None) -> str:
    """``3.2s``, ``12m 05s``; a dash for none."""
    return _NONE if value is None else format_duration(value)


def number_text(value: float | None) -> str:
    """``12,345``; a dash for none."""
    return _NONE if value is None else f"{value:,.0f}"


def short_number(value: float | None) -> str:
    """``12,345`` as ``12.3k``; a dash for none."""
    if value is None:
        return _NONE
    if value >= _MILLION:
        return f"{value / _MILLION:.1f}M"
    return f"{value / 1000:.1f}k" if value >= _THOUSAND else f"{value:,.0f}"


def rate_text(value: float | None, sign: str = "") -> str:
    """A figure a second: ``12.3``; a dash for none."""
    return _NONE if value is None else (f"{value:{sign},.1f}" if value else "0")


def percent_text(value: float | None) -> str:
    """A part as ``12 %``; a dash for none."""
    if value is None:
        return _NONE
    text = f"{value:.0%}" if value >= _SMALL or not value else f"{value:.1%}"
    return text.replace("%", "\N{NARROW NO-BREAK SPACE}%")


def instant_text(value: datetime | None) -> str:
    """An instant in UTC; a dash for none."""
    return _NONE if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def name_text(value: str | None) -> str:
    """A name or text of a user with its control characters as escapes; a dash for none."""
    return _NONE if value is None else clean(value)


@lru_cache(2048)
def link(page: str, /, **query: object) -> str:
    """A page with its arguments, relative to the others: wherever the dashboard is mounted."""
    given = {name: value for name, value in query.items() if value is not None}
    return f"{page}?{urlencode(given)}" if given else page


def payload_text(content: bytes, size: int | None) -> str:
    """A payload to read: JSON over several lines, other text as it is, bytes as Python writes them."""
    whole = size is not None and size <= len(content)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return repr(content)
    if whole:
        with suppress(ValueError):
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return "\n".join(clean(line.expandtabs(4)) for line in text.splitlines()) + ("" if whole else "\n…")


def thinned(values: Sequence[float], most: int) -> Sequence[float]:
    """As many values at most, each the greatest of as many neighbours: no peak is lost."""
    step = -(-len(values) // most)
    return values if step <= 1 else [max(values[first : first + step]) for first in range(0, len(values), step)]


def sparkline(values: Sequence[float], label: str) -> Markup:
    """A small line of values, from zero to the greatest; without a label it is hidden from readers of the text."""
    if len(values) < _FEW:
        return Markup('<svg class="spark" viewBox="0 0 {} {}" aria-hidden="true"></svg>').format(
            _SPARK_WIDTH, _SPARK_HEIGHT
        )
    top = max(*values, 1e-9)
    step = _SPARK_WIDTH / (len(values) - 1)
    points = " ".join(
        f"{number * step:.1f},{_SPARK_HEIGHT - 2 - value / top * (_SPARK_HEIGHT - 4):.1f}"
        for number, value in enumerate(values)
    )
    named = Markup('role="img" aria-label="{}"').format(label) if label else Markup('aria-hidden="true"')
    return Markup(
        '<svg class="spark" viewBox="0 0 {0} {1}" preserveAspectRatio="none" {2}>'
        '<polygon points="0,{1} {3} {0},{1}"/><polyline points="{3}"/></svg>'
    ).format(_SPARK_WIDTH, _SPARK_HEIGHT, named, points)


@cache
def reason_chip(reason: str | None) -> Markup:
    if not reason:
        return Markup('<span class="faint">{}</span>').format(_NONE)
    return Markup('<span class="chip reason {}">{}</span>').format(_LEVELS.get(str(reason), "calm"), str(reason))


# The rows of a table have the same few shares.
@lru_cache(1024)
def share_bar(used: float | None, entitled: float | None) -> Markup:
    """A share that is used, beside the one that is entitled."""
    if used is None and entitled is None:
        return Markup('<span class="faint">{}</span>').format(_NONE)
    words = f"uses {percent_text(used or 0)}" + (f", entitled to {percent_text(entitled)}" if entitled else "")
    over = entitled is not None and used is not None and used > entitled * _OVER
    mark = (
        ""
        if entitled is None
        else Markup('<rect class="mark" x="{:.1f}" y="0" width="1.6" height="10"/>').format(
            min(max(entitled * 100 - 0.8, 0), 98.4)
        )
    )
    return Markup(
        '<svg class="share{}" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<title>{}</title><rect class="track" y="2" width="100" height="6" rx="3"/>'
        '<rect class="used" y="2" width="{:.1f}" height="6" rx="3"/>{}</svg>'
    ).format(" over" if over else "", words, words, min(used or 0, 1) * 100, mark)


def histogram(times: HandlerTimes) -> Markup:
    """How long handlers took: a bar a bucket, the shortest times at the left."""
    bounds = ["0", *map(format_duration, HANDLER_BOUNDS), "more"]
    words = "; ".join(
        f"{count:,} from {low} to {high}" if high != "more" else f"{count:,} from {low} on"
        for (low, high), count in zip(pairwise(bounds), times.counts, strict=True)
        if count
    )
    top, step = max(times.counts), 100 / len(times.counts)
    bars = Markup("").join(
        Markup('<rect x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{:.1f}"/>').format(
            number * step, _SPARK_HEIGHT * (1 - count / top), step - 0.8, _SPARK_HEIGHT * count / top
        )
        for number, count in enumerate(times.counts)
        if count
    )
    return Markup(
        '<svg class="histogram" viewBox="0 0 100 {}" preserveAspectRatio="none" role="img" aria-label="{}">'
        "<title>{}</title>{}</svg>"
    ).format(_SPARK_HEIGHT, words, words, bars)


def progress_bar(group: GroupStatus) -> Markup:
    """The progress of a group: done, and ended otherwise."""
    total = max(group.total, 1)
    done, ended = (min(count / total, 1) * 100 for count in (group.done, group.total - group.pending))
    words = f"{group.total - group.pending:,} of {group.total:,} have ended, {group.done:,} done"
    return Markup(
        '<svg class="share" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<title>{}</title><rect class="track" y="2" width="100" height="6" rx="3"/>'
        '<rect class="ended" y="2" width="{:.1f}" height="6" rx="3"/>'
        '<rect class="used" y="2" width="{:.1f}" height="6" rx="3"/></svg>'
    ).format(words, words, ended, done)


def rendered(template: str, **values: Any) -> str:
    return templates().get_template(template).render(**values)
