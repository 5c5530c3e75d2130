"""Wake-ups of a worker's threads by each other, and of workers and waiters for results by commits.

A worker registers a wait in the database and polls once more. Then it relies on notifications, beside one poll after
about 0.2 seconds and one each poll interval (see ``PollSchedule``). Without notifications (``listen=False``, or no
listening connection just now) it polls more often instead.

All workers of a process and database share one listening connection, and never depend on it alone: each time that it
comes up, they poll once and register their waits anew. While the server's notification queue is more than half full,
commits notify nobody (see fq_wake), and the connection counts as down. Each driver has its own class of listeners,
whose wait ends at a notification, at a deadline, or when it is told to stop.

Those who wait for results have another connection, one a process and engine, because a process that only enqueues runs
no worker.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import socket
import threading
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from sqlalchemy import event

from sqlalchemy_fairqueue.errors import FairQueueError
from sqlalchemy_fairqueue.times import microseconds
from sqlalchemy_fairqueue.worker.connection import ConnectionOptions, dedicated_connection
from sqlalchemy_fairqueue.worker.telemetry import WorkerLog
from sqlalchemy_fairqueue.worker.timings import Backoff, Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import Engine

    from sqlalchemy_fairqueue.database.asynchronous import AsyncEngine
    from sqlalchemy_fairqueue.database.drivers import Listener
    from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
    from sqlalchemy_fairqueue.worker.leases import ServedQueue
    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.timings import Clock

    Key = tuple[object, ...]
    Notify = Callable[[list[ServedQueue], list[ServedQueue]], None]


class WakeEvent:
    """An event that is cheap to set again and again while its thread has not come back to wait.

    The waiting thread takes the event, does all there is to do, and waits again: an event that was set in between ends
    its wait at once. It is one lock, held while the event is not set: a threading.Event is three, and some Python
    around them.
    """

    __slots__ = ("_unset",)

    def __init__(self) -> None:
        self._unset = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        """Wake the thread, now or when it waits next. Any thread may call it, also while another one does."""
        if self._unset.locked():
            # Another thread may have set it since.
            with contextlib.suppress(RuntimeError):
                self._unset.release()

    def wait(self, seconds: float | None) -> bool:
        """Wait for the event, and take it. Returns whether it was set. Only one thread may wait."""
        return self._unset.acquire(timeout=-1 if seconds is None else max(0.0, seconds))


class FetchTrigger:
    """All that lets the fetcher of one worker begin a round before the time that it has chosen.

    It is made before the other parts, which call it in their threads; only the fetcher waits for it.

    Attributes:
        refill_at: The executor wakes the fetcher when no more than so many deliveries are left in its buffer; -1: it
            does not. The fetcher sets it.
        is_backlogged: Whether the fetcher waits for deliveries to be settled. The fetcher sets it.
    """

    __slots__ = ("_clock", "_event", "is_backlogged", "refill_at")

    def __init__(self, clock: Clock) -> None:
        self.refill_at: int = -1
        self.is_backlogged: bool = False
        self._clock = clock
        self._event = WakeEvent()

    def set(self) -> None:
        """Something changed: a handler is free, a queue may have work, or the worker stops."""
        self._event.set()

    def wait(self, seconds: float) -> None:
        """Wait until something changes. For the fetcher."""
        self._event.wait(seconds)

    def settled(self, queues: Iterable[ServedQueue]) -> None:
        """Deliveries were settled, which made room in these queues. A fetcher that is about to poll them waits on."""
        now = self._clock()
        earlier = [queue.polls.poll_now(now) for queue in queues]
        if any(earlier) or self.is_backlogged:
            self._event.set()

    def notified(self, named: Iterable[ServedQueue], others: Iterable[ServedQueue]) -> None:
        """Notifications came: for some queues they named this worker, for others another consumer."""
        now = self._clock()
        earlier = [queue.polls.poll_now(now) for queue in named]
        earlier += [queue.polls.poll_later(now) for queue in others]
        if any(earlier):
            self._event.set()


class WaitRegistration:
    """The waits of one worker. The fetcher calls it.

    Args:
        connection: The fetcher's.
        options: The worker's.
        subscribe: Joins the listening connection to the database of this one; None: the worker is not to be woken.
    """

    def __init__(
        self,
        connection: DedicatedConnection,
        options: WorkerOptions,
        subscribe: Callable[[DedicatedConnection], Subscription] | None,
    ) -> None:
        self._connection = connection
        self._clock = options.clock
        self._margin = options.timings.wait_margin
        self._interval = min(
            options.interval_with_notifications, (options.timings.longest_wait - options.timings.wait_margin) / 2
        )
        self._interval_alone = options.interval_without_notifications
        self._subscribe = subscribe
        self._subscription: Subscription | None = None

    def before_poll(self, queue: ServedQueue) -> None:
        """A poll is about to begin; if polls gave nothing lately, register a wait first."""
        if self._subscription is None and self._subscribe is not None:
            self._subscription = self._subscribe(self._connection)
        subscription = self._subscription
        polls = queue.polls
        if subscription is None or not subscription.is_listening:
            polls.interval = self._interval_alone
            polls.wait_ended(self._clock())
            return
        # A producer that has such a queue wakes nobody.
        polls.interval = self._interval if queue.queue.notify else min(self._interval, self._interval_alone)
        now = self._clock()
        if not polls.needs_wait(now):
            return
        # Two intervals long: a registration is a write, and one that a dead worker leaves costs producers a
        # notification each, and keeps them from naming another worker.
        seconds = 2 * self._interval + self._margin

        queue.waiting_lease, topic = self._wait(queue, f"wait for queue {queue.target.queue!r}", seconds)
        polls.wait_begun(now, now + seconds)
        subscription.follow(topic, queue)

    def after_work(self, queue: ServedQueue) -> None:
        """A poll gave messages; if several did, producers need not wake the worker."""
        if queue.polls.needs_no_wait():
            self._take_back(queue)

    def close(self, queues: Sequence[ServedQueue]) -> None:
        """The worker stops: nobody need wake it."""
        if self._subscription is None:
            return
        self._subscription.close()
        # A registration that stays ends by itself.
        with contextlib.suppress(Exception):
            for queue in queues:
                if queue.polls.waiting_until > self._clock():
                    self._take_back(queue)

    def _take_back(self, queue: ServedQueue) -> None:
        queue.polls.wait_ended(self._clock())
        self._wait(queue, f"stop waiting for queue {queue.target.queue!r}", 0.0)

    def _wait(self, queue: ServedQueue, doing: str, seconds: float) -> tuple[int, str]:
        """Register a wait for so long; return its lease and the topic of its notifications."""
        wait = microseconds(timedelta(seconds=seconds))
        name, lease_id = queue.consumer.name, queue.waiting_lease
        [row] = self._connection.run(
            queue.target.call("fq_wait", doing, consumer=name, lease_id=lease_id, wait=wait).rows
        )
        return row[0], row[1]


_listeners: dict[Key, Listening] = {}
_lock = threading.Lock()


class Subscription:
    """The notifications of one worker.

    Args:
        listener: Receives them.
        notify: Called, in the listener's thread, with the queues that may have work: those for which a notification
            named this worker, and those for which it named another consumer.
    """

    def __init__(self, listener: Listening, notify: Notify) -> None:
        self._listener = listener
        self._notify = notify
        self._topics: dict[str, ServedQueue] = {}

    @property
    def is_listening(self) -> bool:
        """Whether notifications are sent and arrive just now, as far as is known."""
        return self._listener.is_listening

    def follow(self, topic: str, queue: ServedQueue) -> None:
        """From now on a notification of this topic is for that queue."""
        self._topics[topic] = queue

    def notified(self, topics: dict[str, set[str]] | None) -> None:
        """Notifications came, each of which named a waiting lease; None: some may have been missed, or will be."""
        queues = list(self._topics.items())
        if topics is None:
            # The server may be another one now, which does not know of the waits.
            for _, queue in queues:
                queue.polls.renew_wait()
            named, others = [queue for _, queue in queues], []
        else:
            found = [(queue, str(queue.waiting_lease) in topics[topic]) for topic, queue in queues if topic in topics]
            named = [queue for queue, is_named in found if is_named]
            others = [queue for queue, is_named in found if not is_named]
        if named or others:
            self._notify(named, others)

    def close(self) -> None:
        """Receive no more. The last subscription ends the connection."""
        with _lock:
            self._listener.leave(self)


def subscribe(options: WorkerOptions, connection: DedicatedConnection, notify: Notify) -> Subscription:
    """Join the listening connection to a database, which the first subscriber makes.

    Args:
        options: The worker's.
        connection: To the same database; it says which one that is.
        notify: As for Subscription.
    """
    key = (os.getpid(), *connection.database_key())
    with _lock:
        listener = _listeners.get(key)
        if listener is None:
            listener = _listeners[key] = Listening(options, key)
        subscription = Subscription(listener, notify)
        listener.join(subscription)
    return subscription


class Subscriber(Protocol):
    """The subscribers of notifications."""

    def notified(self, topics: dict[str, set[str]] | None) -> None:
        """Notifications came: by topic what each of them named. None: some may have been missed, or will be."""
        ...


class Listening:
    """The listening connection and its thread.

    Args:
        options: Whose connection it is.
        key: Under which workers share it. None: they do not.
    """

    def __init__(self, options: ConnectionOptions, key: Key | None = None) -> None:
        self.is_listening = False
        self._key = key
        self._clock = options.clock
        self._timings = options.timings
        self._connection = dedicated_connection(options)
        self._subscriptions: list[Subscriber] = []
        name = f"process {os.getpid()}"
        self._log = WorkerLog(name)
        self._backoff = Backoff("listen for notifications", name, options.clock, options.timings, cap=10.0)
        # One byte tells the thread to stop. Not through a pipe, which Windows cannot wait for beside a socket.
        self._stop_reader, self._stop_writer = socket.socketpair()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="fairqueue-listener", daemon=True)

    def join(self, subscription: Subscriber) -> None:
        """One more subscriber."""
        if self._thread.ident is None:
            self._thread.start()
        self._subscriptions = [*self._subscriptions, subscription]

    def leave(self, subscription: Subscriber) -> None:
        """One subscriber less; without any the thread stops."""
        self._subscriptions = [one for one in self._subscriptions if one is not subscription]
        if not self._subscriptions and not self._stopping:
            if self._key is not None:
                _listeners.pop(self._key, None)
            # First: once it may stop, its thread closes this.
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
                with selectors.DefaultSelector() as selector:
                    selector.register(self._stop_reader, selectors.EVENT_READ)
                    selector.select(wait)
        self.is_listening = False
        self._connection.close()
        self._stop_reader.close()
        self._stop_writer.close()

    def _listen(self) -> None:
        listener = self._connection.listener()
        with self._answering():
            listener.listen(_own_name())
        self._check(listener)
        self._backoff.succeeded()
        self._notify(None)
        check_at = self._clock() + self._timings.silence
        while not self._stopping:
            # First: what the driver has read with an answer ends no wait.
            self._receive(listener)
            listener.wait(self._stop_reader.fileno(), max(0.0, check_at - self._clock()))
            if self._clock() >= check_at:
                before = self.is_listening
                self._check(listener)
                if self.is_listening != before:
                    self._notify(None)
                check_at = self._clock() + self._timings.silence

    def _check(self, listener: Listener) -> None:
        """Ask whether the server answers, whether this connection listens, and whether commits notify at present."""
        with self._answering():
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

    def _receive(self, listener: Listener) -> None:
        topics: dict[str, set[str]] = {}
        for payload in listener.received():
            lease_id, _, topic = payload.partition(":")
            topics.setdefault(topic, set()).add(lease_id)
        if topics:
            self._notify(topics)

    def _notify(self, topics: dict[str, set[str]] | None) -> None:
        for subscription in self._subscriptions:
            try:
                subscription.notified(topics)
            except Exception:  # noqa: BLE001 - the others are to be woken
                self._log.exception("cannot wake a worker, which polls")

    def _answering(self) -> AbstractContextManager[None]:
        return self._connection.watch.calling(self._timings.answer)


def _own_name() -> str:
    """The name by which pg_stat_activity, and ``fairqueue doctor``, know the listener of this process."""
    host = re.sub(r"[^\w.-]", "_", socket.gethostname(), flags=re.ASCII)
    return f"fairqueue listener {os.getpid()}@{host}"


# Seconds that the connection stays without a waiter.
_LINGER = 30.0


class EngineWatch:
    """The notifications of one engine's database about messages that have ended."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._lock = threading.Lock()
        self._wakes: dict[str, list[Callable[[], None]]] = {}
        self._listening: Listening | None = None
        self._timer: threading.Timer | None = None

    @property
    def is_listening(self) -> bool:
        """Whether notifications are sent and arrive just now, as far as is known."""
        listening = self._listening
        return listening is not None and listening.is_listening

    def join(self, engine: Engine | AsyncEngine, message_id: int, wake: Callable[[], None]) -> None:
        """Call *wake*, in the listener's thread, at each notification that may be about a message."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._wakes.setdefault(str(message_id), []).append(wake)
            if self._listening is None:
                self._listening = Listening(ConnectionOptions(engine=engine))
                self._listening.join(self)

    def leave(self, message_id: int, wake: Callable[[], None]) -> None:
        """Call it no more. Some time after the last one the connection ends."""
        with self._lock:
            wakes = self._wakes.get(str(message_id), [])
            if wake in wakes:
                wakes.remove(wake)
            if not wakes:
                self._wakes.pop(str(message_id), None)
            if not self._wakes and self._listening is not None:
                self._timer = threading.Timer(_LINGER, partial(self.close, if_idle=True))
                self._timer.daemon = True
                self._timer.start()

    def notified(self, topics: dict[str, set[str]] | None) -> None:
        """Notifications came, each of which named a message or a lease; None: some may have been missed."""
        with self._lock:
            if topics is None:
                named = set(self._wakes)
            else:
                named = {name for names in topics.values() for name in names if name in self._wakes}
            wakes = [wake for name in named for wake in self._wakes[name]]
        for wake in wakes:
            wake()

    def close(self, *, if_idle: bool = False) -> None:
        """End the connection, unless anybody waits and it is only to end if idle. Those who wait poll."""
        with self._lock:
            if if_idle and self._wakes:
                return
            listening, self._listening = self._listening, None
        if listening is not None:
            listening.leave(self)


_watches: WeakKeyDictionary[Engine, EngineWatch] = WeakKeyDictionary()
_making = threading.Lock()


def watch_of(engine: Engine) -> EngineWatch:
    """The watch over the database of an engine. A forked child has its own."""
    with _making:
        watch = _watches.get(engine)
        if watch is None or watch.process != os.getpid():
            watch = _watches[engine] = EngineWatch()
            event.listen(engine, "engine_disposed", lambda _: watch.close())
    return watch
