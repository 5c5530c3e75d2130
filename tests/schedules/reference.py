"""Slots of cron expressions, minute by minute: slow, and simple enough to be right at sight."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from sqlalchemy_fairqueue.times import instant_microseconds

MINUTE = timedelta(minutes=1)
_DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")


def _matches(field: str, value: int, least: int) -> bool:
    for term in field.split(","):
        span, _, step = term.partition("/")
        first, _, last = span.partition("-")
        if span == "*":
            if (value - least) % int(step or 1) == 0:
                return True
        elif int(first) <= value <= int(last or first):
            return True
    return False


def matches(expression: str, local: datetime) -> bool:
    """Whether a local time is one of the expression's; a day of week is a name or a star."""
    minute, hour, day, month, weekday = expression.split()
    on_weekday = weekday == "*" or local.weekday() == _DAYS.index(weekday)
    on_day = _matches(day, local.day, 1)
    both = day.startswith("*") or weekday.startswith("*")
    return (
        _matches(minute, local.minute, 0)
        and _matches(hour, local.hour, 0)
        and _matches(month, local.month, 1)
        and ((on_day and on_weekday) if both else (on_day or on_weekday))
    )


def transitions(zone: ZoneInfo, year: int) -> list[datetime]:
    """The minutes of a year, in UTC, at which the zone's offset is another one than the minute before."""
    found = []
    moment = datetime(year, 1, 1, tzinfo=UTC)
    while moment.year == year:
        later = moment + timedelta(hours=1)
        if offset(zone, moment) != offset(zone, later):
            found.append(next(at for at in minutes(moment, later) if offset(zone, at) != offset(zone, at - MINUTE)))
        moment = later
    return found


def minutes(after: datetime, until: datetime) -> Iterator[datetime]:
    """The minutes in (after, until]."""
    while after < until:
        after += MINUTE
        yield after


def offset(zone: ZoneInfo, moment: datetime) -> timedelta | None:
    """The zone's offset at a moment."""
    return moment.astimezone(zone).utcoffset()


def slots(expression: str, zone: ZoneInfo, after: datetime, until: datetime) -> list[int]:
    """The slots in (after, until], by the rules of the documentation."""
    minute, hour, *_ = expression.split()
    if minute.startswith("*") or hour.startswith("*"):
        # By elapsed time: every minute that there is.
        found = {at for at in minutes(after, until) if matches(expression, at.astimezone(zone))}
    else:
        found = set()
        begin, end = (moment.astimezone(zone).replace(tzinfo=None) for moment in (after, until))
        for local in minutes(begin - timedelta(days=2), end + timedelta(days=2)):
            if matches(expression, local):
                found.add(_first_valid(local, zone))
    return [instant_microseconds(at) for at in sorted(found) if after < at <= until]


def _first_valid(local: datetime, zone: ZoneInfo) -> datetime:
    """A local time's first moment; of one that is skipped, the first moment after the gap."""
    # By the offset before a change, if there is one.
    moment = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == local:
        return moment
    while offset(zone, moment) == offset(zone, moment - MINUTE):
        moment -= MINUTE
    return moment
