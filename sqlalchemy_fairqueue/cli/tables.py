"""Tables for terminals of any width: numbers are never cut, and columns without information are left out first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from sqlalchemy_fairqueue.formats import format_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

_GAP = 2
_MIN_WIDTH = 4
BLANK = frozenset({"", "-", "0"})


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: The heading.
        number: Whether it is aligned to the right and never cut.
        blank: Values without information. A column that holds no others is left out where the width does not suffice.
    """

    name: str
    number: bool = False
    blank: frozenset[str] = frozenset()


def number_column(name: str, blank: frozenset[str] = frozenset()) -> Column:
    """A column of numbers."""
    return Column(name, number=True, blank=blank)


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table without lines.

    Attributes:
        columns: The columns.
        rows: The cells, as many a row as there are columns.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Text, ...], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Fit the table into the width of the console."""
        widths = [
            max([Text(column.name).cell_len, *(row[index].cell_len for row in self.rows)])
            for index, column in enumerate(self.columns)
        ]
        kept = _kept(self._is_blank(), widths, options.max_width)
        _shrink(widths, [index for index in kept if not self.columns[index].number], kept, options.max_width)
        table = Table(box=None, pad_edge=False, header_style="bold")
        for index in kept:
            column = self.columns[index]
            table.add_column(
                Text(column.name),
                justify="right" if column.number else "left",
                width=widths[index],
                no_wrap=True,
                overflow="ellipsis",
            )
        for row in self.rows:
            table.add_row(*(row[index] for index in kept))
        yield table

    def _is_blank(self) -> list[bool]:
        return [
            bool(column.blank) and all(row[index].plain in column.blank for row in self.rows)
            for index, column in enumerate(self.columns)
        ]


def text_table(columns: Iterable[Column], rows: Iterable[Sequence[object]]) -> TextTable:
    """A table of values, or of Text where a style is wanted."""
    return TextTable(
        tuple(columns),
        tuple(tuple(value if isinstance(value, Text) else cell(value) for value in row) for row in rows),
    )


def key_values(rows: Iterable[tuple[str, object]]) -> Table:
    """Names and values, one below the other."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value if isinstance(value, Text) else cell(value))
    return table


def cell(value: object, style: str = "") -> Text:
    """A value as the text of a cell; None is a dash."""
    return Text(format_value(value), style=style if value is not None else "dim")


def _total(kept: Sequence[int], widths: Sequence[int]) -> int:
    return sum(widths[index] for index in kept) + _GAP * (len(kept) - 1)


def _kept(blank: Sequence[bool], widths: Sequence[int], width: int) -> list[int]:
    """The columns to show: blank ones are left out from the right, as long as the width does not suffice."""
    kept = list(range(len(widths)))
    for index in reversed(range(len(widths))):
        if blank[index] and _total(kept, widths) > width:
            kept.remove(index)
    return kept


def _shrink(widths: list[int], flexible: Sequence[int], kept: Sequence[int], width: int) -> None:
    """Narrow the widest text column by one, as often as the width requires."""
    for _ in range(_total(kept, widths) - width):
        widest = max(flexible, key=lambda index: widths[index], default=None)
        if widest is None or widths[widest] <= _MIN_WIDTH:
            return
        widths[widest] -= 1
