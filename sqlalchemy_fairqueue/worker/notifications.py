"""Hears notifications: one connection a process and database, shared by all workers of the process.

It is never the only way to find work: while it is down its followers poll, and each time it comes up they look once. It
talks to libpq itself, for a wait that ends at a notification, at a deadline, or when it is asked to stop, whether the
connection was made for threads or for asyncio.
"""

from __future__ import annotations

import os
import selectors
import threading
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.errors import FairQueueError
from sqlalchemy_fairqueue.worker.backoff import Backoff
from sqlalchemy_fairqueue.worker.connection import line
from sqlalchemy_fairqueue.worker.logs import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from sqlalchemy_fairqueue.asynchronous import AsyncEngine
    from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
    from sqlalchemy_fairqueue.worker.served_queue import ServedQueue

    Key = tuple[object, ...]
    Wake = Callable[[list[ServedQueue], list[ServedQueue]], None]

_CHANNEL = "fairqueue"
# Seconds without a word after which the connection is asked for a sign of life.
_SILENCE = 15.0
# Seconds that it has for that.
_ANSWER = 10.0

_listeners: dict[Key, _Listener] = {}
_lock = threading.Lock()


class Subscription:
    """One worker's ear.

    Args:
        hub: What it hears through.
        wake: Called, in the hub's thread, with the queues that may have work: those that this worker was named for,
            and those that another one was.
    """

    def __init__(self, hub: _Listener, wake: Wake) -> None:
        self._hub = hub
        self._wake = wake
        self._topics: dict[str, ServedQueue] = {}

    @property
    def is_heard(self) -> bool:
        """Whether notifications arrive just now, as far as is known."""
        return self._hub.is_listening

    def follow(self, topic: str, source: ServedQueue) -> None:
        """From now on a notification of this topic is for that queue."""
        self._topics[topic] = source

    def notified(self, topics: dict[str, set[str]] | None) -> None:
        """There were notifications, each of which named a marked lease; None: some may have been missed, or will be."""
        sources = list(self._topics.items())
        if topics is None:
            named, others = [source for _, source in sources], []
        else:
            found = [
                (source, str(source.marked_lease) in topics[topic]) for topic, source in sources if topic in topics
            ]
            named = [source for source, is_named in found if is_named]
            others = [source for source, is_named in found if not is_named]
        if named or others:
            self._wake(named, others)

    def close(self) -> None:
        """Hear no more; the last one ends the connection."""
        with _lock:
            self._hub.leave(self)


def subscribe(engine: Engine | AsyncEngine, driver: Any, wake: Wake) -> Subscription:
    """Join the listening connection to a database, made if this is its first follower.

    Args:
        engine: How to connect.
        driver: A driver's connection to the same database, which says which one it is.
        wake: As for Subscription.
    """
    known = driver.info
    key = (os.getpid(), known.host, known.port, known.dbname, known.user)
    with _lock:
        hub = _listeners.get(key)
        if hub is None:
            hub = _listeners[key] = _Listener(key, line(engine))
        subscription = Subscription(hub, wake)
        hub.join(subscription)
    return subscription


class _Listener:
    """The connection and its thread."""

    def __init__(self, key: Key, own: DedicatedConnection) -> None:
        self.is_listening = False
        self._key = key
        self._line = own
        self._followers: list[Subscription] = []
        self._outage = Backoff(log, "listen for notifications", f"process {os.getpid()}", cap=10.0)
        self._ear, self._mouth = os.pipe()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="fairqueue-listener", daemon=True)

    def join(self, subscription: Subscription) -> None:
        """One more follower."""
        if self._thread.ident is None:
            self._thread.start()
        self._followers = [*self._followers, subscription]

    def leave(self, subscription: Subscription) -> None:
        """One less; without any it ends."""
        self._followers = [one for one in self._followers if one is not subscription]
        if not self._followers and not self._stopping:
            _listeners.pop(self._key, None)
            # First: once it may stop, its thread closes this.
            os.write(self._mouth, b"x")
            self._stopping = True

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._listen()
            except BaseException as error:  # noqa: BLE001 - followers poll meanwhile
                self.is_listening = False
                self._line.close()
                wait = self._outage.failed(error)
                self._tell(None)
                with selectors.DefaultSelector() as selector:
                    selector.register(self._ear, selectors.EVENT_READ)
                    selector.select(wait)
        self.is_listening = False
        self._line.close()
        os.close(self._ear)
        os.close(self._mouth)

    def _listen(self) -> None:
        connection = self._line.driver().pgconn
        # Whatever the application speaks: topics are compared by their characters.
        self._ask(connection, "set client_encoding to 'UTF8'")
        self._ask(connection, f"listen {_CHANNEL}")
        self.is_listening = True
        self._outage.over()
        self._tell(None)
        # Not select(), which knows no file above 1023.
        with selectors.DefaultSelector() as selector:
            for file in connection.socket, self._ear:
                selector.register(file, selectors.EVENT_READ)
            while not self._stopping:
                # First: what libpq has read with an answer makes no socket ready.
                self._hear(connection)
                ready = {key.fd for key, _ in selector.select(_SILENCE)}
                if not ready:
                    self._ask(connection, "select 1")
                elif connection.socket in ready:
                    connection.consume_input()

    def _hear(self, connection: Any) -> None:
        topics: dict[str, set[str]] = {}
        while (notification := connection.notifies()) is not None:
            lease_id, _, topic = notification.extra.decode(errors="replace").partition(":")
            topics.setdefault(topic, set()).add(lease_id)
        if topics:
            self._tell(topics)

    def _tell(self, topics: dict[str, set[str]] | None) -> None:
        for follower in self._followers:
            try:
                follower.notified(topics)
            except Exception:  # noqa: BLE001 - the others are to be woken
                log.exception("a worker cannot be woken; it polls")

    def _ask(self, connection: Any, sql: str) -> None:
        with self._line.calling(_ANSWER):
            result = connection.exec_(sql.encode())
        # COMMAND_OK or TUPLES_OK
        if result.status not in {1, 2}:
            raise FairQueueError(f"cannot {sql}: {result.error_message.decode(errors='replace')}")
