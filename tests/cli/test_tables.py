import io

import pytest
from rich.console import Console

from sqlalchemy_fairqueue.cli.tables import BLANK, Column, number_column, text_table

_COLUMNS = (
    Column("channel"),
    number_column("ready"),
    number_column("dropped", blank=BLANK),
    Column("error"),
    Column("state", blank=BLANK),
)


def lines(width: int, *rows: tuple[object, ...]) -> list[str]:
    """What is printed on a terminal of this width."""
    console = Console(file=io.StringIO(), width=width)
    console.print(text_table(_COLUMNS, rows))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_columns_that_say_nothing_go_first() -> None:
    """Where it is narrow a column that says nothing is left out, from the right, and no more than needed."""
    assert lines(30, ("a", 1, 0, "x", "")) == ["channel  ready  dropped  error", "a            1        0  x"]
    assert lines(29, ("a", 1, 0, "x", "")) == ["channel  ready  error", "a            1  x"]
    assert lines(29, ("a", 1, 5, "x", ""))[0].split() == ["chann…", "ready", "dropped", "error"]


def test_words_are_cut_before_numbers() -> None:
    """Then the longest words are cut, and numbers never."""
    [headings, row] = lines(40, ("c" * 50, 1234567890, 7, "e" * 30, ""))
    assert headings.split() == ["channel", "ready", "dropped", "error"]
    assert "1,234,567,890" in row
    assert len(row) == 40
    channel, _, _, error = row.split()
    assert abs(len(channel) - len(error)) <= 1
    assert channel.endswith("…")


def test_texts_that_wrap() -> None:
    """A column that wraps shows all of a text, on as many lines as that takes."""
    console = Console(file=io.StringIO(), width=30)
    console.print(text_table((Column("kind"), Column("error", wraps=True)), [("a", "x" * 60)]))
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue()
    assert (printed.count("x"), "…" in printed) == (60, False)


@pytest.mark.parametrize("width", [1, 5, 20])
def test_too_narrow_for_anything(width: int) -> None:
    """However narrow it is, something is printed, a line a row."""
    assert len(lines(width, ("a" * 50, 1, 2, "b" * 50, "paused"), ("x", 1, 2, None, ""))) == 3
