"""Plots of a report, as SVG for inclusion in a page: with the page's colours and unique ids."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
import warnings
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.reporting import formats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import timedelta

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sqlalchemy_fairqueue.reporting.figures import ChannelFigures, QueueFigures, Spread
    from sqlalchemy_fairqueue.reporting.reports import Replay

# Colours to draw with; in the page they are what the style sheet says, in light and in dark.
INK, PALE, PAPER = "#000001", "#000002", "#000003"
SERIES = tuple(f"#0000{number:02}" for number in range(11, 17))
_COLOURS = {
    INK: "var(--ink)",
    PALE: "var(--rule)",
    PAPER: "var(--paper)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(SERIES, 1)},
}
_ID = re.compile(r'(\bid="|href="#|url\(#)')
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fairqueue",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": PALE,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": PALE,
    "text.parse_math": False,
    "timezone": "UTC",
}


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Draw in this block: in the page's colours, names as they are, caches in a folder that is removed."""
    with tempfile.TemporaryDirectory(prefix="fairqueue-") as folder, warnings.catch_warnings():
        # matplotlib writes into its cache folder when it is imported.
        os.environ.setdefault("MPLCONFIGDIR", folder)
        from matplotlib import rc_context  # noqa: PLC0415

        # A name may have letters that the font of the layout lacks: the reader's browser has others.
        warnings.filterwarnings("ignore", message=".*missing from.*font", category=UserWarning)
        with rc_context(_SETTINGS):
            yield


def svg_of(figure: Figure, key: str, title: str) -> str:
    """The figure as an ``svg`` element.

    Args:
        figure: What was drawn.
        key: A prefix of its ids, unique in the page.
        title: A description for screen readers. It must be safe: no markup is escaped.
    """
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = out.getvalue()
    text = text[text.index("<svg") :]
    # A style element of matplotlib's would apply to the whole page.
    text = re.sub(r"<(metadata|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    text = _ID.sub(rf"\g<1>{key}-", text)
    for colour, named in _COLOURS.items():
        text = text.replace(colour, named)
    head, _, rest = text.partition(">")
    box = re.search(r'viewBox="[^"]*"', head)
    assert box is not None  # noqa: S101 - matplotlib always writes one
    return (
        f'<svg {box[0]} xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'role="img" aria-label="{title}">{rest.strip()}'
    )


_WIDTH = 8.4
_ROW = 0.27
_LONGEST_NAME = 26
_SECOND = 1e6


def course(queue: QueueFigures, key: str) -> str:
    """Throughput and backlog over time."""
    figure, panels = _figure(2, 1.7)
    seconds = queue.window.total_seconds()
    times: Any = [window.begin for window in queue.windows] + [queue.windows[-1].begin + queue.window]
    for label, colour, values in (
        ("started", SERIES[0], [window.started / seconds for window in queue.windows]),
        ("completed", SERIES[1], [window.completed / seconds for window in queue.windows]),
    ):
        panels[0].stairs(values, times, color=colour, label=label, linewidth=1.4, baseline=None)
    panels[0].set_ylabel("attempts / s")
    _legend(panels[0])
    panels[1].stairs([window.waiting for window in queue.windows], times, color=SERIES[2], fill=True, alpha=0.55)
    panels[1].set_ylabel("messages waiting")
    _over_time(panels, queue)
    return svg_of(figure, key, "Attempts a second and messages waiting, over time")


def waits(queue: QueueFigures, key: str) -> str:
    """Percentiles of waits over time."""
    figure, (panel,) = _figure(1, 2.4)
    marks: list[tuple[str, str, Callable[[Spread], timedelta]]] = [
        ("p50", SERIES[0], lambda spread: spread.p50),
        ("p95", SERIES[2], lambda spread: spread.p95),
        ("p99", SERIES[3], lambda spread: spread.p99),
        ("max", SERIES[4], lambda spread: spread.max),
    ]
    times: Any = [window.begin + queue.window / 2 for window in queue.windows]
    for label, colour, value in marks:
        values = [_micros(value(window.wait)) if window.wait else float("nan") for window in queue.windows]
        panel.plot(times, values, color=colour, label=label, linewidth=1.3, marker=".", markersize=2.5)
    _durations(panel, "y")
    panel.set_ylabel("wait")
    _legend(panel)
    _over_time([panel], queue)
    return svg_of(figure, key, "Percentiles of waits over time")


def fairness(queue: QueueFigures, key: str) -> str:
    """Jain's index over time."""
    figure, (panel,) = _figure(1, 1.9)
    times: Any = [window.begin + queue.window / 2 for window in queue.windows]
    values = [float("nan") if window.fairness is None else window.fairness for window in queue.windows]
    panel.plot(times, values, color=SERIES[0], linewidth=1.2, marker=".", markersize=4)
    panel.set_ylim(0, 1.05)
    panel.set_ylabel("Jain's index")
    _over_time([panel], queue)
    return svg_of(figure, key, "Index of fairness over time")


def denied_waits(channels: Sequence[ChannelFigures], key: str) -> str:
    """Mean waits, and their denied parts."""
    figure, panel = _rows(channels)
    rows = range(len(channels))
    panel.barh(rows, [one.mean_wait.total_seconds() for one in channels], color=PALE, height=0.62, label="mean wait")
    denied = [one.denied_wait.total_seconds() for one in channels]
    panel.barh(rows, denied, color=SERIES[4], height=0.62, label="of which denied, at least")
    panel.set_xlabel("seconds")
    _legend(panel)
    return svg_of(figure, key, "Mean wait of each tenant and its denied part")


def comparison(channels: Sequence[ChannelFigures], replays: Sequence[Replay], key: str) -> str:
    """95th percentiles of waits, recorded and replayed."""
    figure, panel = _rows(channels)
    for number, (label, found) in enumerate(
        [("as recorded", channels), *((one.name, one.channels) for one in replays)]
    ):
        by_name = {(one.queue, one.channel): one for one in found}
        points = [
            (_micros(other.wait.p95), row + 0.09 * (number - len(replays) / 2))
            for row, one in enumerate(channels)
            if (other := by_name.get((one.queue, one.channel)))
        ]
        panel.plot(
            [x for x, _ in points], [y for _, y in points], "os^DvP"[number % 6],
            color=INK if not number else SERIES[(number - 1) % len(SERIES)], label=formats.name(label, _LONGEST_NAME),
            linestyle="", markersize=5,
        )  # fmt: skip
    _durations(panel, "x")
    panel.set_xlabel("95th percentile of waits")
    _legend(panel)
    return svg_of(figure, key, "Waits of each tenant, as recorded and replayed")


def _micros(value: timedelta) -> float:
    # A logarithmic axis has no zero; a microsecond is the shortest duration.
    return max(value.total_seconds() * _SECOND, 1)


def _figure(panels: int, height: float) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure  # noqa: PLC0415 - within drawing()

    figure = Figure(figsize=(_WIDTH, panels * height), layout="constrained")
    axes: list[Axes] = [*figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0]]
    for panel in axes:
        panel.grid(linewidth=0.5)
        panel.set_axisbelow(True)
        panel.tick_params(length=0)
        for side in ("top", "right", "left"):
            panel.spines[side].set_visible(False)
    return figure, axes


def _rows(channels: Sequence[ChannelFigures]) -> tuple[Figure, Axes]:
    figure, (panel,) = _figure(1, 0.95 + _ROW * len(channels))
    panel.set_yticks(range(len(channels)), [formats.name(one.channel, _LONGEST_NAME) for one in channels])
    panel.set_ylim(len(channels) - 0.4, -0.6)
    panel.grid(visible=False, axis="y")
    return figure, panel


def _legend(panel: Axes) -> None:
    panel.legend(
        loc="lower right", bbox_to_anchor=(1, 1), ncols=4, frameon=False, borderaxespad=0.1, handlelength=1.4,
        columnspacing=1.2,
    )  # fmt: skip


def _over_time(panels: Sequence[Axes], queue: QueueFigures) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter  # noqa: PLC0415 - within drawing()

    for panel in panels:
        panel.set_ylim(bottom=None if panel.get_yscale() == "log" or panel.yaxis_inverted() else 0)
        locator = AutoDateLocator(maxticks=8)  # type: ignore[no-untyped-call]
        panel.xaxis.set_major_locator(locator)
        panel.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    begin: Any = queue.windows[0].begin
    end: Any = queue.windows[-1].begin + queue.window
    panels[-1].set_xlim(begin, end)
    panels[-1].set_xlabel("UTC")


def _durations(panel: Axes, axis: str) -> None:
    """Make an axis of microseconds logarithmic, with durations as labels."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator  # noqa: PLC0415 - within drawing()

    getattr(panel, f"set_{axis}scale")("log")
    shown: Any = getattr(panel, f"{axis}axis")
    ticks = [1, 1e3, 1e4, 1e5, 1e6, 1e7, 6e7, 6e8, 3.6e9, 8.64e10, 8.64e11]
    shown.set_major_locator(FixedLocator(ticks))
    shown.set_minor_locator(NullLocator())
    shown.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))


def _tick(value: float) -> str:
    for size, unit in ((8.64e10, "d"), (3.6e9, "h"), (6e7, "min"), (1e6, "s"), (1e3, "ms")):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g} \u00b5s"
