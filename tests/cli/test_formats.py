import traceback
from datetime import timedelta

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue import Rate
from sqlalchemy_fairqueue.formats import (
    format_duration,
    format_value,
    parse_duration,
    parse_rate,
    plural,
)
from sqlalchemy_fairqueue.texts import clean, exception_line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30", timedelta(seconds=30)),
        ("30s", timedelta(seconds=30)),
        ("250ms", timedelta(milliseconds=250)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("1.5H", timedelta(hours=1, minutes=30)),
        (" 7d ", timedelta(days=7)),
        ("2w", timedelta(days=14)),
        ("5us", timedelta(microseconds=5)),
        ("0", timedelta()),
    ],
)
def test_durations(text: str, expected: timedelta) -> None:
    """Durations are read as people write them; a number alone is seconds."""
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "s", "-5s", "5 s", "1h-3m", "5y", "1e3", "٣s", "9999999999999d", "nan"])
def test_no_durations(text: str) -> None:
    """What is no duration is refused with the text and examples."""
    with pytest.raises(ValueError, match="is no duration; give one like 30s"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "interval", "words"),
    [
        ("10/s", timedelta(milliseconds=100), "10/s"),
        ("600/m", timedelta(milliseconds=100), "10/s"),
        ("1/30s", timedelta(seconds=30), "2/m"),
        ("2.5/s", timedelta(milliseconds=400), "2.5/s"),
        ("30/s", timedelta(microseconds=33_333), "30/s"),
        ("700/s", timedelta(microseconds=1_429), "700/s"),
        ("100000/m", timedelta(microseconds=600), "100000/m"),
        ("1/d", timedelta(days=1), "1/d"),
        ("1/10d", timedelta(days=10), "1/10d"),
    ],
)
def test_rates(text: str, interval: timedelta, words: str) -> None:
    """Rates are read as a number a duration, and written back in the smallest unit that has at least one."""
    rate = parse_rate(text)
    assert isinstance(rate, Rate)
    assert (rate.interval, rate.per_time()) == (interval, words)


@pytest.mark.parametrize("text", ["", "10", "0/s", "10/", "/s", "10/0s", "10/y", "-1/s", "1/9999999999999d"])
def test_no_rates(text: str) -> None:
    """What is no rate is refused with the text and examples."""
    with pytest.raises(ValueError, match="is no rate; give one like 10/s"):
        parse_rate(text)


def test_a_rate_beyond_the_clock() -> None:
    """More than a message a microsecond cannot be kept, and is not taken for no limit."""
    with pytest.raises(ValueError, match="more than a million a second"):
        parse_rate("10000000/s")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (timedelta(), "0ms"),
        (timedelta(milliseconds=250), "250ms"),
        (timedelta(microseconds=999_600), "1.0s"),
        (timedelta(seconds=3.21), "3.2s"),
        (timedelta(seconds=59.96), "1m 00s"),
        (timedelta(minutes=12, seconds=5), "12m 05s"),
        (timedelta(hours=3, minutes=4, seconds=59), "3h 04m"),
        (timedelta(days=3, hours=4), "3d 04h"),
        (-timedelta(seconds=2), "-2.0s"),
    ],
)
def test_durations_in_words(value: timedelta, words: str) -> None:
    """A duration is told in its two largest units."""
    assert format_duration(value) == words


def test_nothing_commands_the_terminal() -> None:
    """What a terminal would obey or hide is shown as an escape, and what it shows is left alone."""
    assert clean("a\x1b[2J\n\u202eb\tc\ud800 köln 東京") == r"a\x1b[2J\n\u202eb\tc\ud800 köln 東京"


def test_values_in_words() -> None:
    """None is a dash, numbers have thousands, truth is yes or no."""
    assert [format_value(value) for value in (None, 1234567, True, False, "x")] == ["-", "1,234,567", "yes", "no", "x"]
    assert [plural(1, "row"), plural(1200, "row")] == ["1 row", "1,200 rows"]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (None, None),
        ("", ""),
        ("TimeoutError: host 1\nno answer", "TimeoutError: host 1"),
    ],
)
def test_the_line_of_an_error_without_frames(error: str | None, line: str | None) -> None:
    """It is the first one."""
    assert exception_line(error) == line


def test_the_line_that_names_an_exception(engine: Engine) -> None:
    """It is the one below the frames, not what a cause, a driver or SQLAlchemy writes above and below it."""
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
