"""Duties of a worker's heartbeat thread, on one connection, and rounds that it starts.

A duty must not wait for long, since no lease is extended meanwhile. So longer work is a round in its own thread:
schedules and samples for the worker's queues, groups and housekeeping for whole installations. Any worker may begin a
round, and the database sees to it that nothing is done twice. If a worker dies, another one does the rest.
"""

from __future__ import annotations

import logging
import random
import threading
from abc import ABC, abstractmethod
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue.database import deliveries, schedules
from sqlalchemy_fairqueue.database.calls import call
from sqlalchemy_fairqueue.database.errors import is_away, is_serialization_failure, sqlstate_of
from sqlalchemy_fairqueue.database.messages import fold_groups
from sqlalchemy_fairqueue.database.stats import StopRequest, read_stop_requests
from sqlalchemy_fairqueue.errors import ChannelFull, FairQueueError, NotGranted
from sqlalchemy_fairqueue.texts import logged, said
from sqlalchemy_fairqueue.values.schedules import planned, timing_of
from sqlalchemy_fairqueue.worker.connection import LOCKED, DedicatedConnection, begun_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sqlalchemy_fairqueue.worker.leases import HeldDelivery, ServedQueue, TrackedLease
    from sqlalchemy_fairqueue.worker.options import WorkerOptions

R = TypeVar("R")
# The most bytes of the messages that one call enqueues; one message may be larger.
_BYTES = 8 * 2**20
# The most channels that one call marks or forgets.
_CHANNELS = 1_000
# Seconds until the next look at schedules while some run.
_SOON = 0.1


def run_all(steps: Iterable[Callable[[], R]]) -> list[R]:
    results, failures = [], []
    for step in steps:
        try:
            results.append(step())
        except Exception as error:  # noqa: BLE001 - raised below
            failures.append(error)
    if failures:
        raise failures[0]
    return results


def by_schema(queues: Iterable[ServedQueue]) -> dict[str | None, dict[str, ServedQueue]]:
    found: dict[str | None, dict[str, ServedQueue]] = {}
    for queue in queues:
        found.setdefault(queue.target.schema, {})[queue.target.queue] = queue
    return found


@dataclass(eq=False)
class Heartbeat:
    """What the heartbeat thread does for a worker's queues and held deliveries.

    If a lease is lost or a message is cancelled, it calls *interrupt* with the deliveries whose handlers should stop.
    """

    connection: DedicatedConnection
    options: WorkerOptions
    queues: Sequence[ServedQueue]
    interrupt: Callable[[list[HeldDelivery]], None]

    def hear_all(self) -> None:
        run_all(partial(self._hear, queue) for queue in self.queues)

    def _hear(self, queue: ServedQueue) -> None:
        now = self.options.clock()
        is_due = now - queue.heard_at > self.options.timings.hear_after and queue.polls.next_at <= now
        if is_due and queue.dequeuing.acquire(blocking=False):
            try:
                self.connection.run(queue.consumer.hear, within=self.options.beat)
                queue.heard_at = self.options.clock()
            finally:
                queue.dequeuing.release()

    def charge_all(self) -> None:
        run_all(partial(self._charge, queue) for queue in self.queues)

    def _charge(self, queue: ServedQueue) -> None:
        held = [one for lease in queue.held() for one in lease.held.copy()]
        charges = [(one, to) for one in held if (to := one.charge_on()) is not None]
        if not charges:
            return
        tokens = [deliveries.token_of(one.delivery) for one, _ in charges]
        send = partial(deliveries.charge_running, target=queue.target, tokens=tokens, charges=[to for _, to in charges])
        try:
            self.connection.run(send, within=self.options.beat)
        except Exception:
            for one, (_, before) in charges:
                one.not_charged(before)
            raise

    def extend_all(self) -> None:
        self._tell_lost()
        try:
            living = {queue: [lease for lease in queue.held() if not lease.lost] for queue in self.queues}
            held = [(queue, leases) for queue, leases in living.items() if leases]
            # The call for a queue may wait for a lock. It gets only its share of the time until the first lease would
            # be lost, so that time is left for the other queues.
            run_all(partial(self._extend, *held[number], held[number:]) for number in range(len(held)))
        finally:
            self._tell_lost()

    def end(self) -> None:
        """End leases without deliveries when the worker has stopped, and close the connection. Other leases expire."""
        try:
            run_all(partial(self._end, queue) for queue in self.queues)
        except Exception as error:  # noqa: BLE001 - a stop must not fail by it
            self.options.log.debug("could not end its leases, which expire: %s", logged(error))
        self.connection.close()

    def _end(self, queue: ServedQueue) -> None:
        if lease_ids := queue.lease_ids():
            end = queue.target.call("fq_end_leases", f"end {len(lease_ids)} leases of", lease_ids=lease_ids)
            self.connection.run(end.rows, within=self.options.timings.end_leases)

    def _extend(
        self, queue: ServedQueue, leases: list[TrackedLease], left: list[tuple[ServedQueue, list[TrackedLease]]]
    ) -> None:
        by_id = {lease.lease_id: lease for lease in leases}
        duration, sent_at = self.options.lease, self.options.clock()
        # When the first lease will be lost, if nothing extends it.
        first_end = min(lease.deadline for _, others in left for lease in others)
        within = max(0.1, (first_end - sent_at) / len(left))
        extend = partial(deliveries.heartbeat, target=queue.target, lease_ids=list(by_id), lease=duration)
        self.options.stats.heartbeats += 1
        for lease_id, expires_at, cancelled in self.connection.run(extend, within=within):
            lease = by_id[lease_id]
            if expires_at is None:
                lease.lose()
            else:
                lease.extend(sent_at + duration.total_seconds())
            if cancelled:
                self._cancel(lease, set(cancelled))

    def _cancel(self, lease: TrackedLease, message_ids: set[int]) -> None:
        cancelled = []
        for held in lease.held.copy():
            if held.delivery.message_id in message_ids and not held.cancelled:
                held.cancelled = True
                held.first.cancelled_at = held.first.cancelled_at or self.options.clock()
                cancelled.append(held)
        if cancelled:
            self.options.stats.cancelled += len(cancelled)
            self.interrupt(cancelled)

    def _tell_lost(self) -> None:
        for queue in self.queues:
            for lease in queue.held():
                if lease.told or not lease.lost:
                    continue
                lease.told = True
                held = list(lease.held.copy())
                self.options.log.error(
                    "lost lease %d with %d deliveries of queue %s: it could not be extended in time",
                    *(lease.lease_id, len(held), queue.queue.name),
                    extra={"queue": queue.queue.name, "lease_id": lease.lease_id},
                )
                self.interrupt(held)


@dataclass(eq=False)
class StopRequests:
    """Stops one worker when an operator asks, even while it is idle, all its handlers are busy, or it has no lease.

    A worker that obeys a request leaves the request in place, since workers in other processes may have the same name.
    A worker ignores requests from before its start.
    """

    queues: dict[str | None, dict[str, ServedQueue]]
    options: WorkerOptions
    stop: Callable[[], None]
    _before: set[StopRequest] = field(default_factory=set, init=False)

    def begin(self, connection: DedicatedConnection) -> None:
        self._before = {one for schema in self.queues for one in self._read(connection, schema)}

    def poll(self, connection: DedicatedConnection) -> None:
        run_all(partial(self._poll, connection, schema) for schema in self.queues)

    def _poll(self, connection: DedicatedConnection, schema: str | None) -> None:
        new = [one for one in self._read(connection, schema) if one not in self._before]
        if new:
            self.queues = {}
            self.options.log.info(
                "stops: %r asked it to, at %s, on queue %s",
                *(new[0].requested_by, f"{new[0].requested_at:%Y-%m-%d %H:%M:%S} UTC", new[0].queue),
            )
            self.stop()

    def _read(self, connection: DedicatedConnection, schema: str | None) -> list[StopRequest]:
        if not (queues := self.queues.get(schema)):
            return []
        read = partial(
            read_stop_requests,
            schema=schema,
            queues=list(queues),
            consumer=self.options.name,
            lease_ids=[one for queue in queues.values() for one in queue.lease_ids()],
            concurrency=self.options.concurrency,
        )
        return connection.run(read)


class Round(ABC):
    """A chore that a worker does in rounds. Rounds run one at a time, each in its own thread, on its own connection."""

    def __init__(
        self, word: str, step: str, options: WorkerOptions, queues: Sequence[ServedQueue], **limits: float | None
    ) -> None:
        self._thread_name = f"{options.name}-{word}"
        self._schemas = list(dict.fromkeys(queue.schema for queue in options.queues))
        self._queues = by_schema(queues)
        self._options = options
        self._connection = DedicatedConnection(options, **limits)
        self._backoff = options.backoff(step)
        self._starting = threading.Lock()
        self._round: Future[None] | None = None
        self._stopping = False
        # When to begin the next round after a failure.
        self._again_at = 0.0

    @property
    def is_under_way(self) -> bool:
        return self._round is not None and not self._round.done()

    def start(self) -> None:
        """Begin a round, unless one is running or the rounds were stopped. Any thread may call it."""
        with self._starting:
            if not self._stopping and not self.is_under_way:
                self._round = begun_in_thread(self.run, self._thread_name)

    def stop(self) -> None:
        """Begin no more rounds. Wait up to a second for the running round, which ends after its present statement."""
        with self._starting:
            self._stopping = True
        if self._round is not None:
            wait([self._round], self._options.timings.stop_dequeue)

    def run(self) -> None:
        try:
            self._work()
            self._backoff.succeeded()
        except Exception as error:  # noqa: BLE001 - the next round, or another worker, does it
            self._again_at = self._options.clock() + self._backoff.failed(error)
        finally:
            self._connection.close()

    @abstractmethod
    def _work(self) -> None: ...

    def _each(self, step: Callable[[str | None], R]) -> list[R]:
        return run_all(partial(step, schema) for schema in self._schemas.copy() if not self._stopping)

    def _rows(self, schema: str | None, function: str, doing: str, **arguments: Any) -> Sequence[Any]:
        return self._connection.run(call(schema, function, doing, **arguments).rows)


class Groups(Round):
    """The chore that folds the notes of transactions into the counts of groups, and enqueues follow-ups.

    Attributes:
        folded_at: The start of the last round that left nothing to do, by the worker's clock.
        finished: For how many groups this worker has enqueued the follow-up, or has tried in vain to enqueue it.
    """

    def __init__(self, polling: DedicatedConnection, queues: Sequence[ServedQueue], options: WorkerOptions) -> None:
        super().__init__("groups", "finish groups", options, queues, within=options.stuck_after)
        self._polling = polling
        self.folded_at: float | None = None
        self.finished: int = 0

    def poll(self) -> None:
        """Begin a round if there is anything to do. Only the thread of the duties may call it."""
        self._each(self._poll)

    def _poll(self, schema: str | None) -> None:
        if self._polling.run(call(schema, "fq_groups_due", "poll for groups").value):
            self.start()

    def end(self, finished: int) -> bool:
        with self._starting:
            if self.finished != finished or self.is_under_way:
                return False
            self._stopping = True
            return True

    def _work(self) -> None:
        began = self._options.clock()
        if all(self._each(self._fold)):
            self.folded_at = began

    def _fold(self, schema: str | None) -> bool:
        notify = all(queue.target.notify for queue in self._queues[schema].values())
        fold = partial(fold_groups, schema=schema, limit=10_000, groups=100, notify=notify)
        while not self._stopping:
            done = self._connection.run(fold)
            if done is None:
                return False
            if done.finished:
                self.finished += done.finished
                self._options.log.debug(": %d groups whose members have ended", done.finished)
            if not done.more:
                return True
        return False


class Schedules(Round):
    """The chore that runs due slots of schedules. Its first round also sets the schedules that the code declares."""

    def __init__(self, polling: DedicatedConnection, queues: Sequence[ServedQueue], options: WorkerOptions) -> None:
        limits = {"within": options.stuck_after, "lock_timeout": options.timings.lock_timeout}
        super().__init__("schedules", "run schedules", options, queues, **limits)
        self._polling = polling
        self._declaring = [queue for queue in queues if queue.queue.schedules.declared]
        # What ``polling.made`` was when the schedules of the code were last set, or None. It changes with each
        # reconnection.
        self._declared_on: int | None = None
        self._refused: set[int] = set()
        # Whether the last poll began a round.
        self._has_begun: bool = False
        self._ended = False
        # If the worker drains: for each installation, the time up to which slots are run.
        self._until: dict[str | None, int] = {}

    def poll(self) -> float | None:
        """Begin a round if a schedule is due or to be set. Return the seconds to the next poll; None means as usual."""
        if self.is_under_way:
            return _SOON
        began_last, self._has_begun = self._has_begun, False
        wait = min(filter(None, self._each(self._poll)), default=None)
        # What a round runs may be due again before the usual poll. What it leaves, locked or failed, is not hurried.
        return _SOON if self._has_begun and not began_last else wait

    def _poll(self, schema: str | None) -> float | None:
        waits = [due.due_at - due.read_at for due in self._find(self._polling, schema)]
        # After a reconnection, the server may have gone back to a time before a schedule was set.
        if (self._declaring and self._declared_on != self._polling.made) or any(wait <= 0 for wait in waits):
            self.start()
            self._has_begun = True
        return min((wait / 1_000_000 for wait in waits if wait > 0), default=None)

    def run_once(self) -> bool:
        """Begin a round, except during another round or a backoff. Return whether no round is needed any more.

        A worker that drains calls this until it returns True. Then the slots that were due at the first call are run,
        have failed, or are left to other workers.
        """
        if not (self._ended or self.is_under_way) and self._options.clock() >= self._again_at:
            self.start()
        return self._ended

    def _work(self) -> None:
        try:
            steps: list[Callable[[], object]] = [self._declare, partial(self._each, self._run_due)]
            run_all(steps)
        except Exception as error:
            # If another attempt cannot fix the error, a drain must not wait for it.
            self._ended = not (is_away(error) or is_serialization_failure(error) or isinstance(error, OSError))
            raise
        self._ended = True

    def _find(self, connection: DedicatedConnection, schema: str | None) -> list[schedules.DueSchedule]:
        queues = self._queues[schema]
        ask = partial(
            schedules.due_schedules,
            schema=schema,
            queues=sorted(queues),
            in_code=[(name, *key) for name, queue in queues.items() for key in queue.queue.schedules.declared],
            ahead=timedelta(seconds=self._options.timings.schedules_every),
            limit=self._options.timings.schedules_at_once,
        )
        found = connection.run(ask)
        if self._options.drain and found:
            until = self._until.setdefault(schema, found[0].read_at)
            found = [due._replace(read_at=min(due.read_at, until)) for due in found]
        return [due for due in found if due.id not in self._refused]

    def _declare(self) -> None:
        """Set the schedules that the code declares: all at the start, after a reconnection only missing ones."""
        made = self._polling.made
        if self._declared_on == made:
            return
        declared = ((queue, *one) for queue in self._declaring for one in queue.queue.schedules.declared.items())
        run_all(partial(self._declare_one, *one) for one in declared)
        self._declared_on = made

    def _declare_one(self, queue: ServedQueue, key: tuple[str, str], definition: schedules.ScheduleDefinition) -> None:
        channel, name = key
        read = partial(queue.queue.schedules.list, channel=channel, name=name, limit=1)
        if self._declared_on is not None and self._connection.run(read):
            return
        outcome = self._connection.run(schedules.schedule_call(queue.target, definition).value)
        self._options.log.log(
            logging.DEBUG if outcome == "same" else logging.INFO,
            ": schedule %s of queue %s is %s by the code",
            *(name, queue.target.queue, outcome),
        )

    def _run_due(self, schema: str | None) -> None:
        progress = [True]
        while any(progress):
            found = [due for due in self._find(self._connection, schema) if due.due_at <= due.read_at]
            # In random order, so that several workers seldom try the same schedule.
            random.shuffle(found)
            progress = [self._run_one(schema, due) for due in found if not self._stopping]

    def _run_one(self, schema: str | None, due: schedules.DueSchedule) -> bool:
        """Run due slots of a schedule, or note why that is impossible. Return whether one of the two was done."""
        try:
            return self._run_slots(schema, due)
        except NotGranted as error:
            self._refused.add(due.id)
            self._options.log.warning(
                "leaves schedule %s of channel %s of queue %s to others: %s", *_words(due), logged(error)
            )
            return False
        except DBAPIError as error:
            if sqlstate_of(error) in LOCKED or is_serialization_failure(error):
                return False
            if is_away(error):
                raise
            return self._note(schema, due, error)
        except (FairQueueError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            return self._note(schema, due, error)

    def _run_slots(self, schema: str | None, due: schedules.DueSchedule) -> bool:
        """Run some due slots in one transaction. Return False if another worker does so, or the schedule changed."""
        timing = timing_of(due.cron, due.timezone, due.every, due.anchor_at)
        most = max(1, min(self._options.timings.slots_at_once, _BYTES // max(due.content_size, 1)))
        plan = partial(planned, timing, due.catch_up, due.done_until, due.read_at)
        notify = self._queues[schema][due.queue].target.notify
        run = partial(schedules.run_slots, schema=schema, due=due, notify=notify)
        try:
            made = self._connection.run(partial(run, plan=plan(most)))
        except ChannelFull:
            # There may be room for one.
            made = self._connection.run(partial(run, plan=plan(1)))
        if made:
            ids = list(made.values())
            self._options.log.debug(": schedule %s of channel %s of queue %s enqueued messages %s", *_words(due), ids)
        return made is not None

    def _note(self, schema: str | None, due: schedules.DueSchedule, error: BaseException) -> bool:
        """Note why a schedule cannot be run. Return False if its row has changed meanwhile, or is locked."""
        delay = timedelta(seconds=self._options.timings.schedule_again)
        note = partial(schedules.fail_schedule, schema=schema, due=due, problem=said(error), delay=delay)
        noted = self._connection.run(note)
        if noted:
            self._options.log.warning(
                "cannot run schedule %s of channel %s of queue %s, which is tried again in %.0f s: %s",
                *(*_words(due), delay.total_seconds(), logged(error)),
            )
        return noted


def _words(due: schedules.DueSchedule) -> tuple[str, str, str]:
    return due.name, due.channel, due.queue


class Samples(Round):
    """The chore that writes each minute's samples, for the dashboard and ``fairqueue trend``, if they are missing."""

    def __init__(self, queues: Sequence[ServedQueue], options: WorkerOptions) -> None:
        super().__init__("samples", "keep samples", options, queues, within=options.timings.housekeeping_call)

    def _work(self) -> None:
        self._each(self._keep)

    def _keep(self, schema: str | None) -> None:
        try:
            self._rows(schema, "fq_keep_samples", "keep samples", queues=sorted(self._queues[schema]))
        except NotGranted as error:
            self._schemas.remove(schema)
            self._options.log.warning("leaves samples to others: %s", logged(error))


class Housekeeping(Round):
    """The chore that makes and drops partitions of the history, deletes expired rows, and forgets idle channels."""

    def __init__(self, options: WorkerOptions) -> None:
        limit = options.timings.housekeeping_call
        # A role's statement_timeout is meant for users, so it is overridden.
        super().__init__("housekeeping", "do its housekeeping", options, (), within=limit, time_limit=limit)

    def _work(self) -> None:
        tasks = self._keep_history, self._prune_expired, self._forget_channels
        run_all(partial(self._each, task) for task in tasks)

    def _keep_history(self, schema: str | None) -> None:
        ahead = self._options.timings.history_days
        made = self._rows(schema, "fq_keep_history", "keep the partitions of the history", ahead=ahead)
        for partition, action in made:
            self._options.log.info(": partition %s %s", partition, action)

    def _prune_expired(self, schema: str | None) -> None:
        deleted = most = self._options.timings.pruned_at_once
        while deleted == most and not self._stopping:
            [row] = self._rows(schema, "fq_prune_expired", "prune what has expired", limit=most)
            deleted = row.deleted
            for schedule in row.schedules:
                self._options.log.info(": schedule %s is removed: no worker has it in its code any more", schedule)
            for queue, letters in (row.dead_letters or {}).items():
                self._options.log.info(": %s dead letters of queue %s deleted after their retention", letters, queue)

    def _forget_channels(self, schema: str | None) -> None:
        """Mark idle channels. Delete channels that are still idle and whose mark every present transaction sees."""
        after: int | None = 0
        while after is not None and not self._stopping:
            marked = self._rows(schema, "fq_mark_idle_channels", "mark idle channels", after=after, limit=_CHANNELS)
            [(after, _)] = marked
        forgotten, more = 0, True
        while more and not self._stopping:
            [row] = self._rows(schema, "fq_forget_channels", "forget idle channels", limit=_CHANNELS)
            forgotten, more = forgotten + row.forgotten, row.more
        if forgotten:
            self._options.log.info(": %s idle channels forgotten", forgotten)
