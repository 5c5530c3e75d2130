"""Renders items as a table on the screen and as a document, both from one list of columns.

If a terminal is too narrow, columns without information are left out. If that is not enough, texts are cut or wrapped:
first those that are no names, then names too. Numbers are never cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.table import Table as Grid
from rich.text import Text

from sqlalchemy_fairqueue.formats import format_value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

_GAP = 2
_FIRST_WIDTH, _MIN_WIDTH = 12, 4
_NAMES = frozenset({"queue", "channel", "name", "kind", "worker"})
"""Headings of columns that are narrowed after others, since a name that is cut cannot be used in a command."""
BLANK = frozenset({"", "-", "0"})


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, and an entry of a document.

    Attributes:
        name: The heading. "": the column is in documents alone.
        key: The name in documents; None: the column is on the screen alone. "": the heading with underscores.
        get: Returns the value of an item. None: the item's attribute or entry that is named like the key.
        shown: Returns what the screen shows for a value; not called for None.
        number: Whether it is aligned to the right and never cut.
        blank: Values without information. A column with only such values may be left out.
        style: The style of the cells on the screen, or a function that returns the style for a value.
        wraps: Whether a text that is too long for the width is continued on further lines instead of cut.
    """

    name: str
    key: str | None = ""
    get: Callable[[Any], Any] | None = None
    shown: Callable[[Any], object] | None = None
    number: bool = False
    blank: frozenset[str] = frozenset()
    style: str | Callable[[Any], str] = ""
    wraps: bool = False

    @property
    def member(self) -> str:
        return self.key or self.name.replace(" ", "_")

    def value(self, item: object) -> Any:
        if self.get is not None:
            return self.get(item)
        return item[self.member] if isinstance(item, dict) else getattr(item, self.member)

    def cell(self, item: object) -> Text:
        value = self.value(item)
        shown = self.shown(value) if self.shown and value is not None else value
        return (
            shown if isinstance(shown, Text) else cell(shown, self.style(value) if callable(self.style) else self.style)
        )


number_column = partial(Column, number=True)


class Table:
    """The columns for one kind of items. The screen and the document have the columns in this order."""

    def __init__(self, *columns: Column) -> None:
        self._columns = columns
        self._shown = [column for column in columns if column.name]
        self.members = [column for column in columns if column.key is not None]

    def screen(self, items: Iterable[object], without: Collection[str] = ()) -> TextTable:
        columns = [column for column in self._shown if column.name not in without]
        return TextTable(tuple(columns), tuple(tuple(column.cell(item) for column in columns) for item in items))

    def details(self, item: object, without: Collection[str] = ()) -> Grid:
        columns = [column for column in self._shown if column.name not in without and column.value(item) is not None]
        return key_values([(column.name, column.cell(item)) for column in columns])

    def document(self, item: object) -> dict[str, Any]:
        return {column.member: column.value(item) for column in self.members}

    def documents(self, items: Iterable[object]) -> list[dict[str, Any]]:
        return [self.document(item) for item in items]

    def listing(
        self, items: Sequence[object], nothing: str, more: str | None = None, without: Collection[str] = ()
    ) -> tuple[RenderableType, ...]:
        shown = self.screen(items, without) if items else Text(nothing)
        return (shown,) if more is None else (shown, Text(more))


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table for the terminal, without borders or rules."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Text, ...], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = [
            max([Text(column.name).cell_len, *(row[index].cell_len for row in self.rows)])
            for index, column in enumerate(self.columns)
        ]
        kept = _kept(self._is_blank(), widths, options.max_width)
        flexible = [index for index in kept if not self.columns[index].number]
        others = [index for index in flexible if self.columns[index].name not in _NAMES]
        _shrink(widths, others, kept, options.max_width, _FIRST_WIDTH)
        _shrink(widths, flexible, kept, options.max_width, _MIN_WIDTH)
        table = Grid(box=None, pad_edge=False, header_style="bold")
        for index in kept:
            column = self.columns[index]
            table.add_column(
                Text(column.name),
                justify="right" if column.number else "left",
                width=widths[index],
                no_wrap=not column.wraps,
                overflow="fold" if column.wraps else "ellipsis",
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
    return TextTable(
        tuple(columns),
        tuple(tuple(value if isinstance(value, Text) else cell(value) for value in row) for row in rows),
    )


def key_values(rows: Iterable[tuple[str, object]], *, blank: bool = True) -> Grid:
    table = Grid(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        if not blank and value is None:
            continue
        table.add_row(name, value if isinstance(value, Text) else cell(value))
    return table


def bold(words: str) -> Text:
    return Text(words, style="bold")


def cell(value: object, style: str = "") -> Text:
    return Text(format_value(value), style=style if value is not None else "dim")


def _total(kept: Sequence[int], widths: Sequence[int]) -> int:
    return sum(widths[index] for index in kept) + _GAP * (len(kept) - 1)


def _kept(blank: Sequence[bool], widths: Sequence[int], width: int) -> list[int]:
    kept = list(range(len(widths)))
    for index in reversed(range(len(widths))):
        if blank[index] and _total(kept, widths) > width:
            kept.remove(index)
    return kept


def _shrink(widths: list[int], flexible: Sequence[int], kept: Sequence[int], width: int, least: int) -> None:
    for _ in range(_total(kept, widths) - width):
        widest = max(flexible, key=lambda index: widths[index], default=None)
        if widest is None or widths[widest] <= least:
            return
        widths[widest] -= 1
