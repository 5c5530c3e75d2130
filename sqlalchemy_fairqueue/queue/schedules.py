"""Schedule methods of a queue: messages that recur."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from sqlalchemy_fairqueue.database.schedules import ScheduleDefinition, schedule_info
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.queue.base import Facet, RecordedWhere, Where, recorded, verb
from sqlalchemy_fairqueue.queue.enqueues import EnqueueMethods
from sqlalchemy_fairqueue.queue.handlers import HandlerMethods
from sqlalchemy_fairqueue.unit_of_work import changes as change
from sqlalchemy_fairqueue.values.checks import check_count, check_name, check_names, check_page
from sqlalchemy_fairqueue.values.messages import Enqueue
from sqlalchemy_fairqueue.values.schedules import Recurrence, RecurrenceWords, ScheduleInfo

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    from sqlalchemy_fairqueue.values.outcomes import RetryPolicy

F = TypeVar("F", bound="Callable[..., Any]")
# The options of a message that a schedule sets itself or cannot store, each with its default.
_NOT_OF_SCHEDULES = {"delay": None, "at": None, "priority": None, "key": None, "coalesce": False, "cost": 1}


class ScheduleOptions(RecurrenceWords, total=False):
    """The times of a schedule and the options of its message."""

    payload: Any
    headers: Mapping[str, Any] | None
    max_attempts: int | None
    ordering_key: str | None


class ScheduleMethods(EnqueueMethods, HandlerMethods):
    """Schedules that are declared in code."""

    def _begin(self) -> None:
        super()._begin()
        self._periodic: dict[tuple[str, str], ScheduleDefinition] = {}

    def periodic(
        self,
        name: str | None = None,
        *,
        channel: str,
        kind: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: timedelta | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Callable[[F], F]:
        """Declare a schedule in code, and the function that handles its messages.

        Each worker of the queue sets the schedule when it starts; the worker's role needs the grant "producer" too.
        Only workers with the schedule in their code run its slots, so a schedule removed from the code runs no more
        once the last worker of the old code has stopped. If no worker runs a due slot for a week, housekeeping removes
        the schedule. If a worker with the schedule in its code starts before that, it runs the missed slots as
        *catch_up* says. If versions of the code differ, the worker started last decides.

        Args:
            name: Default: the function's name.
            channel: The channel of its messages.
            kind: The kind of its messages. Default: the schedule's name. The function becomes the handler of this kind,
                unless it already is. Several schedules of one kind can therefore share a function.
            retry: *retry* and *timeout* are as for :meth:`handler`. Leave both out if the function already is the
                handler of the kind. All other options are as for ``schedules.set``.

        Example:
            >>> @queue.periodic(channel="system", every=timedelta(hours=6))
            ... def tidy_up(delivery: Delivery) -> None: ...
            >>> list(queue.schedules.declared)
            [('system', 'tidy_up')]
        """
        recurrence, given = _parts(**options)

        def declare(function: F) -> F:
            own = name if name is not None else getattr(function, "__name__", "")
            wanted = kind if kind is not None else own
            message = _message(channel, wanted, None, given)
            if (message.channel, own) in self._periodic:
                raise InvalidArgument(f"channel {channel!r} of queue {self.name!r} has a schedule {own!r} already")
            known = self._handlers.get(wanted)
            if known is None or known.function is not function:
                self.handler(wanted, retry=retry, timeout=timeout)(function)
            elif retry is not None or timeout is not None:
                raise InvalidArgument(f"kind {wanted!r} has this handler already; leave retry and timeout out")
            self._periodic[message.channel, own] = self._definition(own, recurrence, message, in_code=True)
            return function

        return declare

    def _definition(
        self, name: str, recurrence: Recurrence, message: Enqueue, *, in_code: bool = False
    ) -> ScheduleDefinition:
        check_name("schedule", name)
        [operation] = self._enqueues([message], sends=False)
        self._check_kind(message.kind)
        return ScheduleDefinition(name, recurrence, operation, in_code)


class Schedules(Facet[ScheduleMethods]):
    """Schedules of a queue, as ``queue.schedules``: messages that recur.

    Example:
        >>> queue.schedules.set(engine, "nightly", channel="customer-7", cron="0 3 * * *", timezone="Europe/Berlin")
        >>> queue.schedules.pause(engine, "nightly", channel="customer-7")
        >>> [(schedule.name, schedule.state) for schedule in queue.schedules.list(engine)]
        [('nightly', 'paused')]
        >>> queue.schedules.resume(engine, "nightly", channel="customer-7")
        >>> message_id = queue.schedules.run(engine, "nightly", channel="customer-7")
        >>> queue.schedules.remove(engine, "nightly", channel="customer-7")
    """

    @property
    def declared(self) -> Mapping[tuple[str, str], ScheduleDefinition]:
        """The schedules that are declared in code so far, by channel and name.

        See Also:
            :meth:`~sqlalchemy_fairqueue.Queue.periodic`
        """
        return MappingProxyType(self._queue._periodic)  # noqa: SLF001 - a part of it

    @recorded
    def set(
        self,
        where: RecordedWhere,
        name: str,
        *,
        channel: str | None = None,
        kind: str = "default",
        job: Enqueue | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> None:
        """Create or change a schedule, which enqueues a message to a channel again and again.

        The change takes effect with the caller's commit. The first slot is later than the call, so a new schedule does
        not run at once. Each slot of the schedule is run once, by any one worker of the queue. While no worker runs,
        nothing is enqueued; *catch_up* decides about missed slots. The messages have the headers ``schedule``, the name
        of the schedule, and ``scheduled_for``, the slot as an ISO time in UTC.

        If *cron*, *timezone* or *every* changes, the schedule begins anew from now. Other changes keep the slots, and
        an equal call changes nothing. A paused schedule stays paused. The call locks the schedule until the transaction
        ends, and waits for another transaction that changes it.

        Args:
            name: Unique in the channel, so that each tenant can have its "nightly".
            options: The times of the schedule: cron, every, timezone, catch_up and jitter, as for
                :class:`~sqlalchemy_fairqueue.Recurrence`. The options of its messages: payload, headers, max_attempts
                and ordering_key, as for ``queue.enqueue``. This call encodes the payload.
            job: A prepared call of a typed job, ``job=parse.prepare("customer-7", upload="a.pdf")``, instead of
                channel, kind, payload, headers, max_attempts and ordering_key.
        """
        recurrence, given = _parts(**options)
        message = _message(channel, kind, job, given)
        definition = self._queue._definition(name, recurrence, message)  # noqa: SLF001 - a part of it
        return self._perform(where, [change.set_schedule(self._target, definition)], None)

    @recorded
    def remove(self, where: RecordedWhere, name: str, *, channel: str) -> None:
        """Remove a schedule, if it exists. Messages that it has enqueued stay.

        The call locks the schedule until the transaction ends, and waits for a worker that runs one of its slots.
        """
        return self._perform(where, [change.remove_schedule(self._target, *_checked(channel, name))], None)

    @recorded
    def pause(self, where: RecordedWhere, name: str, *, channel: str) -> None:
        """Pause a schedule. Slots of the pause, and slots before it that did not run yet, are skipped.

        Messages that the schedule has enqueued are still delivered; pause the channel to stop these. Locks are those of
        :meth:`remove`. A missing schedule raises UnknownSchedule; on a session the COMMIT raises it.
        """
        return self._perform(where, [change.pause_schedule(self._target, *_checked(channel, name), paused=True)], None)

    @recorded
    def resume(self, where: RecordedWhere, name: str, *, channel: str) -> None:
        """Resume a paused schedule with its first slot after now. Locks and errors are those of :meth:`pause`."""
        return self._perform(where, [change.pause_schedule(self._target, *_checked(channel, name), paused=False)], None)

    @verb
    def run(self, where: Where, name: str, *, channel: str) -> int | None:
        """Enqueue the message of a schedule in addition to its slots, even while it is paused. Return the message's id.

        The call is sent at once. The header ``scheduled_for`` is the time of the call. The call takes the locks of an
        enqueue, at the same place in the lock order. A missing schedule raises UnknownSchedule. If the channel is full,
        the call raises ChannelFull, which aborts the transaction; if the channel's policy says "drop", it returns None.
        """
        _checked(channel, name)
        target, doing = self._target, f"run schedule {name!r} of"
        run = target.call("fq_run_schedule", doing, channel=channel, name=name, notify=target.notify)
        message_id: int | None = self._ask(where, run.value, enqueues=channel)
        return message_id

    @verb
    def list(
        self,
        where: Where,
        *,
        channel: str | None = None,
        name: str | None = None,
        limit: int = 1000,
        after: ScheduleInfo | None = None,
    ) -> builtins.list[ScheduleInfo]:
        """Return at most *limit* (1 to 100,000) schedules by channel and name, those after *after* if it is given."""
        check_names(channel=channel, schedule=name)
        check_count("limit", limit, 1, 100_000)
        check_page("after", after, ScheduleInfo)
        last_channel, last_name = (None, None) if after is None else (after.channel, after.name)
        which = {"channel": channel, "name": name, "after_channel": last_channel, "after_name": last_name}
        return self._read(where, "fq_schedules", "read the schedules of", schedule_info, **which, limit=limit)


def _checked(channel: object, name: object) -> tuple[str, str]:
    check_name("channel", channel)
    check_name("schedule", name)
    return str(channel), str(name)


def _parts(
    *,
    payload: Any = None,
    headers: Mapping[str, Any] | None = None,
    max_attempts: int | None = None,
    ordering_key: str | None = None,
    **times: Unpack[RecurrenceWords],
) -> tuple[Recurrence, dict[str, Any]]:
    message = {"payload": payload, "headers": headers, "max_attempts": max_attempts, "ordering_key": ordering_key}
    return Recurrence(**times), message


def _message(channel: str | None, kind: str, job: Enqueue | None, given: dict[str, Any]) -> Enqueue:
    if job is None:
        if channel is None:
            raise InvalidArgument("there is no channel; give channel=..., usually the tenant")
        return Enqueue(channel=channel, kind=kind, **given)
    if not isinstance(job, Enqueue):
        raise InvalidArgument(f"job is {job!r:.80}; give a prepared call, like parse.prepare('customer-7', ...)")
    if channel not in {None, job.channel} or kind != "default" or any(value is not None for value in given.values()):
        raise InvalidArgument("job has the channel, kind, payload and headers of the message; leave the others out")
    if own := [option for option, usual in _NOT_OF_SCHEDULES.items() if getattr(job, option) != usual]:
        raise InvalidArgument(f"job has {own[0]}, which the messages of a schedule cannot have; leave it out")
    return job
