"""Schedules as values: their recurrence, their state, and their slots.

Timings count instants in microseconds since 1970. Daylight saving follows the rules of Debian's cron, which the
library cronsim implements. If the clocks skip a fixed time of day, its slot is the first moment after the gap. If they
repeat it, only the first time counts. An expression whose minute or hour begins with ``*`` counts elapsed time: it goes
on through a repeated hour, and has no slots in a gap.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypedDict, cast
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.times import instant, instant_microseconds, microseconds
from sqlalchemy_fairqueue.values.checks import check_choice, check_duration, check_name

if TYPE_CHECKING:
    from collections.abc import Iterator

CatchUp: TypeAlias = Literal["skip", "last", "all"]
GRACE: Final = timedelta(minutes=1)
"""A slot is late if it is older than this when a worker comes to it."""

_FIELDS = 5
_SECOND = 1_000_000
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a local time
# No time zone changes its UTC offset twice within so many seconds.
_STEP = 6 * 3600
# The last slot before an instant is looked for in these windows, one after the other, until one has a slot. The first
# suffices for slots of every minute. The last is nine years, since eight years can lie between two 29 Februaries.
_WINDOWS = (timedelta(hours=1), timedelta(days=1), timedelta(days=32), timedelta(days=366), timedelta(days=366 * 9))


@dataclass(frozen=True, slots=True)
class CronTiming:
    """The slots of a cron expression with five fields in a time zone."""

    expression: str
    zone: ZoneInfo

    def after(self, moment: int) -> Iterator[int]:
        """Yield the slots after a moment, in order. End if no further slot comes within 50 years."""
        minute, hour, *_ = self.expression.split()
        if minute.startswith("*") or hour.startswith("*"):
            return self._by_elapsed_time(moment // _SECOND)
        return self._by_local_time(moment)

    def _by_local_time(self, moment: int) -> Iterator[int]:
        last = moment
        for slot in CronSim(self.expression, instant(moment // _SECOND * _SECOND).astimezone(self.zone)):
            found = instant_microseconds(slot.astimezone(UTC))
            # When an hour is repeated, CronSim takes an instant in the second pass for one in the first pass. It then
            # yields slots of the first pass, which lie before the moment and are left out.
            if found > last:
                last = found
                yield found

    def _by_elapsed_time(self, second: int) -> Iterator[int]:
        # Each UTC offset gets its own CronSim, since one CronSim misses slots if the clocks change by half an hour.
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
        """Return the first second since 1970 in (after, until] whose UTC offset in seconds is not *offset*, or None."""
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
    """The slots at every multiple of an interval after an anchor; interval and anchor are in microseconds."""

    every: int
    anchor: int

    def after(self, moment: int) -> Iterator[int]:
        slot = self.anchor + max((moment - self.anchor) // self.every + 1, 1) * self.every
        while True:
            yield slot
            slot += self.every

    def last(self, after: int, until: int) -> int | None:
        count = (until - self.anchor) // self.every
        slot = self.anchor + count * self.every
        return slot if count >= 1 and slot > after else None


Timing: TypeAlias = CronTiming | IntervalTiming


@dataclass(frozen=True, slots=True)
class Plan:
    """The slots of a schedule to run now; not a plan of channels. Instants are in microseconds since 1970.

    Attributes:
        until: All slots up to this time are done once *slots* have been run.
        next: The first slot after *until*; None if there is none within 50 years.
        more: Whether further slots may be due already.
    """

    slots: tuple[int, ...]
    until: int
    next: int | None
    more: bool


def planned(timing: Timing, catch_up: CatchUp, done_until: int, now: int, most: int) -> Plan:
    """Return which slots after *done_until* and up to *now* to run, but no more than *most* slots.

    *catch_up* is for late slots. "all" runs them, and "skip" runs none. "last" runs the newest if no slot is on time.
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
    """Return the timing of a cron expression in a time zone. Invalid expressions and zones raise InvalidArgument."""
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
    try:
        return ZoneInfo(timezone)
    except (KeyError, ValueError, OSError) as error:
        raise InvalidArgument(
            f"timezone is {timezone!r:.80}, which this machine does not know; give a name of the IANA database, like "
            "'Europe/Berlin' (the package tzdata has them all)"
        ) from error


ScheduleState: TypeAlias = Literal["active", "paused", "failing", "overdue"]
_LEAST = timedelta(seconds=1)
# cron's aliases of expressions, except @reboot, which is no time.
_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class RecurrenceWords(TypedDict, total=False):
    """The arguments of :class:`Recurrence`, for calls that pass them on."""

    cron: str | None
    every: timedelta | None
    timezone: str | None
    catch_up: CatchUp
    jitter: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """The times at which a schedule is due: a cron expression in a time zone, or an interval.

    Attributes:
        cron: Minute, hour, day of month, month and day of week, ``"0 3 * * *"``, or an alias such as ``"@daily"``,
            which is replaced by its expression. Give either cron or every.
        every: An interval of at least a second. The first slot comes one interval after the schedule is made.
        timezone: The IANA name of the zone of cron, like ``"Europe/Berlin"``. None: UTC.
        catch_up: What happens to slots to which workers come more than a minute late. "last", the default: the newest
            of them runs, unless a later slot is on time. "skip": none of them runs. "all": each runs.
        jitter: Delays each message by a part of this time; the part depends on the slot.

    Example:
        >>> nightly = Recurrence(cron="0 3 * * *", timezone="Europe/Berlin")
        >>> nightly.zone_name, Recurrence(every=timedelta(hours=6)).zone_name
        ('Europe/Berlin', None)
    """

    cron: str | None = None
    every: timedelta | None = None
    timezone: str | None = None
    catch_up: CatchUp = "last"
    jitter: timedelta = timedelta()

    def __post_init__(self) -> None:
        if (self.cron is None) == (self.every is None):
            raise InvalidArgument(f"cron is {self.cron!r:.80} and every is {self.every!r}; give one of them")
        if self.every is not None:
            object.__setattr__(self, "every", check_duration("every", self.every, _LEAST))
            if self.timezone is not None:
                raise InvalidArgument(
                    f"timezone is {self.timezone!r:.80} and every is {self.every!r}; an interval has no time zone: "
                    "leave timezone out, or give cron"
                )
        if self.cron is not None:
            check_name("cron", self.cron)
            object.__setattr__(self, "cron", _NAMED.get(self.cron, self.cron))
        if self.timezone is not None:
            check_name("timezone", self.timezone)
        check_choice("catch_up", self.catch_up, ("skip", "last", "all"))
        object.__setattr__(self, "jitter", check_duration("jitter", self.jitter))
        if self.cron is not None and next(self.timing(0).after(instant_microseconds(datetime.now(UTC))), None) is None:
            raise InvalidArgument(f"cron is {self.cron!r:.80}, which has no slot in the next 50 years; correct it")

    def words(self) -> RecurrenceWords:
        """Return the arguments by name, so that ``Recurrence(**recurrence.words()) == recurrence``."""
        return cast("RecurrenceWords", asdict(self))

    @property
    def zone_name(self) -> str | None:
        """The zone of cron; None for an interval."""
        return None if self.cron is None else self.timezone or "UTC"

    def timing(self, anchor: int) -> Timing:
        """Return the timing, which computes the slots of a schedule made at *anchor* (microseconds since 1970)."""
        return timing_of(self.cron, self.zone_name, None if self.every is None else microseconds(self.every), anchor)


def timing_of(cron: str | None, timezone: str | None, every: int | None, anchor: int) -> Timing:
    if every is not None:
        return IntervalTiming(every, anchor)
    return cron_timing(cron or "", timezone or "UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleInfo:
    """A schedule at the time of the call. Times are in UTC.

    Attributes:
        name: Unique in the channel.
        jitter: Most time from a slot until its message is due.
        in_code: Whether ``Queue.periodic`` declares it.
        state: "active"; "paused"; "failing", see *problem*; "overdue" if it has been due for more than five minutes.
        next_run_at: The next slot. None if the schedule is paused, or this machine cannot read its zone or expression.
        last_slot_at: The slot that was run last, at *last_run_at*; None if no slot has been run.
        last_message_id: The message of that slot; None if no slot has been run, or if the message was dropped.
        problem: Why workers cannot run it, found at *problem_at*; or None.

    Example:
        >>> queue.schedules.set(engine, "nightly", channel="customer-7", cron="0 3 * * *", timezone="Europe/Berlin")
        >>> [schedule] = queue.schedules.list(engine)
        >>> schedule.name, schedule.state, schedule.next_run_at > datetime.now(UTC)
        ('nightly', 'active', True)
    """

    queue: str
    channel: str
    name: str
    cron: str | None
    timezone: str | None
    every: timedelta | None
    catch_up: CatchUp
    jitter: timedelta
    kind: str
    content_size: int
    max_attempts: int
    ordering_key: str | None
    in_code: bool
    state: ScheduleState
    next_run_at: datetime | None
    paused_at: datetime | None
    last_slot_at: datetime | None
    last_run_at: datetime | None
    last_message_id: int | None
    problem: str | None
    problem_at: datetime | None
    created_at: datetime
    changed_at: datetime
