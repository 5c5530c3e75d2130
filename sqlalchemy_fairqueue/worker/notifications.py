"""Notifications of the database, over one listening connection a process and database that all its workers share.

Workers never depend on it alone: while the connection is down, they poll. Each time that it comes up, they poll once
and register their waits anew. While the server's notification queue is more than half full, commits notify nobody (see
fq_wake), and the connection counts as down. Each driver has its own class of listeners, whose wait ends at a
notification, at a deadline, or when it is told to stop.
"""

from __future__ import annotations

import os
import re
import selectors
import socket
import threading
from typing import TYPE_CHECKING, Protocol

from sqlalchemy_fairqueue.errors import FairQueueError
from sqlalchemy_fairqueue.worker.connection import dedicated_connection
from sqlalchemy_fairqueue.worker.telemetry import log
from sqlalchemy_fairqueue.worker.timings import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from sqlalchemy_fairqueue.database.drivers import Listener
    from sqlalchemy_fairqueue.worker.connection import ConnectionOptions, DedicatedConnection
    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue

    Key = tuple[object, ...]
    Notify = Callable[[list[ServedQueue], list[ServedQueue]], None]

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
        self._backoff = Backoff(
            "listen for notifications", f"process {os.getpid()}", options.clock, options.timings, cap=10.0
        )
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
            log.warning(
                "process %d polls: the server's notification queue is more than half full, so commits notify nobody "
                "(pg_stat_activity shows the listener whose transaction is open)",
                os.getpid(),
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
                log.exception("a worker cannot be woken; it polls")

    def _answering(self) -> AbstractContextManager[None]:
        return self._connection.watch.calling(self._timings.answer)


def _own_name() -> str:
    """The name by which pg_stat_activity, and ``fairqueue doctor``, know the listener of this process."""
    host = re.sub(r"[^\w.-]", "_", socket.gethostname(), flags=re.ASCII)
    return f"fairqueue listener {os.getpid()}@{host}"
