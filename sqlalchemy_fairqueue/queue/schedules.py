"""Schedule methods of a queue: messages that recur."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy_fairqueue.database.schedules import ScheduleDefinition, read_schedules, run_schedule
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.queue.base import Facet, recorded, verb
from sqlalchemy_fairqueue.queue.enqueues import EnqueueMethods
from sqlalchemy_fairqueue.queue.handlers import HandlerMethods
from sqlalchemy_fairqueue.unit_of_work import changes as change
from sqlalchemy_fairqueue.values.checks import check_count, check_name, check_names, check_page
from sqlalchemy_fairqueue.values.messages import Enqueue
from sqlalchemy_fairqueue.values.schedules import Recurrence, ScheduleInfo

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Mapping

    from sqlalchemy_fairqueue.queue.base import RecordedWhere, Where
    from sqlalchemy_fairqueue.values.outcomes import RetryPolicy
    from sqlalchemy_fairqueue.values.schedules import CatchUp

F = TypeVar("F", bound="Callable[..., Any]")
_NONE = timedelta()
# Options of a message that a schedule says itself, or cannot keep.
_OWN = ("delay", "at", "priority", "key", "coalesce")


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
        cron: str | None = None,
        every: timedelta | None = None,
        timezone: str | None = None,
        catch_up: CatchUp = "last",
        jitter: timedelta = _NONE,
        kind: str | None = None,
        payload: Any = None,
        headers: Mapping[str, Any] | None = None,
        max_attempts: int | None = None,
        ordering_key: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: timedelta | None = None,
    ) -> Callable[[F], F]:
        """Declare a schedule in code, and the function that handles its messages.

        Every worker of the queue that starts sets the schedule as its code says. Only workers that have it in their
        code run its slots: one that vanished from the code runs no more once the last worker of the old code has
        stopped. Its row is removed when it has been due for a week; until then a worker that has it again goes on by
        catch_up. If two versions of the code differ, the one whose worker started last counts.

        The role of the worker must be a producer too.

        Args:
            name: Default: the function's name.
            channel: As for ``schedules.set``, also the next five.
            cron: The expression.
            every: Instead of cron.
            timezone: Of cron.
            catch_up: What becomes of slots that are late.
            jitter: Spreads messages.
            kind: The kind of its messages. Default: the name. The function becomes the handler of the kind, unless it
                is that already: then several schedules can share it.
            payload: Of each message.
            headers: Of each message.
            max_attempts: Of each message.
            ordering_key: Of each message.
            retry: As for :meth:`handler`.
            timeout: As for :meth:`handler`.

        Raises:
            InvalidArgument: As ``schedules.set`` and :meth:`handler`; the channel has a schedule of that name already.

        Example:
            >>> @queue.periodic(channel="system", every=timedelta(hours=6))
            ... def tidy_up(delivery: Delivery) -> None:
            ...     print("tidying up")
            >>> list(queue.schedules.declared)
            [('system', 'tidy_up')]
        """
        recurrence = Recurrence(cron=cron, every=every, timezone=timezone, catch_up=catch_up, jitter=jitter)

        def declare(function: F) -> F:
            own = name if name is not None else getattr(function, "__name__", "")
            wanted = kind if kind is not None else own
            message = _message(
                channel,
                wanted,
                None,
                payload=payload,
                headers=headers,
                max_attempts=max_attempts,
                ordering_key=ordering_key,
            )
            if (message.channel, own) in self._periodic:
                raise InvalidArgument(f"channel {channel!r} of queue {self.name!r} has a schedule {own!r} already")
            known = self._handlers.get(wanted)
            if known is None or known.function is not function:
                self.handler(wanted, retry=retry, timeout=timeout)(function)
            self._periodic[message.channel, own] = self._definition(own, recurrence, message, in_code=True)
            return function

        return declare

    def _definition(
        self, name: str, recurrence: Recurrence, message: Enqueue, *, in_code: bool = False
    ) -> ScheduleDefinition:
        check_name("schedule", name)
        [operation] = self._enqueues([message], sends=False)
        self._check_kind(message.kind)
        return ScheduleDefinition(name, recurrence, operation, self.defaults, in_code)


class Schedules(Facet[ScheduleMethods]):
    """Schedules of a queue, as ``queue.schedules``: messages that recur.

    Changes are recorded on a session, and sent at once on a connection or engine.

    Example:
        >>> queue.schedules.set(engine, "nightly", channel="customer-7", cron="0 3 * * *")
        >>> [schedule.name for schedule in queue.schedules.list(engine)]
        ['nightly']
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
        cron: str | None = None,
        every: timedelta | None = None,
        timezone: str | None = None,
        catch_up: CatchUp = "last",
        jitter: timedelta = _NONE,
        kind: str = "default",
        payload: Any = None,
        headers: Mapping[str, Any] | None = None,
        max_attempts: int | None = None,
        ordering_key: str | None = None,
        job: Enqueue | None = None,
    ) -> None:
        """Enqueue a message again and again, or change the schedule of that name in the channel.

        It takes effect with the caller's commit, and never if that rolls back. The first slot is later than the call:
        a schedule that is new does not run at once. From then on any worker of the queue runs its slots, each once: it
        inserts a row for the slot and the message in one transaction. While no worker runs, nothing is enqueued;
        *catch_up* says what becomes of these slots.

        A call with another cron, timezone or every begins anew from now. Any other change leaves the slots as they are,
        and the same call again changes nothing. A paused schedule stays paused.

        The message has the headers ``schedule``, the name, and ``scheduled_for``, the slot as an ISO time in UTC.

        Locks the schedule until the transaction ends; waits for another transaction that changes it.

        Args:
            where: As for the class.
            name: Unique in the channel: each tenant may have its "nightly".
            channel: The channel of its messages. It is made by the first one.
            cron: As :class:`~sqlalchemy_fairqueue.Recurrence` says, also the next four.
            every: Instead of cron.
            timezone: Of cron.
            catch_up: What becomes of slots that are late.
            jitter: Spreads the messages of many schedules that have the same slots.
            kind: As for ``queue.enqueue``, also the next four. The payload is encoded now.
            payload: Of each message.
            headers: Of each message.
            max_attempts: Of each message.
            ordering_key: Of each message.
            job: Instead of channel and of the five before: a prepared call of a typed job,
                ``job=parse.prepare("customer-7", upload="a.pdf")``.

        Raises:
            InvalidArgument: A bad argument: an expression that is none or never comes, an unknown time zone.
            PayloadError: The codec cannot encode the payload.

        Example:
            >>> queue.schedules.set(engine, "nightly", channel="customer-7", cron="0 3 * * *", timezone="Europe/Berlin")
            >>> [schedule.name for schedule in queue.schedules.list(engine)]
            ['nightly']
        """
        message = _message(
            channel,
            kind,
            job,
            payload=payload,
            headers=headers,
            max_attempts=max_attempts,
            ordering_key=ordering_key,
        )
        recurrence = Recurrence(cron=cron, every=every, timezone=timezone, catch_up=catch_up, jitter=jitter)
        definition = self._queue._definition(name, recurrence, message)  # noqa: SLF001 - a part of it
        return self._perform(where, [change.set_schedule(self._target, definition)], None)

    @recorded
    def remove(self, where: RecordedWhere, name: str, *, channel: str) -> None:
        """Remove a schedule. It is no error if there is none. Messages that it enqueued stay.

        Locks it until the transaction ends; waits for a worker that runs a slot of it, which is short.

        Raises:
            InvalidArgument: A bad name.

        Example:
            >>> queue.schedules.set(engine, "nightly", channel="customer-7", cron="0 3 * * *")
            >>> queue.schedules.remove(engine, "nightly", channel="customer-7")
            >>> queue.schedules.list(engine)
            []
        """
        return self._perform(where, [change.remove_schedule(self._target, *_checked(channel, name))], None)

    @recorded
    def pause(self, where: RecordedWhere, name: str, *, channel: str) -> None:
        """Pause a schedule. Slots that come while it is paused are passed over, whatever its catch_up.

        Messages that it enqueued are delivered; to stop these, pause the channel. Locks as :meth:`remove`.

        Raises:
            InvalidArgument: A bad name.
            UnknownSchedule: The channel has no such schedule. On a session it comes from the COMMIT, which fails whole.

        Example:
            >>> queue.schedules.set(engine, "nightly", channel="customer-7", cron="0 3 * * *")
            >>> queue.schedules.pause(engine, "nightly", channel="customer-7")
        """
        return self._perform(where, [change.pause_schedule(self._target, *_checked(channel, name), paused=True)], None)

    @recorded
    def resume(self, where: RecordedWhere, name: str, *, channel: str) -> None:
        """Go on with the slots of a schedule, from the first one after now. Locks and errors as the pause.

        Example:
            >>> queue.schedules.set(engine, "nightly", channel="customer-7", cron="0 3 * * *")
            >>> queue.schedules.pause(engine, "nightly", channel="customer-7")
            >>> queue.schedules.resume(engine, "nightly", channel="customer-7")
        """
        return self._perform(where, [change.pause_schedule(self._target, *_checked(channel, name), paused=False)], None)

    @verb
    def run(self, where: Where, name: str, *, channel: str) -> int | None:
        """Enqueue the message of a schedule at once, beside its slots, also while it is paused.

        On a session or connection in its transaction. The header ``scheduled_for`` of its message has the time of the
        call, since the message has no slot.

        Returns:
            The message's id. None: the channel is full, and its policy is to drop.

        Raises:
            InvalidArgument: A bad name.
            UnknownSchedule: The channel has no such schedule.
            ChannelFull: The channel is full, and its policy is to raise.

        Example:
            >>> queue.schedules.set(engine, "nightly", channel="customer-7", cron="0 3 * * *", kind="report")
            >>> message_id = queue.schedules.run(engine, "nightly", channel="customer-7")
            >>> queue.message(engine, message_id).kind
            'report'
        """
        _checked(channel, name)
        return self._ask(where, partial(run_schedule, target=self._target, channel=channel, name=name))

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
        """Return the schedules of the queue by channel and name. What a session has recorded is not seen.

        Args:
            where: As for the class.
            channel: Only those of this channel.
            name: Only those of this name.
            limit: Most to return, 1 to 100,000.
            after: Only those after this one: the last of the page before.

        Raises:
            InvalidArgument: A bad argument.

        Example:
            >>> queue.schedules.set(engine, "hourly", channel="customer-7", every=timedelta(hours=1))
            >>> [schedule.name for schedule in queue.schedules.list(engine, channel="customer-7")]
            ['hourly']
        """
        check_names(channel=channel, schedule=name)
        check_count("limit", limit, 1, 100_000)
        check_page("after", after, ScheduleInfo)
        asked = partial(read_schedules, target=self._target, channel=channel, name=name)
        return self._ask(where, partial(asked, limit=limit, after=after))


def _checked(channel: object, name: object) -> tuple[str, str]:
    check_name("channel", channel)
    check_name("schedule", name)
    return str(channel), str(name)


def _message(
    channel: str | None,
    kind: str,
    job: Enqueue | None,
    *,
    payload: object,
    headers: Mapping[str, Any] | None,
    max_attempts: int | None,
    ordering_key: str | None,
) -> Enqueue:
    if job is None:
        if channel is None:
            raise InvalidArgument("there is no channel; give channel=..., usually the tenant")
        return Enqueue(
            channel=channel,
            payload=payload,
            kind=kind,
            headers=headers,
            max_attempts=max_attempts,
            ordering_key=ordering_key,
        )
    if not isinstance(job, Enqueue):
        raise InvalidArgument(f"job is {job!r:.80}; give a prepared call, like parse.prepare('customer-7', ...)")
    others = (payload, headers or None, max_attempts or None, ordering_key)
    if channel not in {None, job.channel} or kind != "default" or others.count(None) < len(others):
        raise InvalidArgument("job has the channel, kind, payload and headers of the message; leave the others out")
    if given := [word for word in _OWN if getattr(job, word) not in {None, False}]:
        raise InvalidArgument(f"job has {given[0]}, which the messages of a schedule cannot have; leave it out")
    return job
