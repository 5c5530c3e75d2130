"""A worker in a process of its own, to be stopped, frozen and killed.

It says through a pipe which stage it has reached, and waits there until it is told to go on. When the pipe ends,
because whoever started it is gone, it ends too.
"""

import asyncio
import contextlib
import functools
import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection as SqlConnection
from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, Delivery, Lease, Queue, Worker
from sqlalchemy_fairqueue.unit_of_work.operations import Verb
from sqlalchemy_fairqueue.worker.duties import Heartbeat
from sqlalchemy_fairqueue.worker.executor import Executor
from sqlalchemy_fairqueue.worker.leases import Buffer
from sqlalchemy_fairqueue.worker.runtime import Runtime
from sqlalchemy_fairqueue.worker.settler import Settler
from tests.chaos.business import Handlers
from tests.fixtures.drivers import async_url, named_connection, sync_url

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    Pipe = Connection[Any, Any]


@dataclass(slots=True)
class Stops:
    """Where to stop.

    Attributes:
        stages: Their names.
    """

    stages: set[str]
    _pipe: "Pipe"
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _go: threading.Event = field(default_factory=threading.Event)

    def pass_by(self, stage: str, *_: object) -> None:
        """Stop here if asked to, until told to go on."""
        if stage in self.stages and not self._go.is_set():
            self.tell(at=stage)
            self._go.wait()

    def obey(self) -> None:
        """Go on when told to; end when nobody can tell any more."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._pipe.recv()
                self._go.set()
        os._exit(3)

    def tell(self, **what: Any) -> None:
        """Say something to whoever started this."""
        with self._lock:
            self._pipe.send(what)


def _around(owner: type, name: str, before: Callable[..., None] | None, after: Callable[..., None] | None) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(self: Any, *arguments: Any, **named: Any) -> Any:
        if before is not None:
            before(*arguments)
        result = original(self, *arguments, **named)
        if after is not None:
            after(*arguments)
        return result

    setattr(owner, name, wrapped)


def _stop_inside_the_worker(stops: Stops, engine: Engine) -> None:
    """Stages that no handler sees."""
    stage = stops.pass_by

    def leaving(_: object, decisions: Any) -> None:
        if decisions[0] is not None and decisions[0].verb is Verb.COMPLETE:
            stage("committed" if decisions[0].sent else "returned")

    def sent(_: object, verb: Verb, *__: object) -> None:
        if verb is Verb.COMPLETE:
            stage("completed")

    _around(Buffer, "extend", lambda *_: stage("taken"), None)
    _around(Executor, "_finish", leaving, None)
    _around(Settler, "write", None, sent)
    _around(Heartbeat, "_extend", lambda *_: stage("extending"), lambda *_: stage("extended"))
    _around(Runtime, "start", None, lambda *_: stops.tell(launched=True))
    _around(Runtime, "stop_fetching", None, lambda *_: stage("stopping"))
    _around(Settler, "stop", lambda *_: stage("leaving"), None)

    def committing(connection: SqlConnection) -> None:
        # The settlement has been executed, its transaction is not committed yet. The worker's own connections have an
        # engine of their own, with the same listeners.
        if connection.engine is engine:
            stage("committing")

    event.listen(engine, "commit", committing)


def _try_verbs(queue: Queue, engine: Engine, delivery: Delivery) -> dict[str, str]:
    """Say what becomes of every verb: asked of the worker, and of the database, which does not track leases."""
    held = delivery.lease
    bare = replace(delivery, lease=Lease(held.id, held.consumer, held.expires_at))

    def in_session(given: Delivery) -> None:
        with Session(engine) as session, session.begin():
            queue.complete(session, given)

    outcomes = {}
    for name, given in ("tracked", delivery), ("bare", bare):
        for verb in ("complete", "retry", "release", "bury", "extend", "commit"):
            try:
                in_session(given) if verb == "commit" else getattr(queue, verb)(engine, given)
            except Exception as error:  # noqa: BLE001 - it is what was asked for
                outcomes[f"{verb} {name}"] = type(error).__name__
    return outcomes


def main(
    pipe: "Pipe",
    log: str,
    *,
    url: str,
    name: str,
    stops: Sequence[str] = (),
    asynchronous: bool = False,
    verbs: bool = False,
    concurrency: int = 2,
    lease: float = 1.0,
    grace: float = 5.0,
    housekeeping: bool = False,
) -> None:
    """Run a worker until a signal ends it. *verbs*: tell what becomes of each verb after an effect."""
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    pipe_stops = Stops(set(stops), pipe)
    threading.Thread(target=pipe_stops.obey, daemon=True).start()
    options: dict[str, Any] = {"concurrency": concurrency, "housekeeping": housekeeping}
    options |= {"lease": timedelta(seconds=lease), "grace": timedelta(seconds=grace)}
    named = {"application_name": name, "connect_timeout": 10}
    business = create_engine(url, connect_args=named, pool_size=concurrency)
    queue = Queue("documents")

    def pass_by(stage: str, delivery: Delivery) -> None:
        pipe_stops.pass_by(stage)
        if verbs and stage == "effected":
            pipe_stops.tell(verbs=_try_verbs(queue, business, delivery))

    Handlers(business, pass_by).declare(queue, asynchronous=asynchronous)
    worker: Worker | AsyncWorker
    if asynchronous:
        on = async_url(make_url(url))
        engine = create_async_engine(on, connect_args=named_connection(on, name, seconds=10), pool_size=concurrency)
        _stop_inside_the_worker(pipe_stops, engine.sync_engine)
        worker = AsyncWorker(engine, queue, **options)
        asyncio.run(worker.run(handle_signals=True))
    else:
        sync_engine = create_engine(sync_url(make_url(url)), connect_args=named, pool_size=concurrency)
        _stop_inside_the_worker(pipe_stops, sync_engine)
        worker = Worker(sync_engine, queue, **options)
        worker.run(handle_signals=True)
    pipe_stops.tell(stopped=worker.stats.as_dict())
