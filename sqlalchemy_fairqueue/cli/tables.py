"""Tables that stay readable in a narrow terminal: numbers are never cut, columns that say nothing go first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from sqlalchemy_fairqueue.cli.printing import cell

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

_GAP = 2
_LEAST = 4
NOTHING = frozenset({"", "-", "0"})


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: The heading.
        number: Whether it is aligned to the right and never cut.
        silent: Values that say nothing: a column that has no others is left out where the width does not suffice.
    """

    name: str
    number: bool = False
    silent: frozenset[str] = frozenset()


def number(name: str, silent: frozenset[str] = frozenset()) -> Column:
    """A column of numbers."""
    return Column(name, number=True, silent=silent)


@dataclass(frozen=True, slots=True)
class Listing:
    """A table without lines.

    Attributes:
        columns: The columns.
        rows: The cells, as many a row as there are columns.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Text, ...], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay it out for the width that there is."""
        widths = [
            max([Text(column.name).cell_len, *(row[index].cell_len for row in self.rows)])
            for index, column in enumerate(self.columns)
        ]
        kept = _kept(self._silent(), widths, options.max_width)
        _shrink(widths, [index for index in kept if not self.columns[index].number], kept, options.max_width)
        made = Table(box=None, pad_edge=False, header_style="bold")
        for index in kept:
            column = self.columns[index]
            made.add_column(
                Text(column.name),
                justify="right" if column.number else "left",
                width=widths[index],
                no_wrap=True,
                overflow="ellipsis",
            )
        for row in self.rows:
            made.add_row(*(row[index] for index in kept))
        yield made

    def _silent(self) -> list[bool]:
        return [
            bool(column.silent) and all(row[index].plain in column.silent for row in self.rows)
            for index, column in enumerate(self.columns)
        ]


def listing(columns: Iterable[Column], rows: Iterable[Sequence[object]]) -> Listing:
    """A table of values, or of Text where a style is wanted."""
    return Listing(
        tuple(columns),
        tuple(tuple(value if isinstance(value, Text) else cell(value) for value in row) for row in rows),
    )


def _total(kept: Sequence[int], widths: Sequence[int]) -> int:
    return sum(widths[index] for index in kept) + _GAP * (len(kept) - 1)


def _kept(silent: Sequence[bool], widths: Sequence[int], most: int) -> list[int]:
    """The columns to show: silent ones go from the right, as long as the width does not suffice."""
    kept = list(range(len(widths)))
    for index in reversed(range(len(widths))):
        if silent[index] and _total(kept, widths) > most:
            kept.remove(index)
    return kept


def _shrink(widths: list[int], flexible: Sequence[int], kept: Sequence[int], most: int) -> None:
    """Take what is too much from the widest column of words, one by one, so that they end alike."""
    for _ in range(_total(kept, widths) - most):
        widest = max(flexible, key=lambda index: widths[index], default=None)
        if widest is None or widths[widest] <= _LEAST:
            return
        widths[widest] -= 1
