"""Renders pages: fills templates, formats values, and makes small drawings."""

from __future__ import annotations

import json
from codecs import getincrementaldecoder
from contextlib import suppress
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from sqlalchemy_fairqueue.formats import format_duration, format_value, plural
from sqlalchemy_fairqueue.texts import clean
from sqlalchemy_fairqueue.values.reports import HANDLER_BOUNDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy_fairqueue.values.reports import HandlerTimes

_SPARK_WIDTH, _SPARK_HEIGHT = 120, 28
_FEW = 2
_FEW_QUEUES = 30
"""The most queues that a page offers to choose from; if there are more, people enter a name."""
_NONE = "\N{EN DASH}"
_SMALL = 0.1
_THOUSAND, _MILLION = 10_000, 1_000_000


@cache
def templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("sqlalchemy_fairqueue.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    formats: dict[str, Callable[..., str]] = {
        "duration": format_duration, "number": "{:,.0f}".format, "short": short_number, "rate": rate_text,
        "percent": percent_text, "instant": format_value, "name": clean,
    }  # fmt: skip
    environment.filters |= {name: _or_dash(text) for name, text in formats.items()}
    environment.filters |= {"plural": plural, "spark": spark, "zip": zip, "buckets": buckets}
    environment.globals |= {"few_queues": _FEW_QUEUES, "link": link}
    return environment


def _or_dash(text: Callable[..., str]) -> Callable[..., str]:
    return lambda value, *options: _NONE if value is None else text(value, *options)


def short_number(value: float) -> str:
    if value >= _MILLION:
        return f"{value / _MILLION:.1f}M"
    return f"{value / 1000:.1f}k" if value >= _THOUSAND else f"{value:,.0f}"


def rate_text(value: float, sign: str = "") -> str:
    return f"{value:{sign},.1f}" if value else "0"


def percent_text(value: float | None) -> str:
    if value is None:
        return _NONE
    text = f"{value:.0%}" if value >= _SMALL or not value else f"{value:.1%}"
    return text.replace("%", "\N{NARROW NO-BREAK SPACE}%")


@lru_cache(2048)
def link(page: str, /, **query: object) -> str:
    """Return a link to a page, relative to the other pages, since the dashboard may be mounted anywhere."""
    given = {name: value for name, value in query.items() if value is not None}
    return f"{page}?{urlencode(given)}" if given else page


def payload_text(content: bytes, size: int | None) -> str:
    """Return a payload as text to read; bytes that are no UTF-8 become their ``repr``.

    *size* is the number of bytes of the whole payload. If *content* has them all, JSON is spread over several lines. If
    *content* has fewer, or *size* is None (unknown), the text is left as it is, and an ellipsis follows.
    """
    whole = size is not None and size <= len(content)
    try:
        # The beginning of a payload may end within a character.
        text = getincrementaldecoder("utf-8")().decode(content, final=whole)
    except UnicodeDecodeError:
        return repr(content)
    if whole:
        with suppress(ValueError):
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return "\n".join(clean(line.expandtabs(4)) for line in text.splitlines()) + ("" if whole else "\n…")


def spark(values: Sequence[float]) -> str:
    """Return the points of an SVG polyline for values, scaled from zero to the greatest; empty for fewer than two."""
    if len(values) < _FEW:
        return ""
    top = max(*values, 1e-9)
    step = _SPARK_WIDTH / (len(values) - 1)
    return " ".join(
        f"{number * step:.1f},{_SPARK_HEIGHT - 2 - value / top * (_SPARK_HEIGHT - 4):.1f}"
        for number, value in enumerate(values)
    )


def buckets(times: HandlerTimes) -> list[tuple[int, str]]:
    bounds = ["0", *map(format_duration, HANDLER_BOUNDS), ""]
    return [
        (count, f"{count:,} from {low} {f'to {high}' if high else 'on'}")
        for (low, high), count in zip(pairwise(bounds), times.counts, strict=True)
    ]


def rendered(template: str, **values: Any) -> str:
    return templates().get_template(template).render(**values)
