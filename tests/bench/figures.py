"""Figures of one run: what each side did in each round, their ratio round by round, and the table of it all."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.bench.processes import Watch


@dataclass(frozen=True, slots=True)
class Figure:
    """One comparison: ratios are taken within a round, whose two sides ran one right after the other.

    Attributes:
        what: what was measured.
        unit: of *ours* and *theirs*.
        ours: one figure a round.
        theirs: what it is compared with, in the same rounds.
        against: what that is.
        reach: the ratio of ours to theirs that we want; None: only told.
        better: whether more or less is better.
        notes: further figures, by name.
    """

    what: str
    unit: str
    ours: Sequence[float]
    theirs: Sequence[float]
    against: str
    reach: float | None
    better: Literal["more", "less"] = "more"
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def ratios(self) -> list[float]:
        """Ours to theirs, round by round."""
        return [one / other for one, other in zip(self.ours, self.theirs, strict=True)]

    @property
    def verdict(self) -> str:
        """Whether the median ratio is within reach."""
        if self.reach is None:
            return ""
        ratio = median(self.ratios)
        return "reached" if (ratio >= self.reach if self.better == "more" else ratio <= self.reach) else "FALLS SHORT"

    def line(self) -> str:
        """The figure as a few lines of text."""
        sign = ">=" if self.better == "more" else "<="
        reach = f"  (reach {sign} {self.reach:g}: {self.verdict})" if self.reach is not None else ""
        ratios = self.ratios
        against = f"{self.against} {_told(median(self.theirs))} {self.unit}"
        text = (
            f"{self.what}\n"
            f"    ours {_told(median(self.ours))} {self.unit}, {against}\n"
            f"    ratio {median(ratios):.3f}, {len(ratios)} rounds, {min(ratios):.3f} to {max(ratios):.3f}{reach}"
        )
        return text + "".join(f"\n    {name}: {value}" for name, value in self.notes.items())


def _told(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


@dataclass(slots=True)
class Report:
    """All figures of a run."""

    server: dict[str, str] = field(default_factory=dict)
    full: bool = False
    figures: list[Figure] = field(default_factory=list)

    def add(self, figure: Figure) -> None:
        """Keep a figure."""
        self.figures.append(figure)

    def text(self) -> str:
        """The whole run, for a person."""
        form = "full" if self.full else "quick"
        settings = ", ".join(f"{name} {value}" for name, value in self.server.items())
        return "\n".join([f"{form} form, {settings}", *(figure.line() for figure in self.figures)])

    def write(self, path: Path) -> None:
        """Write the whole run as JSON."""
        figures = [
            asdict(figure)
            | {"ratios": figure.ratios, "ratio": median(figure.ratios), "verdict": figure.verdict or "told only"}
            for figure in self.figures
        ]
        run = {"full": self.full, "machine": platform.machine(), "server": self.server, "figures": figures}
        path.write_text(json.dumps(run, indent=2) + "\n", encoding="utf-8")


def rate(watches: Sequence[Watch]) -> float:
    """Messages a second, from the moment when all were let go to the last that was done with."""
    return total(watches) / (max(watch.ended[-1] for watch in watches if watch.ended) - start(watches))


def start(watches: Sequence[Watch]) -> float:
    """When the first of the processes was let go."""
    return min(watch.started for watch in watches)


def total(watches: Sequence[Watch]) -> int:
    """How many messages the processes had."""
    return sum(len(watch.ids) for watch in watches)


def backend_cost(watches: Sequence[Watch]) -> float:
    """Microseconds of processor time that their server processes used a message."""
    return 1e6 * sum(watch.backend_cpu for watch in watches) / total(watches)


def within(watches: Sequence[Watch], since: float, until: float) -> int:
    """Messages done with between two moments, in seconds after the start."""
    first = start(watches)
    return sum(
        count
        for watch in watches
        for ended, count in zip(watch.ended, watch.counts, strict=True)
        if since <= ended - first < until
    )


def each_once(watches: Sequence[Watch], *, messages: int | None = None) -> None:
    """Check that no message came twice and, where *messages* is given, that so many came.

    Raises:
        AssertionError: it is not so.
    """
    ids = [message for watch in watches for message in watch.ids]
    different = len(set(ids))
    if different != len(ids) or (messages is not None and different != messages):
        error = f"{len(ids)} deliveries of {different} messages, where {messages} had been enqueued"
        raise AssertionError(error)
