"""Slots: cron expressions against a reference where clocks change, intervals, and the rules of catch_up."""

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import takewhile
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sqlalchemy_fairqueue import InvalidArgument, Recurrence
from sqlalchemy_fairqueue.times import instant_microseconds
from sqlalchemy_fairqueue.values.schedules import CronTiming, IntervalTiming, planned
from tests.schedules import reference

pytestmark = pytest.mark.installed

# Changes at 1, 2 and 3 o'clock, at midnight, by half an hour, by two hours, negative ones, on weekdays, and none.
ZONES = (
    "Europe/Berlin", "America/New_York", "America/Havana", "America/Santiago", "Australia/Lord_Howe", "Asia/Beirut",
    "Europe/Dublin", "Africa/Casablanca", "Antarctica/Troll", "Asia/Gaza", "Asia/Kolkata", "UTC",
)  # fmt: skip
MINUTES = ("0", "30", "15,45", "59", "*", "*/7", "*/15")
HOURS = ("*", "*/2", "0", "1", "2", "3", "5", "23", "1-3", "0,2,4")
DAYS = ("*", "1", "28-31", "*/2")
WEEKDAYS = ("*", "SUN", "FRI")
SECOND = 1_000_000
DRAWN: Any = {
    "zone": st.sampled_from(ZONES),
    "year": st.integers(2016, 2030),
    "expression": st.tuples(*map(st.sampled_from, (MINUTES, HOURS, DAYS, ("*",), WEEKDAYS))).map(" ".join),
}


@cache
def changes(zone: str, year: int) -> tuple[datetime, ...]:
    """The changes of a zone in a year, or its middle."""
    return tuple(reference.transitions(ZoneInfo(zone), year)) or (datetime(year, 7, 1, tzinfo=UTC),)


def at(text: str) -> int:
    """An ISO time in UTC as microseconds."""
    return instant_microseconds(datetime.fromisoformat(text).replace(tzinfo=UTC))


def cron(expression: str, zone: str = "UTC") -> CronTiming:
    """The slots of an expression."""
    timing = Recurrence(cron=expression, timezone=zone).timing(0)
    assert isinstance(timing, CronTiming)
    return timing


def between(timing: CronTiming, after: int, until: int) -> list[int]:
    """Its slots in (after, until]."""
    return list(takewhile(lambda slot: slot <= until, timing.after(after)))


@given(**DRAWN, which=st.integers(0, 3), before=st.integers(0, 40 * 60))
@example(zone="Europe/Berlin", year=2026, which=0, expression="30 2 * * *", before=600)
@example(zone="Europe/Berlin", year=2026, which=1, expression="30 2 * * *", before=600)
@example(zone="Australia/Lord_Howe", year=2026, which=0, expression="*/7 5 * * *", before=600)
@example(zone="Australia/Lord_Howe", year=2026, which=1, expression="*/7 5 * * *", before=600)
def test_slots_are_those_of_the_reference(zone: str, year: int, which: int, expression: str, before: int) -> None:
    """Around every change of the clocks, and from any moment before it or within it on."""
    there = changes(zone, year)
    change = there[which % len(there)]
    after, until = change - timedelta(minutes=before), change + timedelta(hours=40)
    expected = reference.slots(expression, ZoneInfo(zone), after, until)
    assert between(cron(expression, zone), *map(instant_microseconds, (after, until))) == expected


@given(**DRAWN, span=st.integers(0, 40 * 60))
def test_the_last_slot(zone: str, year: int, expression: str, span: int) -> None:
    """The latest slot of a time is the last one of all that are in it."""
    until = instant_microseconds(changes(zone, year)[0]) + 90 * 60 * SECOND
    after = until - span * 60 * SECOND
    timing = cron(expression, zone)
    assert timing.last(after, until) == next(iter(reversed(between(timing, after, until))), None)


@pytest.mark.parametrize(
    ("day", "local", "expected"),
    [
        ("2026-03-27", "30 2 * * *", ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"]),
        ("2026-03-27", "0,30 2,3 * * 0", ["2026-03-29T01:00", "2026-03-29T01:30"]),
        ("2026-03-27", "0 */2 29 3 *", ["2026-03-28T23:00", "2026-03-29T02:00", "2026-03-29T04:00"]),
        ("2026-10-24", "30 2 25 10 *", ["2026-10-25T00:30"]),
        ("2026-10-24", "*/30 2 25 10 *", [f"2026-10-25T0{time}" for time in ("0:00", "0:30", "1:00", "1:30")]),
    ],
)
def test_the_clock_is_put_forward_and_back(day: str, local: str, expected: list[str]) -> None:
    """In Berlin a skipped time of day is the first valid moment, once; a step of hours has nothing in the gap. A
    repeated time of day counts once, the first time; elapsed time goes on.
    """
    begin = at(f"{day}T12:00")
    found = between(cron(local, "Europe/Berlin"), begin, begin + 3 * 86_400 * SECOND)
    assert found[: len(expected) + (day == "2026-10-24")] == [at(one) for one in expected]


def test_slots_of_an_interval() -> None:
    """They are multiples of the interval after the anchor, the first one an interval later."""
    timing = IntervalTiming(10, 1003)
    assert [next(timing.after(moment)) for moment in (0, 1003, 1012, 1013, 1999)] == [1013, 1013, 1013, 1023, 2003]
    assert [timing.last(0, until) for until in (1003, 1012, 1013, 1999)] == [None, None, 1013, 1993]
    assert timing.last(1993, 1999) is None


@pytest.mark.parametrize(
    ("catch_up", "late", "expected"),
    [
        ("skip", "10:00:40", ["10:00"]),
        ("last", "10:00:40", ["10:00"]),
        ("all", "10:00:40", ["09:00", "10:00"]),
        ("skip", "10:30:00", []),
        ("last", "10:30:00", ["10:00"]),
        ("all", "10:30:00", ["09:00", "10:00"]),
        ("last", "08:59:00", []),
    ],
)
def test_late_slots(catch_up: str, late: str, expected: list[str]) -> None:
    """What is on time runs; of what is late, none, the newest if nothing came after it, or all."""
    day = "2026-01-05T"
    timing, now = cron("0 * * * *"), at(day + late)
    plan = planned(timing, catch_up, at(day + "08:00"), now, 100)  # type: ignore[arg-type]
    assert plan.slots == tuple(at(day + slot) for slot in expected)
    assert (plan.until, plan.more) == (now, False)
    assert plan.next == next(timing.after(now))


def test_many_late_slots_run_in_parts() -> None:
    """Each part begins where the one before ended, and none is missing."""
    timing, now, done = IntervalTiming(SECOND, 0), 1050 * SECOND, 0
    found: list[int] = []
    more = True
    while more:
        plan = planned(timing, "all", done, now, 100)
        found += plan.slots
        done, more = plan.until, plan.more
    assert found == [second * SECOND for second in range(1, 1051)]


def test_an_outage_of_years_is_planned_at_once() -> None:
    """The newest slot is found without a walk over all of them."""
    timing, now = cron("*/5 * * * *", "Europe/Berlin"), at("2026-01-05T10:03")
    assert planned(timing, "last", 0, now, 100).slots == (at("2026-01-05T10:00"),)
    assert planned(timing, "skip", 0, now, 100).slots == ()
    assert planned(cron("0 0 29 2 *"), "last", 0, now, 100).slots == (at("2024-02-29T00:00"),)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({}, "cron is None and every is None; give one of them"),
        ({"cron": "0 3 * * *", "every": timedelta(hours=1)}, "give one of them"),
        ({"cron": "0 3 * *"}, "give five fields"),
        ({"cron": "0 25 * * *"}, "cron is '0 25 .*: bad hour; give minute"),
        ({"cron": "0 3 * * *", "timezone": "Europe/Atlantis"}, "timezone is 'Europe/Atlantis', which this machine"),
        ({"cron": "0 3 * * *", "timezone": "../etc/passwd"}, "timezone is '../etc/passwd', which this machine"),
        ({"every": timedelta(hours=1), "timezone": "UTC"}, "an interval has no time zone"),
        ({"every": timedelta(milliseconds=999)}, "every is .*; give a timedelta from 0:00:01"),
        ({"cron": "0 3 * * *", "catch_up": "none"}, "catch_up is 'none'; give 'skip', 'last' or 'all'"),
        ({"cron": "0 3 * * *", "jitter": timedelta(seconds=-1)}, "jitter is"),
        ({"cron": "0 0 30 2 *"}, "cron is '0 0 30 2"),
    ],
)
def test_what_never_comes_is_refused(words: dict[str, object], said: str) -> None:
    """An expression, a zone or an interval that has no slots is refused with its value."""
    with pytest.raises(InvalidArgument, match=said):
        Recurrence(**words)  # type: ignore[arg-type]


def test_a_slot_is_a_moment() -> None:
    """Slots are whole minutes, later than the moment that is given, and go on for ever."""
    slots = cron("* * * * *").after(at("2026-01-05T10:03") + 1)
    assert [next(slots), next(slots)] == [at("2026-01-05T10:04"), at("2026-01-05T10:05")]
