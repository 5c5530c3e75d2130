"""Schedules as values: when one recurs, and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, TypedDict

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.times import instant_microseconds, microseconds
from sqlalchemy_fairqueue.values.checks import check_choice, check_duration, check_name
from sqlalchemy_fairqueue.values.slots import CatchUp, IntervalTiming, Timing, cron_timing

if TYPE_CHECKING:
    from typing import TypeAlias

ScheduleState: TypeAlias = Literal["active", "paused", "failing", "overdue"]
_LEAST = timedelta(seconds=1)
# Names that cron has for expressions. It has @reboot too, which is no time.
_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_OVERDUE = timedelta(minutes=5)


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
        cron: Minute, hour, day of month, month and day of week: ``"0 3 * * *"``, or a name of cron for one, such as
            ``"@daily"``; read, it is the expression. Either cron or every.
        every: An interval of at least a second. The first slot comes one interval after the schedule is made.
        timezone: The IANA name of the zone of cron, like ``"Europe/Berlin"``. None: UTC.
        catch_up: What becomes of slots to which a worker comes more than a minute late: "last", the default: the newest
            one runs, unless a later slot is on time; "skip": none runs; "all": each one runs.
        jitter: Each message is delivered up to so much later than its slot, by a share that the slot decides.

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
        """Refuse what has no slots."""
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
        """Its arguments."""
        return {
            "cron": self.cron,
            "every": self.every,
            "timezone": self.timezone,
            "catch_up": self.catch_up,
            "jitter": self.jitter,
        }

    @property
    def zone_name(self) -> str | None:
        """The zone of cron, or None for an interval."""
        return None if self.cron is None else self.timezone or "UTC"

    def timing(self, anchor: int) -> Timing:
        """Its slots. *anchor*: when the schedule was made, in microseconds.

        Raises:
            InvalidArgument: The expression or the time zone is not known here.
        """
        return timing_of(self.cron, self.zone_name, None if self.every is None else microseconds(self.every), anchor)


def timing_of(cron: str | None, timezone: str | None, every: int | None, anchor: int) -> Timing:
    """The slots of a schedule as the database keeps it.

    Raises:
        InvalidArgument: The expression or the time zone is not known here.
    """
    if every is not None:
        return IntervalTiming(every, anchor)
    return cron_timing(cron or "", timezone or "UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleInfo:
    """A schedule at the time of the call. Times are in UTC.

    Attributes:
        queue: Name of the queue.
        channel: The channel that it belongs to.
        name: Its name, unique in the channel.
        cron: Its cron expression. None: an interval.
        timezone: The zone of cron. None: an interval.
        every: Its interval. None: a cron expression.
        catch_up: What becomes of late slots.
        jitter: Most time from a slot to the delivery of its message.
        kind: The kind of its messages.
        content_size: Bytes of their payload.
        max_attempts: Of each message.
        in_code: Whether ``Queue.periodic`` declares it.
        state: "active"; "paused"; "failing": workers could not run it lately, *problem* says why; "overdue": it has
            been due for more than five minutes, and no worker came.
        next_run_at: Its next slot. None: it is paused, or its zone or expression is not known here.
        paused_at: Since when it is paused. None: it is not.
        last_slot_at: The slot that was run last. None: none was.
        last_run_at: When that was. None: never.
        last_message_id: The message of the last slot. None: there was none, or it was dropped.
        problem: Why workers cannot run it. None: they can.
        problem_at: When that was found.
        created_at: When it was made.
        changed_at: When it was last changed.

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


def schedule_state(*, paused: bool, problem: bool, due_at: int | None, now: int) -> ScheduleState:
    """The state of a schedule."""
    if paused:
        return "paused"
    if problem:
        return "failing"
    return "overdue" if due_at is not None and due_at < now - microseconds(_OVERDUE) else "active"
