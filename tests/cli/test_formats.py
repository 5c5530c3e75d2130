import traceback
from datetime import timedelta

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue import Rate
from sqlalchemy_fairqueue.formats import format_duration, format_value, parse_duration, parse_rate, plural
from sqlalchemy_fairqueue.texts import clean, exception_line


def test_durations() -> None:
    """Durations are read as people write them; a number alone is seconds."""
    for given, seconds in {
        "30": 30, "30s": 30, "250ms": 0.25, "1h30m": 5_400, "1.5H": 5_400, " 7d ": 604_800, "2w": 1_209_600,
        "5us": 5e-6, "0": 0,
    }.items():  # fmt: skip
        assert parse_duration(given) == timedelta(seconds=seconds), given


def test_no_durations() -> None:
    """What is no duration is refused with the text and examples."""
    for given in ("", "s", "-5s", "5 s", "1h-3m", "5y", "1e3", "٣s", "9999999999999d", "nan"):
        with pytest.raises(ValueError, match="is no duration; give one like 30s"):
            parse_duration(given)


def test_rates() -> None:
    """Rates are read as a number a duration, and written back in the smallest unit that has at least one."""
    for given, microseconds, words in (
        ("2.5/s", 400_000, "2.5/s"), ("30/s", 33_333, "30/s"), ("700/s", 1_429, "700/s"),
        ("100000/m", 600, "100000/m"), ("1/10d", 864_000_000_000, "1/10d"),
    ):  # fmt: skip
        rate = Rate.parse(given)
        assert (rate.interval, rate.per_time()) == (timedelta(microseconds=microseconds), words)


def test_no_rates() -> None:
    """What is no rate is refused with the text and examples; beyond the clock it is not taken for none."""
    for given in ("", "10", "0/s", "10/", "/s", "10/0s", "10/y", "-1/s", "1/9999999999999d"):
        with pytest.raises(ValueError, match="is no rate; give one like 10/s"):
            parse_rate(given)
    with pytest.raises(ValueError, match="more than a million a second"):
        parse_rate("10000000/s")


def test_durations_in_words() -> None:
    """A duration is told in its two largest units."""
    for seconds, words in {
        0: "0ms", 0.25: "250ms", 0.9996: "1.0s", 3.21: "3.2s", 59.96: "1m 00s", 725: "12m 05s", 11_099: "3h 04m",
        273_600: "3d 04h", -2: "-2.0s",
    }.items():  # fmt: skip
        assert format_duration(timedelta(seconds=seconds)) == words


def test_nothing_commands_the_terminal() -> None:
    """What a terminal would obey or hide is shown as an escape, and what it shows is left alone."""
    assert clean("a\x1b[2J\n\u202eb\tc\ud800 köln 東京") == r"a\x1b[2J\n\u202eb\tc\ud800 köln 東京"


def test_values_in_words() -> None:
    """None is a dash, numbers have thousands, truth is yes or no."""
    assert [format_value(value) for value in (None, 1234567, True, False, "x")] == ["-", "1,234,567", "yes", "no", "x"]
    assert [plural(1, "row"), plural(1200, "row")] == ["1 row", "1,200 rows"]


def test_the_line_that_names_an_exception(engine: Engine) -> None:
    """It is the one below the frames, not what a cause, a driver or SQLAlchemy writes above and below it; without
    frames the first.
    """
    for error, first in ((None, None), ("", ""), ("TimeoutError: host 1\nno answer", "TimeoutError: host 1")):
        assert exception_line(error) == first
    with pytest.raises(DBAPIError) as caught, engine.connect() as connection:
        connection.execute(text("select 1 / :zero"), {"zero": 0})
    told = "".join(traceback.format_exception(caught.value))
    assert told.splitlines()[-1].startswith("(Background on this error")
    line = exception_line(told) or ""
    assert line.startswith("sqlalchemy.exc.DataError: (psycopg.errors.DivisionByZero) division by zero")
    with pytest.raises(ExceptionGroup) as group:
        raise ExceptionGroup("all tasks", [ValueError("no such page"), caught.value])
    assert exception_line("".join(traceback.format_exception(group.value))) == line
    with pytest.raises(ExceptionGroup) as group:
        raise ExceptionGroup("all tasks", [ValueError("no such page")])
    told = "".join(traceback.format_exception(group.value))
    assert exception_line(told) == "ExceptionGroup: all tasks (1 sub-exception)"
