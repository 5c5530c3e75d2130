"""Figures of a report, made without Spark."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy_fairqueue.reporting import (
    ChannelFigures,
    Culprit,
    Denial,
    Figures,
    Outcomes,
    Policy,
    QueueFigures,
    Ratios,
    Replay,
    ReplayedQueue,
    Report,
    Spread,
    Starvation,
    WindowFigures,
)

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
HOSTILE = [
    "</script><script>alert(1)</script>",
    "\"><img src=x onerror='alert(2)'>",
    "{{ 7 * 7 }} {% raw %} $\\frac{1}{2}$ ]]> &amp;",
    "</text></svg><style>*{display:none}</style>",
    "\u202eright to left\u2028\x1b[2J\x00",
    "\ud83d\ude80 k\u00f6ln \u6771\u4eac",
    "x" * 300,
]
_SPREAD = Spread(*(timedelta(seconds=value) for value in (0.1, 2, 30, 400)))


def channel(name: str, queue: str = "documents", denied: float = 0.0) -> ChannelFigures:
    """A channel of which so many seconds a message were denied."""
    return ChannelFigures(
        queue=queue, channel=name, attempts=10, outcomes=Outcomes(completed=9, retried=1), wait=_SPREAD,
        service=_SPREAD, slowdown=Ratios(1.5, 10.0, 200.0, 3000.0), mean_wait=timedelta(seconds=40),
        denied_wait=timedelta(seconds=denied),
        fair_share=0.75, backlogged=timedelta(minutes=3), starved=timedelta(minutes=2),
        longest_starvation=Starvation(timedelta(seconds=75), BEGIN, BEGIN + timedelta(seconds=80)),
        greatest_concurrency=3, greatest_rate=4, greatest_burst=2,
        policy=Policy(2, timedelta(seconds=1), 1, 3), above_share=0.0,
        denial=Denial(BEGIN, BEGIN + timedelta(seconds=20), 0.5, (Culprit(name, 0.75), Culprit("other", 0.25)))
        if denied else None,
    )  # fmt: skip


def queue(name: str = "documents", channels: int = 1) -> QueueFigures:
    """A queue of three windows, one of which is empty."""
    minute = timedelta(minutes=1)
    windows = [
        WindowFigures(begin=BEGIN, started=3, completed=2, waiting=4, wait=_SPREAD, fairness=0.5),
        WindowFigures(begin=BEGIN + minute, started=0, completed=0, waiting=4, wait=None, fairness=None),
        WindowFigures(begin=BEGIN + 2 * minute, started=4, completed=4, waiting=0, wait=_SPREAD, fairness=1.0),
    ]
    return QueueFigures(
        queue=name, from_=BEGIN, to=BEGIN + 3 * minute, channels=channels, attempts=10 * channels,
        outcomes=Outcomes(completed=9), wait=_SPREAD, service=_SPREAD, busy=2 * minute,
        greatest_concurrency=7, fairness=0.75, least_fairness=0.5, fairness_window=timedelta(seconds=10), contended=0.2,
        window=minute, windows=tuple(windows),
    )  # fmt: skip


def replayed(error: float | None = None, **more: Any) -> ReplayedQueue:
    """A queue whose capacity was measured in a minute of backlog, replayed under the record's policies or others."""
    values: dict[str, Any] = {
        "queue": "documents", "workers": 3.96, "estimated": True, "backlogged": timedelta(minutes=1),
        "least_workers": 3.9, "greatest_workers": 4.1, "policies_known": True, "replay_error": error,
        "replay_bias": None if error is None else -error,
    }  # fmt: skip
    return ReplayedQueue(**values | more)


def report(*names: str, queues: tuple[str, ...] = ("documents",), title: str = "Report") -> Report:
    """A report of channels of these names in each queue, with two replays."""
    channels = tuple(channel(name, one, 10.0 - number) for one in queues for number, name in enumerate(names))
    calm = [replace(one, denied_wait=timedelta()) for one in channels]
    return Report(
        title=title,
        figures=Figures(tuple(queue(one, len(names)) for one in queues), channels),
        replays=(Replay("first come, first served", calm), Replay("<b>others</b>", calm[:1])),
        path=None,
        made_at=BEGIN,
    )
