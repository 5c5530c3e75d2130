"""Rounds of a worker, each in a thread of its own: schedules, groups and housekeeping.

No worker is a leader. All of them poll for schedules that are due and groups that may be finished; :func:`run_slots`
lets the first one run a slot, and only one at a time executes :func:`fold_groups`. So a worker may die at any moment,
and another one does the rest. A schedule that cannot be run delays no other one: the worker writes the reason into its
row and tries again after a minute. A round serves all queues of an installation.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue.database.calls import call
from sqlalchemy_fairqueue.database.errors import is_away, is_serialization_failure, sqlstate_of
from sqlalchemy_fairqueue.database.messages import fold_groups
from sqlalchemy_fairqueue.database.schedules import (
    due_schedules,
    fail_schedule,
    read_schedules,
    run_slots,
    schedule_call,
)
from sqlalchemy_fairqueue.errors import FairQueueError, NotGranted
from sqlalchemy_fairqueue.texts import logged, said
from sqlalchemy_fairqueue.values.schedules import planned, timing_of
from sqlalchemy_fairqueue.worker.connection import dedicated_connection
from sqlalchemy_fairqueue.worker.telemetry import log
from sqlalchemy_fairqueue.worker.timings import Backoff

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy_fairqueue.database.schedules import DueSchedule
    from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue


class Groups:
    """The groups of the installations of one worker's queues.

    Args:
        connection: Of the thread that calls :meth:`poll`.
        queues: The queues.
        options: The worker's.

    Attributes:
        folded_at: When the last round began that left nothing to do, by the worker's clock.
        finished: How many groups were finished here.
    """

    def __init__(self, connection: DedicatedConnection, queues: Sequence[ServedQueue], options: WorkerOptions) -> None:
        self._connection = connection
        self._options = options
        self._notify: dict[str | None, bool] = {}
        for queue in queues:
            schema = queue.target.schema
            self._notify[schema] = self._notify.get(schema, True) and queue.target.notify
        self._backoff = Backoff("finish groups", options.name, options.clock, options.timings)
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self.folded_at: float | None = None
        self.finished: int = 0

    def poll(self) -> None:
        """Begin a round in a thread of its own if there is anything to do: no lease waits for it."""
        due = (call(schema, "fq_groups_due", "poll for groups") for schema in self._notify)
        if any(self._connection.run(one.value) for one in due):
            self.start()

    def start(self) -> None:
        """Begin a round, unless one is under way. Any thread may call it."""
        with self._starting:
            if not self._stopping and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self.run, name=f"{self._options.name}-groups", daemon=True)
                self._thread.start()

    def end(self, finished: int) -> bool:
        """Begin no more rounds, unless one is under way or more groups were finished than these: then return False."""
        with self._starting:
            if self.finished != finished or (self._thread is not None and self._thread.is_alive()):
                return False
            self._stopping = True
            return True

    def stop(self) -> None:
        """Begin no more rounds, and wait for the statement that is under way for a moment."""
        with self._starting:
            self._stopping = True
        if self._thread is not None:
            self._thread.join(self._options.timings.stop_dequeue)

    def run(self) -> None:
        """Do one round: fold and finish until nothing is left, or another worker does it."""
        began = self._options.clock()
        connection = dedicated_connection(self._options, within=self._options.stuck_after)
        try:
            if all(self._fold(connection, schema) for schema in self._notify):
                self.folded_at = began
            self._backoff.succeeded()
        except Exception as error:  # noqa: BLE001 - the next round, or another worker, does it
            self._backoff.failed(error)
        finally:
            connection.close()

    def _fold(self, connection: DedicatedConnection, schema: str | None) -> bool:
        """Fold one installation. Whether nothing is left to do."""
        timings = self._options.timings
        fold = partial(
            fold_groups,
            schema=schema,
            limit=timings.notes_at_once,
            groups=timings.groups_at_once,
            notify=self._notify[schema],
        )
        while not self._stopping:
            done = connection.run(fold)
            if done is None:
                return False
            if done.finished:
                self.finished += done.finished
                log.debug(
                    "worker %s: %d groups whose members have ended",
                    *(self._options.name, done.finished),
                    extra={"worker": self._options.name},
                )
            if not done.more:
                return True
        return False


R = TypeVar("R")
_LOCKED = "55P03"
# A statement_timeout, or an operator.
_CANCELLED = "57014"
# Of the messages that one call enqueues.
_BYTES = 8 * 2**20


@dataclass(slots=True)
class _Installation:
    """The queues of one schema.

    Attributes:
        queues: By name.
        in_code: Queue, channel and name of the schedules that their code declares.
    """

    queues: dict[str, ServedQueue] = field(default_factory=dict)
    in_code: list[tuple[str, str, str]] = field(default_factory=list)


class Schedules:
    """The schedules of one worker's queues.

    Args:
        connection: That of the worker's duties; only their thread calls :meth:`poll`.
        queues: The queues.
        options: The worker's.
    """

    def __init__(self, connection: DedicatedConnection, queues: Sequence[ServedQueue], options: WorkerOptions) -> None:
        self._connection = connection
        self._options = options
        self._timings = options.timings
        self._installations: dict[str | None, _Installation] = {}
        for queue in queues:
            found = self._installations.setdefault(queue.target.schema, _Installation())
            found.queues[queue.target.queue] = queue
            found.in_code += [(queue.target.queue, *key) for key in queue.queue.schedules.declared]
        self._declared = [queue for queue in queues if queue.queue.schedules.declared]
        self._undeclared = list(self._declared)
        # How many connections were made when the code was last declared. None: it was not yet.
        self._declared_on: int | None = None
        self._declaring = Backoff("set its periodic schedules", options.name, options.clock, options.timings)
        self._running = Backoff("run schedules", options.name, options.clock, options.timings)
        self._refused: set[int] = set()
        self._held: set[tuple[str | None, str, str]] = set()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._ended = False
        self._again_at = 0.0
        # Of a round that is to end: slots of an installation that are due later are left.
        self._until: dict[str | None, int] | None = None

    def poll(self) -> float | None:
        """Begin to run what is due, in a thread of its own. Seconds until the next one is due; None: not soon."""
        if self._thread is not None and self._thread.is_alive():
            return None
        found = [(schema, due) for schema in self._installations for due in self._find(self._connection, schema)]
        if self._declared_on not in {None, self._connection.made}:
            # The server may have gone back to a time before a schedule was set.
            self._undeclared = list(self._declared)
        if self._undeclared or any(due.due_at <= due.read_at for _, due in found):
            self._start()
        waits = [due.due_at - due.read_at for _, due in found if due.due_at > due.read_at]
        return min(waits) / 1_000_000 if waits else None

    def run_once(self) -> bool:
        """Run what is due when this is first called, and nothing that becomes due later. Whether that is done.

        To be asked again until it is. A worker that drains calls this in place of :meth:`poll`.
        """
        if self._ended or (self._thread is not None and self._thread.is_alive()):
            return self._ended
        if self._until is None:
            self._until = {}
        if self._options.clock() >= self._again_at:
            self._start()
        return False

    def stop(self) -> None:
        """Run no more slots after the one that is under way, and wait for that for a moment."""
        self._stopping = True
        if self._thread is not None:
            self._thread.join(self._timings.stop_dequeue)

    def _start(self) -> None:
        self._thread = threading.Thread(target=self.run, name=f"{self._options.name}-schedules", daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Set what the code declares, and run everything that is due."""
        lock_timeout = self._timings.lock_timeout if self._options.listen else None
        within = self._options.stuck_after
        connection = dedicated_connection(self._options, lock_timeout=lock_timeout, within=within)
        self._held.clear()
        try:
            self._declare(connection)
            for schema in self._installations:
                while self._run_due(connection, schema) and not self._stopping:
                    pass
            self._running.succeeded()
            self._ended = True
        except Exception as error:  # noqa: BLE001 - the next poll, or another worker, does it
            self._again_at = self._options.clock() + self._running.failed(error)
            # What another attempt would not mend must not keep a drain for ever.
            self._ended = not _passes(error)
        finally:
            connection.close()

    def _find(self, connection: DedicatedConnection, schema: str | None) -> list[DueSchedule]:
        installation, timings = self._installations[schema], self._timings
        ask = partial(
            due_schedules,
            schema=schema,
            queues=sorted(installation.queues),
            in_code=installation.in_code,
            ahead=timedelta(seconds=timings.schedules_every),
            limit=timings.schedules_at_once,
        )
        found = connection.run(ask)
        if self._until is not None and found:
            until = self._until.setdefault(schema, found[0].read_at)
            found = [due._replace(read_at=min(due.read_at, until)) for due in found]
        return [due for due in found if due.id not in self._refused]

    def _declare(self, connection: DedicatedConnection) -> None:
        """Set the schedules of the code at the start. On another connection, set those that are not there any more."""
        made = self._connection.made
        try:
            for queue in list(self._undeclared):
                for (channel, name), definition in queue.queue.schedules.declared.items():
                    if self._declared_on is not None and self._is_set(connection, queue, channel, name):
                        continue
                    outcome = connection.run(schedule_call(queue.target, definition).value)
                    log.log(
                        10 if outcome == "same" else 20,
                        "worker %s: schedule %s of queue %s is %s by the code",
                        *(self._options.name, definition.name, queue.target.queue, outcome),
                        extra={"worker": self._options.name},
                    )
                self._undeclared.remove(queue)
            self._declared_on = made
            self._declaring.succeeded()
        except Exception as error:  # noqa: BLE001 - tried again by the next poll
            self._declaring.failed(error)

    @staticmethod
    def _is_set(connection: DedicatedConnection, queue: ServedQueue, channel: str, name: str) -> bool:
        read = partial(read_schedules, target=queue.target, channel=channel, name=name, limit=1)
        return bool(connection.run(read))

    def _run_due(self, connection: DedicatedConnection, schema: str | None) -> bool:
        """Run the schedules that are due, in any order: workers that do it at once hardly meet. Whether one was run."""
        found = [due for due in self._find(connection, schema) if due.due_at <= due.read_at]
        random.shuffle(found)
        progress = False
        for due in found:
            if self._stopping:
                return False
            progress |= self._run_one(connection, schema, due)
        return progress

    def _run_one(self, connection: DedicatedConnection, schema: str | None, due: DueSchedule) -> bool:
        """Run slots of a schedule that are due, or note why it cannot be run. False: it is left for now."""
        channel = schema, due.queue, due.channel
        if channel in self._held:
            return False
        try:
            return self._run_slots(connection, schema, due)
        except NotGranted as error:
            self._refused.add(due.id)
            log.warning(
                "worker %s leaves schedule %s of channel %s of queue %s to others: %s",
                *(self._options.name, due.name, due.channel, due.queue, logged(error)),
                extra={"worker": self._options.name},
            )
            return False
        except DBAPIError as error:
            state = sqlstate_of(error)
            if state == _LOCKED:
                # An open transaction makes the channel: the next poll waits for it again, once for all its schedules.
                self._held.add(channel)
            if state in {_LOCKED, _CANCELLED} or is_serialization_failure(error):
                return False
            if is_away(error):
                raise
            return self._note(connection, schema, due, error)
        except (FairQueueError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            return self._note(connection, schema, due, error)

    def _run_slots(self, connection: DedicatedConnection, schema: str | None, due: DueSchedule) -> bool:
        """Run slots that are due, in one transaction. False: another worker was first, or somebody has the row locked.

        What is left of many comes in the next round, after the other schedules, which would be late meanwhile.
        """
        timing = timing_of(due.cron, due.timezone, due.every, due.anchor_at)
        most = max(1, min(self._timings.slots_at_once, _BYTES // max(due.content_size, 1)))
        plan = planned(timing, due.catch_up, due.done_until, due.read_at, most)
        run = partial(
            run_slots,
            schema=schema,
            due=due,
            slots=plan.slots,
            until=plan.until,
            next_slot=plan.next,
            notify=self._installations[schema].queues[due.queue].target.notify,
        )
        made = connection.run(run)
        if made:
            log.debug(
                "worker %s: schedule %s of channel %s of queue %s enqueued messages %s",
                *(self._options.name, due.name, due.channel, due.queue, list(made.values())),
                extra={"worker": self._options.name},
            )
        return made is not None

    def _note(
        self, connection: DedicatedConnection, schema: str | None, due: DueSchedule, error: BaseException
    ) -> bool:
        """Note why a schedule cannot be run. False: it was changed meanwhile, or somebody has the row locked."""
        delay = timedelta(seconds=self._timings.schedule_again)
        note = partial(fail_schedule, schema=schema, due=due, problem=said(error), delay=delay)
        noted = connection.run(note)
        if noted:
            log.warning(
                "worker %s cannot run schedule %s of channel %s of queue %s, which is tried again in %.0f s: %s",
                *(self._options.name, due.name, due.channel, due.queue, delay.total_seconds(), logged(error)),
                extra={"worker": self._options.name},
            )
        return noted


def _passes(error: Exception) -> bool:
    """Whether the same call may succeed later: the database is away, or others hold it up."""
    return is_away(error) or is_serialization_failure(error) or isinstance(error, OSError)


class Housekeeping:
    """Housekeeping that any worker may do for all, in the schemas of its queues.

    It makes partitions of the history ahead, and drops old ones. It deletes dead letters, results, finished groups and
    keys whose time is over, old slots of schedules, old requests to stop, and channels that have been idle for long.
    Several workers may do this at once: the SQL functions finish what another worker left. So it does not matter which
    workers do it, how often, or whether one dies. It runs in a thread of its own, so that no lease waits for it.

    Args:
        options: The worker's.
    """

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._schemas = sorted({queue.schema for queue in options.queues}, key=lambda schema: schema or "")
        self._name = options.name
        self._most = options.timings.pruned_at_once
        self._thread: threading.Thread | None = None
        self._stopping = False

    def start(self) -> None:
        """Begin a round in a thread of its own, unless one is under way."""
        if not self._stopping and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self.run, name=f"{self._name}-housekeeping", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the round after the statement that is under way, and wait for that for a moment."""
        self._stopping = True
        if self._thread is not None:
            self._thread.join(self._options.timings.stop_dequeue)

    def run(self) -> None:
        """Do one round."""
        limit = self._options.timings.housekeeping_call
        # A role's statement_timeout is meant for calls of users. A transaction pooler's connection keeps no settings.
        time_limit = limit if self._options.listen else None
        connection = dedicated_connection(self._options, time_limit=time_limit, within=limit)
        for schema in self._schemas:
            tasks = (
                self._keep_history,
                self._prune_dead_letters,
                self._prune_expired,
                self._forget_channels,
            )
            for task in tasks:
                if self._stopping:
                    break
                try:
                    task(connection, schema)
                except Exception as error:  # noqa: BLE001 - the next round, or another worker, does it
                    log.warning(
                        "worker %s could not do its housekeeping: %s",
                        self._name,
                        logged(error),
                        extra={"worker": self._name},
                    )
        connection.close()

    def _keep_history(self, connection: DedicatedConnection, schema: str | None) -> None:
        ahead = self._options.timings.history_days
        changes = call(schema, "fq_keep_history", "keep the partitions of the history", ahead=ahead)
        for partition, action in connection.run(changes.rows):
            log.info("worker %s: partition %s %s", self._name, partition, action, extra={"worker": self._name})

    def _prune_dead_letters(self, connection: DedicatedConnection, schema: str | None) -> None:
        more = True
        while more and not self._stopping:
            prune = call(schema, "fq_prune_dead_letters", "prune dead letters", limit=self._most)
            pruned = connection.run(prune.rows)
            more = any(one.more for one in pruned)
            for queue, deleted, _ in pruned:
                log.info(
                    "worker %s: %s dead letters of queue %s deleted after their retention",
                    self._name,
                    deleted,
                    queue,
                    extra={"worker": self._name},
                )

    def _prune_expired(self, connection: DedicatedConnection, schema: str | None) -> None:
        """Delete keys, results, groups, slots and what else is over, a bounded number of rows in a transaction."""
        deleted = self._most
        while deleted == self._most and not self._stopping:
            prune = call(schema, "fq_prune_expired", "prune what has expired", limit=self._most)
            [(deleted, schedules)] = connection.run(prune.rows)
            for schedule in schedules:
                log.info(
                    "worker %s: schedule %s is removed: no worker has it in its code any more",
                    self._name,
                    schedule,
                    extra={"worker": self._name},
                )

    def _forget_channels(self, connection: DedicatedConnection, schema: str | None) -> None:
        """Delete the channels that were marked before, if the transactions of then have ended, and mark others."""
        size = self._options.timings.forgotten_at_once
        self._delete_channels(connection, schema)
        after: int | None = 0
        while after is not None and not self._stopping:
            mark = call(schema, "fq_mark_idle_channels", "mark idle channels", after=after, limit=size)
            after = connection.run(mark.value)
        self._delete_channels(connection, schema)

    def _delete_channels(self, connection: DedicatedConnection, schema: str | None) -> None:
        size = self._options.timings.forgotten_at_once
        forgotten, more = 0, True
        while more and not self._stopping:
            [row] = connection.run(call(schema, "fq_forget_channels", "forget idle channels", limit=size).rows)
            forgotten, more = forgotten + row.forgotten, row.more
        if forgotten:
            log.info("worker %s: %s idle channels forgotten", self._name, forgotten, extra={"worker": self._name})
