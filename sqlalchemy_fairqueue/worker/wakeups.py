"""Wakes a worker's fetcher from other threads; wakes workers, and callers that wait for results, after commits.

A worker registers a wait in the database, polls once more, and then mostly relies on notifications (see ``timings``).

All workers of a process and database share one listening connection, and never depend on it alone: each time it comes
up, they poll once and register their waits anew. While the server's notification queue is more than half full, commits
do not notify (see fq_wake), and the connection counts as down. Callers that wait for results share another connection,
one for each process and engine, since a process that only enqueues runs no worker.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from sqlalchemy import Engine, event

from sqlalchemy_fairqueue.errors import FairQueueError
from sqlalchemy_fairqueue.times import microseconds
from sqlalchemy_fairqueue.worker.connection import ConnectionOptions, DedicatedConnection
from sqlalchemy_fairqueue.worker.telemetry import WorkerLog
from sqlalchemy_fairqueue.worker.threads import WakeEvent
from sqlalchemy_fairqueue.worker.timings import Backoff, Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine
    from sqlalchemy_fairqueue.database.drivers import Listener
    from sqlalchemy_fairqueue.worker.leases import ServedQueue
    from sqlalchemy_fairqueue.worker.options import WorkerOptions

    Key = tuple[object, ...]
    # The leases or messages that notifications named, by topic.
    Topics = dict[str, set[str]]
    Notify = Callable[[Topics | None], None]


class FetchTrigger(WakeEvent):
    """The event that makes a worker's fetcher look early whether to dequeue. The fetcher sets the attributes.

    Attributes:
        refill_at: The executor wakes the fetcher when the buffer has at most this many deliveries; never if it is -1.
        is_backlogged: Whether the fetcher takes no messages, because the settler has too many deliveries to settle.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.refill_at: int = -1
        self.is_backlogged: bool = False
        self._clock = clock

    def settled(self, queues: Iterable[ServedQueue]) -> None:
        now = self._clock()
        earlier = [queue.polls.poll_now(now) for queue in queues]
        if any(earlier) or self.is_backlogged:
            self.set()


@dataclass(eq=False)
class WaitRegistration:
    """Registers the waits of one worker, and hears notifications. Other threads may call only :meth:`notified`."""

    connection: DedicatedConnection
    options: WorkerOptions
    trigger: FetchTrigger
    topics: dict[str, ServedQueue] = field(default_factory=dict, init=False)
    _listening: Listening | None = field(default=None, init=False)

    def before_poll(self, queue: ServedQueue) -> None:
        """Set the poll interval. If the worker listens and ``queue.polls.needs_wait`` returns True, register a wait."""
        if self._listening is None and self.options.listen:
            self._listening = join_listening(self.options, self.connection, self.notified)
        polls, now, alone = queue.polls, self.options.clock(), self.options.interval(notified=False)
        if self._listening is None or not self._listening.is_listening:
            polls.interval = alone
            polls.wait_ended(now)
            return
        timings = self.options.timings
        interval = min(self.options.interval(notified=True), (timings.longest_wait - timings.wait_margin) / 2)
        # Producers that use a queue with ``notify=False`` wake nobody.
        polls.interval = interval if queue.queue.notify else min(interval, alone)
        if not polls.needs_wait(now):
            return
        # The wait lasts two intervals and not one, since each registration is a write. It does not last longer, since
        # producers also notify a worker that has died. Such a notification wakes other workers only after a moment.
        seconds = 2 * interval + timings.wait_margin
        queue.waiting_lease, topic = self._wait(queue, "wait for", seconds)
        polls.wait_begun(now, now + seconds)
        self.topics[topic] = queue

    def notified(self, topics: Topics | None) -> None:
        """Let the queues of *topics* be polled, at once if a notification names this worker's lease, otherwise soon.

        If *topics* is None, notifications may be lost; then all queues are polled at once.
        """
        now, earlier = self.options.clock(), []
        for topic, queue in list(self.topics.items()):
            if topics is None:
                # After a failover the server may not know the waits.
                queue.polls.waiting_until = 0.0
                earlier.append(queue.polls.poll_now(now))
            elif topic in topics:
                is_named = str(queue.waiting_lease) in topics[topic]
                earlier.append(queue.polls.poll_now(now if is_named else now + self.options.timings.poll_later))
        if earlier:
            self.options.stats.woken += 1
        if any(earlier):
            self.trigger.set()

    def close(self) -> None:
        # A wait that is still registered ends with its lease.
        if self._listening is not None:
            self._listening.leave(self.notified)

    def take_back(self, queue: ServedQueue) -> None:
        queue.polls.wait_ended(self.options.clock())
        self._wait(queue, "stop waiting for", 0.0)

    def _wait(self, queue: ServedQueue, doing: str, seconds: float) -> tuple[int, str]:
        """Register a wait of *seconds*; 0 ends the present wait. Return its lease id and the topic of notifications."""
        who = {"consumer": queue.consumer.name, "lease_id": queue.waiting_lease}
        register = queue.target.call("fq_wait", doing, **who, wait=microseconds(timedelta(seconds=seconds)))
        [row] = self.connection.run(register.rows)
        return row[0], row[1]


_shared: dict[Key, Listening] = {}
# Guards what threads of this process share, and the subscribers.
_lock = threading.Lock()


def join_listening(options: WorkerOptions, connection: DedicatedConnection, notify: Notify) -> Listening:
    key = (os.getpid(), *connection.database_key())
    with _lock:
        listening = _shared.get(key)
        if listening is None:
            listening = _shared[key] = Listening(options, key)
        listening.join(notify)
    return listening


class Listening:
    """A listening connection and its thread. Workers share it by its *key*, which names process and database."""

    def __init__(self, options: ConnectionOptions, key: Key | None = None) -> None:
        self.is_listening = False
        self._key = key
        self._options = options
        self._connection = DedicatedConnection(options)
        self._subscribers: list[Notify] = []
        name = f"process {os.getpid()}"
        self._log = WorkerLog(name)
        self._backoff = Backoff("listen for notifications", name, options.clock, options.timings, cap=10.0)
        # One byte stops the thread. A socket, since Windows cannot wait for a pipe beside a socket.
        self._stop_reader, self._stop_writer = socket.socketpair()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="fairqueue-listener", daemon=True)

    def join(self, notify: Notify) -> None:
        """Call *notify* in the listening thread with the topics of notifications; with None if some may be lost."""
        if self._thread.ident is None:
            self._thread.start()
        self._subscribers = [*self._subscribers, notify]

    def leave(self, notify: Notify) -> None:
        with _lock:
            self._subscribers = [one for one in self._subscribers if one != notify]
            if not self._subscribers and not self._stopping:
                if self._key is not None:
                    _shared.pop(self._key, None)
                # The byte is sent first, since the thread closes this socket once _stopping is set.
                self._stop_writer.send(b"x")
                self._stopping = True

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._listen()
            except BaseException as error:  # noqa: BLE001 - subscribers poll meanwhile
                self.is_listening = False
                self._connection.close()
                wait = self._backoff.failed(error)
                self._notify(None)
                self._stop_reader.settimeout(wait)
                with contextlib.suppress(TimeoutError):
                    self._stop_reader.recv(1, socket.MSG_PEEK)
        self.is_listening = False
        self._connection.close()
        self._stop_reader.close()
        self._stop_writer.close()

    def _listen(self) -> None:
        listener = self._connection.listener()
        with self._connection.calling(self._options.timings.answer):
            listener.listen(_own_name())
        self._check(listener)
        self._backoff.succeeded()
        self._notify(None)
        check_at = self._options.clock() + self._options.timings.silence
        while not self._stopping:
            # Receive first, since wait() does not end for notifications that the driver read together with an answer.
            topics: Topics = {}
            for payload in listener.received():
                lease_id, _, topic = payload.partition(":")
                topics.setdefault(topic, set()).add(lease_id)
            if topics:
                self._notify(topics)
            listener.wait(self._stop_reader.fileno(), max(0.0, check_at - self._options.clock()))
            if self._options.clock() >= check_at:
                before = self.is_listening
                self._check(listener)
                if self.is_listening != before:
                    self._notify(None)
                check_at = self._options.clock() + self._options.timings.silence

    def _check(self, listener: Listener) -> None:
        """Check that the server answers and this connection listens, or raise; note whether commits notify."""
        with self._connection.calling(self._options.timings.answer):
            has_room = listener.commits_notify()
        if has_room is None:
            raise FairQueueError(
                "the connection does not listen although it was told to: a transaction pooler is in between; connect "
                "to the server itself, or give the worker listen=False"
            )
        if not has_room and self.is_listening:
            self._log.warning(
                "polls: the server's notification queue is more than half full, so commits notify nobody "
                "(pg_stat_activity shows the listener whose transaction is open)"
            )
        self.is_listening = has_room

    def _notify(self, topics: Topics | None) -> None:
        for notify in self._subscribers:
            try:
                notify(topics)
            except Exception:  # noqa: BLE001 - the others are to be woken
                self._log.exception("cannot wake a worker, which polls")


def _own_name() -> str:
    """Return the listener's name in pg_stat_activity, for ``fairqueue doctor``."""
    host = re.sub(r"[^\w.-]", "_", socket.gethostname(), flags=re.ASCII)
    return f"fairqueue listener {os.getpid()}@{host}"


# Seconds that the connection stays open when nobody waits for a result.
_LINGER = 30.0


class EngineWatch:
    """Wakes callers that wait for results in one engine's database, by notifications about messages that ended."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._lock = threading.Lock()
        # By the id of each message that somebody waits for, the functions that wake the callers.
        self._wakes: dict[str, list[Callable[[], None]]] = {}
        self._listening: Listening | None = None
        self._timer: threading.Timer | None = None

    @property
    def is_listening(self) -> bool:
        listening = self._listening
        return listening is not None and listening.is_listening

    def join(self, engine: Engine | AsyncEngine, message_id: int, wake: Callable[[], None]) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._wakes.setdefault(str(message_id), []).append(wake)
            if self._listening is None:
                self._listening = Listening(ConnectionOptions(engine=engine))
                self._listening.join(self.notified)

    def leave(self, message_id: int, wake: Callable[[], None]) -> None:
        with self._lock:
            wakes = self._wakes[str(message_id)]
            wakes.remove(wake)
            if not wakes:
                del self._wakes[str(message_id)]
            if not self._wakes and self._listening is not None:
                self._timer = threading.Timer(_LINGER, partial(self.close, if_idle=True))
                self._timer.daemon = True
                self._timer.start()

    def notified(self, topics: Topics | None) -> None:
        with self._lock:
            named = self._wakes if topics is None else set().union(*topics.values())
            wakes = [wake for message_id in named for wake in self._wakes.get(message_id, ())]
        for wake in wakes:
            wake()

    def close(self, *, if_idle: bool = False) -> None:
        """End the connection, so that callers poll from now on; with *if_idle*, only if nobody waits."""
        with self._lock:
            if if_idle and self._wakes:
                return
            listening, self._listening = self._listening, None
        if listening is not None:
            listening.leave(self.notified)


_watches: WeakKeyDictionary[Engine, EngineWatch] = WeakKeyDictionary()


def watch_of(engine: Engine) -> EngineWatch:
    with _lock:
        watch = _watches.get(engine)
        if watch is None or watch.process != os.getpid():
            watch = _watches[engine] = EngineWatch()
            event.listen(engine, "engine_disposed", lambda _: watch.close())
    return watch
