"""Slots of schedules: the instants at which they are due, from a cron expression in a time zone or from an interval.

Instants are microseconds since the epoch. The rules for daylight saving are those of Debian's cron, which the library
cronsim has too. An expression with fixed times of day: a local time that is skipped is the first valid moment after the
gap, and one that is repeated counts once, the first time. An expression whose minute or hour begins with ``*`` counts
elapsed time: it goes on through a repeated hour, and has nothing in a gap.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final, Literal, Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.times import instant, instant_microseconds, microseconds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

CatchUp: TypeAlias = Literal["skip", "last", "all"]
GRACE: Final = timedelta(minutes=1)
"""A slot is late when it is older than this as a worker comes to it."""

_FIELDS = 5
_SECOND = 1_000_000
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a local time
# No zone changes twice within so many seconds.
_STEP = 6 * 3600
# To find the last slot: a schedule of minutes has one in the first of these, and one of 29 February in the last.
_WINDOWS = (timedelta(hours=1), timedelta(days=1), timedelta(days=32), timedelta(days=366), timedelta(days=366 * 9))


class Timing(Protocol):
    """The slots of a schedule, without beginning and end."""

    def after(self, moment: int) -> Iterator[int]:
        """The slots that are later than a moment, in order."""
        ...

    def last(self, after: int, until: int) -> int | None:
        """The latest slot that is later than *after* and not later than *until*."""
        ...


@dataclass(frozen=True, slots=True)
class CronTiming:
    """The slots of a cron expression in a time zone.

    Attributes:
        expression: Five fields.
        zone: The time zone that the fields are in.
    """

    expression: str
    zone: ZoneInfo

    def after(self, moment: int) -> Iterator[int]:
        """The slots that are later than a moment, in order; those of the next 50 years."""
        minute, hour, *_ = self.expression.split()
        if minute.startswith("*") or hour.startswith("*"):
            return self._by_elapsed_time(moment // _SECOND)
        return self._by_local_time(moment)

    def _by_local_time(self, moment: int) -> Iterator[int]:
        last = moment
        for slot in CronSim(self.expression, instant(moment // _SECOND * _SECOND).astimezone(self.zone)):
            found = instant_microseconds(slot.astimezone(UTC))
            # From the second half of a repeated hour the library goes on with the first one.
            if found > last:
                last = found
                yield found

    def _by_elapsed_time(self, second: int) -> Iterator[int]:
        """In stretches of one offset each: the library loses its step where clocks change by half an hour."""
        change: int | None = second + 1
        while change is not None:
            begin, offset = change - 1, self._offset(change)
            change = None
            for local in CronSim(self.expression, _EPOCH + timedelta(seconds=begin + offset)):
                slot = (local - _EPOCH) // timedelta(seconds=1) - offset
                change = self._change(begin, slot, offset)
                if change is not None:
                    break
                begin = slot
                yield slot * _SECOND

    def _offset(self, second: int) -> int:
        offset = datetime.fromtimestamp(second, self.zone).utcoffset() or timedelta()
        return offset // timedelta(seconds=1)

    def _change(self, after: int, until: int, offset: int) -> int | None:
        """The first second in (after, until] that has another offset."""
        while after < until:
            step = min(after + _STEP, until)
            if self._offset(step) != offset:
                while step - after > 1:
                    middle = (after + step) // 2
                    after, step = (middle, step) if self._offset(middle) == offset else (after, middle)
                return step
            after = step
        return None

    def last(self, after: int, until: int) -> int | None:
        """The latest slot in (after, until]."""
        for window in _WINDOWS:
            start = max(after, until - microseconds(window))
            found = None
            for slot in takewhile(lambda slot: slot <= until, self.after(start)):
                found = slot
            if found is not None or start == after:
                return found
        return None


@dataclass(frozen=True, slots=True)
class IntervalTiming:
    """Slots at every multiple of an interval after an anchor.

    Attributes:
        every: The interval in microseconds.
        anchor: The first slot is one interval later.
    """

    every: int
    anchor: int

    def after(self, moment: int) -> Iterator[int]:
        """The slots that are later than a moment, in order."""
        slot = self.anchor + max((moment - self.anchor) // self.every + 1, 1) * self.every
        while True:
            yield slot
            slot += self.every

    def last(self, after: int, until: int) -> int | None:
        """The latest slot in (after, until]."""
        count = (until - self.anchor) // self.every
        slot = self.anchor + count * self.every
        return slot if count >= 1 and slot > after else None


@dataclass(frozen=True, slots=True)
class Plan:
    """The work that a schedule needs now.

    Attributes:
        slots: The slots to run, in order.
        until: All slots up to then are done with them.
        next: The slot after it; None: there is none.
        more: Whether further slots are due already.
    """

    slots: tuple[int, ...]
    until: int
    next: int | None
    more: bool


def planned(timing: Timing, catch_up: CatchUp, done_until: int, now: int, most: int) -> Plan:
    """The slots to run of those that are later than *done_until* and not later than *now*.

    Slots on time all run. Of those that are late, "all" runs each, "skip" none, and "last" the newest one if no slot
    came after it.

    Args:
        timing: The slots.
        catch_up: What becomes of late slots.
        done_until: All slots up to then are done.
        now: The clock's time.
        most: Most slots to run at once.
    """
    begin = done_until if catch_up == "all" else max(done_until, now - microseconds(GRACE))
    due = takewhile(lambda slot: slot <= now, timing.after(begin))
    slots = tuple(islice(due, most))
    more = len(slots) == most
    if not slots and catch_up == "last" and (last := timing.last(done_until, now)) is not None:
        slots = (last,)
    until = slots[-1] if more else max(now, done_until)
    return Plan(slots, until, next(timing.after(until), None), more)


def cron_timing(expression: str, timezone: str) -> CronTiming:
    """The slots of a cron expression in a time zone.

    Raises:
        InvalidArgument: The expression is none, or the time zone is not known here.
    """
    zone = named_zone(timezone)
    if len(expression.split()) != _FIELDS:
        raise InvalidArgument(
            f"cron is {expression!r:.80}; give five fields, minute, hour, day of month, month and day of week, "
            "like '0 3 * * *'; for seconds give every=timedelta(...)"
        )
    timing = CronTiming(expression, zone)
    try:
        CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise InvalidArgument(
            f"cron is {expression!r:.80}: {str(error).lower()}; give minute, hour, day of month, month and day of "
            "week, like '0 3 * * *'"
        ) from error
    return timing


def named_zone(timezone: str) -> ZoneInfo:
    """The time zone of a name.

    Raises:
        InvalidArgument: It is not known here.
    """
    try:
        return ZoneInfo(timezone)
    except (KeyError, ValueError, OSError) as error:
        raise InvalidArgument(
            f"timezone is {timezone!r:.80}, which this machine does not know; give a name of the IANA database, like "
            "'Europe/Berlin' (the package tzdata has them all)"
        ) from error
