import io

from rich.console import Console

from sqlalchemy_fairqueue.cli.tables import BLANK, Column, number_column, text_table


def _printed(width: int, *columns: Column) -> list[list[str]]:
    """The words that are printed of a row on a terminal of this width."""
    console = Console(file=io.StringIO(), width=width)
    console.print(text_table((Column("channel"), number_column("ready"), *columns), [("c" * 50, 1234567, 0, "e" * 60)]))
    assert isinstance(console.file, io.StringIO)
    return [line.split() for line in console.file.getvalue().splitlines()]


def test_narrow_terminals() -> None:
    """A column that says nothing is left out, then words are cut and numbers never; a column that wraps shows all."""
    columns = number_column("dropped", blank=BLANK), Column("error")
    assert _printed(200, *columns) == [["channel", "ready", "dropped", "error"], ["c" * 50, "1,234,567", "0", "e" * 60]]
    headings, [channel, number, error] = _printed(40, *columns)
    assert (headings, number) == (["channel", "ready", "error"], "1,234,567")
    assert (channel[-1], error[-1]) == ("…", "…")
    wrapped = _printed(40, columns[0], Column("error", wraps=True))
    assert sum(word.count("e") for line in wrapped[1:] for word in line) == 60
