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


def test_wide_enough() -> None:
    """Where there is room every column is there, whatever it says."""
    assert lines(80, ("a", 1, 0, None, "")) == [
        "channel  ready  dropped  error  state",
        "a            1        0  -",
    ]


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


@pytest.mark.parametrize("width", [1, 5, 20])
def test_too_narrow_for_anything(width: int) -> None:
    """However narrow it is, something is printed, a line a row."""
    assert len(lines(width, ("a" * 50, 1, 2, "b" * 50, "paused"), ("x", 1, 2, None, ""))) == 3


def test_no_rows() -> None:
    """Without rows the headings stand alone."""
    assert lines(80) == ["channel  ready  dropped  error  state"]


def test_wide_characters() -> None:
    """A character that takes two columns counts as two."""
    rows = lines(80, ("東京", 1, 0, "x", "y"), ("köln", 1, 0, "x", "y"))
    assert rows[1].index("1") == rows[2].index("1") - 2


def test_other_texts_are_cut_before_names() -> None:
    """A name is whole as long as other texts can give way, even if it is the longest."""
    name = "customer-with-a-long-name"
    [_, row] = lines(len(name) + 30, (name, 1, 5, "OSError: no such page", ""))
    assert row.split() == [name, "1", "5", "OSError:", "no\N{HORIZONTAL ELLIPSIS}"]
