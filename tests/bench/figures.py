"""Figures of one run: what each side did in each round, their ratio round by round, and the tables of it all."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

Better = Literal["more", "less"]


def told(values: Sequence[float]) -> str:
    """Return the median, and the least and the greatest if they differ."""
    if not values:
        return ""
    middle, least, most = (number(value) for value in (median(values), min(values), max(values)))
    return middle if least == most else f"{middle} ({least} to {most})"


def number(value: float) -> str:
    """Return a value with three digits that count."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


@dataclass(frozen=True, slots=True)
class Figure:
    """One comparison: ratios are taken within a round, whose two sides ran one right after the other.

    Attributes:
        what: What was measured.
        unit: The unit of *ours* and *theirs*.
        ours: One value a round.
        theirs: What it is compared with, in the same rounds.
        against: What that is.
        reach: The ratio of ours to theirs that we want; None: only told.
        better: Whether more or less is better.
        notes: Further figures, by name.
    """

    what: str
    unit: str
    ours: Sequence[float]
    theirs: Sequence[float]
    against: str
    reach: float | None = None
    better: Better = "more"
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
        return "reached" if (ratio >= self.reach if self.better == "more" else ratio <= self.reach) else "missed"

    def row(self) -> list[str]:
        """Return the figure as a row of the report."""
        reach = "" if self.reach is None else f"{'>=' if self.better == 'more' else '<='} {self.reach:g}"
        notes = "; ".join(f"{name} {value}" for name, value in self.notes.items())
        return [
            self.what, self.unit, number(median(self.ours)), f"{self.against} {number(median(self.theirs))}",
            told(self.ratios), reach, self.verdict, notes,
        ]  # fmt: skip


class Rounds(dict[str, list["Mapping[str, float]"]]):
    """What each side did, round by round: figures by name."""

    def of(self, side: str, name: str) -> list[float]:
        """Return a figure of a side, one value a round that has it."""
        return [figures[name] for figures in self.get(side, ()) if name in figures]

    def told(self, side: str, name: str) -> str:
        """Return the same for a person."""
        return told(self.of(side, name))

    def compare(
        self,
        what: str,
        unit: str,
        sides: tuple[str, str],
        against: str,
        reach: float | None = None,
        *,
        better: Better = "more",
        notes: Mapping[str, str] | None = None,
        name: str = "",
    ) -> Figure:
        """Compare a figure, called like its unit unless *name* says otherwise, of two sides: ours, and theirs."""
        ours, theirs = (self.of(side, name or unit) for side in sides)
        return Figure(what, unit, ours, theirs, against, reach, better, notes or {})


@dataclass(frozen=True, slots=True)
class Alternate:
    """Measures sides in turn, first to last in one round and last to first in the next."""

    rounds: range

    def __call__(self, sides: Sequence[str], measure: Callable[[str], Mapping[str, float]]) -> Rounds:
        """Call *measure* with each side once a round, and return what it gave."""
        found = Rounds({side: [] for side in sides})
        for number in self.rounds:
            for side in sides if number % 2 == 0 else sides[::-1]:
                found[side].append(measure(side))
        return found


@dataclass(slots=True)
class Report:
    """All figures of a run, and the tables that workloads of the field leave."""

    server: dict[str, str] = field(default_factory=dict)
    full: bool = False
    figures: list[Figure] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)

    def add(self, figure: Figure) -> None:
        """Keep a figure."""
        self.figures.append(figure)

    def text(self) -> str:
        """Return the whole run, for a person."""
        form = "full" if self.full else "quick"
        settings = ", ".join(f"{name} {value}" for name, value in self.server.items())
        heads = ["what", "unit", "ours", "beside", "ratio (range)", "reach", "verdict", "notes"]
        return "\n\n".join([
            f"{form} form, {settings}", table(heads, (figure.row() for figure in self.figures)), *self.tables
        ])  # fmt: skip
