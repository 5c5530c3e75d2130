"""Stops of a worker: nothing is lost, and no attempt is counted that was not made."""

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Context, Delivery, Queue
from sqlalchemy_fairqueue.worker.timings import Prefetch
from tests.fixtures.database import Database
from tests.fixtures.forks import Fork
from tests.fixtures.options import PATIENCE
from tests.worker.conftest import StartWorker
from tests.worker.helpers import is_empty, send, until

_PROGRAM = """
import asyncio, os, signal, sys, threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy_fairqueue import AsyncWorker, Queue, Worker
from sqlalchemy_fairqueue.worker.executor import ThreadExecutor

url, marks, grace = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
queue = Queue("documents")
waits = threading.Event()
wait = ThreadExecutor.wait

async def say_and_wait(executor):
    waits.set()
    await wait(executor)

ThreadExecutor.wait = say_and_wait

def steps(delivery, context):
    (marks / f"started-{delivery.message_id}").touch()
    if delivery.payload in {"aside", "aside twice"}:
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    while not (marks / "go").exists():
        if context.stopping:
            (marks / "told").touch()
            if delivery.payload == "aside twice" and waits.wait(60):
                signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        yield

@queue.handler()
def handle(delivery, context):
    for _ in steps(delivery, context):
        threading.Event().wait(0.005)

times = {"grace": timedelta(seconds=grace), "lease": timedelta(hours=1)}

def timed(worker):
    options = worker._options
    worker._options = replace(options, timings=replace(options.timings, signal_again=float(sys.argv[5])))
    return worker

if sys.argv[4] == "in a loop":
    queue = Queue("documents")

    @queue.handler()
    async def handle_in_loop(delivery, context):
        if delivery.payload == "blocks":
            handle(delivery, context)
        for _ in steps(delivery, context):
            await asyncio.sleep(0.005)

    worker = timed(AsyncWorker(create_async_engine(url), queue, concurrency=1, **times))
    asyncio.run(worker.run(handle_signals=True))
else:
    timed(Worker(create_engine(url), queue, concurrency=1, **times)).run(handle_signals=True)
if sys.argv[6:]:
    (marks / "over").touch()
    threading.Event().wait()
(marks / "returned").touch()
"""


def test_stop_waits_for_handlers(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """A stop takes no more, and lets the handlers at work finish."""
    started, go = threading.Event(), threading.Event()
    stopping: list[bool] = []

    @queue.handler()
    def handle(_: Delivery, context: Context) -> None:
        started.set()
        until(go.is_set, "it may end")
        until(lambda: context.stopping, "it is told")
        stopping.append(context.stopping)

    send(engine, queue, 1, 2)
    worker = start(queue, concurrency=1)
    until(started.is_set, "a handler works")
    stop = threading.Thread(target=worker.stop)
    stop.start()
    go.set()
    stop.join(PATIENCE.total_seconds())
    assert stopping == [True]
    assert worker.stats.completed == 1
    # The other one was not tried.
    assert database.value("select attempts from fq_message where lease_id is null") == 0


def test_what_waits_is_given_back(
    queue: Queue, engine: Engine, database: Database, start: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that were taken ahead are given back at a stop, their attempts not counted."""
    # However slow the machine is, some are taken ahead, and wait.
    monkeypatch.setattr(Prefetch, "ahead", lambda *_: 5)
    started, go = threading.Event(), threading.Event()

    @queue.handler()
    def handle(_: Delivery) -> None:
        started.set()
        until(go.is_set, "it may end")

    send(engine, queue, *range(20))
    worker = start(queue, concurrency=1, timings={"stale_after": 100.0})
    until(lambda: started.is_set() and worker.stats.taken > 1, "one is at work, and some are taken ahead")
    stop = threading.Thread(target=worker.stop)
    stop.start()
    until(lambda: database.value("select count(*) from fq_message where lease_id is not null") == 1, "one is left")
    go.set()
    stop.join(PATIENCE.total_seconds())
    assert database.value("select count(*) from fq_message where lease_id is null and attempts = 0") == 19


def test_the_end_of_grace(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """A handler that does not end in time is left behind: its message is given back, and its commit refused."""
    database.execute("create table effect (message_id bigint)")
    started, go, ended = threading.Event(), threading.Event(), threading.Event()

    @queue.handler()
    def handle(delivery: Delivery, session: Session, context: Context) -> None:
        session.execute(text("insert into effect values (:id)"), {"id": delivery.message_id})
        started.set()
        until(go.is_set, "it may end")
        if context.lost:
            ended.set()

    send(engine, queue, 1)
    worker = start(queue, concurrency=1)
    until(started.is_set, "the handler works")
    worker.stop(timedelta())
    assert database.value("select count(*) from fq_message where lease_id is null and attempts = 0") == 1
    go.set()
    until(ended.is_set, "the handler has ended, and knows")
    until(lambda: not _handler_threads(worker.name), "its thread has ended")
    assert database.value("select count(*) from effect") == 0
    assert not is_empty(database)


def _handler_threads(name: str) -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(f"{name}-handler")]


Program = Callable[..., "Fork | subprocess.Popen[bytes]"]


@pytest.fixture
def program(database: Database, tmp_path: Path) -> Iterator[Program]:
    """A process that runs a worker; *whole*: one whose interpreter ends as that of a program does."""
    source = tmp_path / "program.py"
    source.write_text(_PROGRAM)
    url = database.url.render_as_string(hide_password=False)
    with contextlib.ExitStack() as stack:

        def run(
            grace: float, where: str = "in threads", again: float = 0.0, *then: str, whole: bool = False
        ) -> "Fork | subprocess.Popen[bytes]":
            words = [str(source), url, str(tmp_path), str(grace), where, str(again), *then]
            process = (
                subprocess.Popen([sys.executable, *words]) if whole else Fork(["python", *words], tmp_path, os.environ)
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield run


def test_a_second_signal_that_wakes_nobody(queue: Queue, engine: Engine, program: Program) -> None:
    """Nor does the end of the process wait for the grace period because nobody was woken for the second one."""
    send(engine, queue, "aside twice")
    assert program(600.0).wait(PATIENCE.total_seconds()) == 128 + signal.SIGTERM


def test_the_second_signal(queue: Queue, engine: Engine, tmp_path: Path, program: Program) -> None:
    """The second signal ends the process at once, whatever its handlers do, also where one blocks the loop."""
    [message_id] = send(engine, queue, "blocks")
    process = program(600.0, "in a loop")
    until((tmp_path / f"started-{message_id}").exists, "the handler works")

    def has_ended() -> bool:
        process.send_signal(signal.SIGTERM)
        return process.poll() is not None

    until(has_ended, "it ends")
    assert process.wait(PATIENCE.total_seconds()) == 128 + signal.SIGTERM
    assert not (tmp_path / "returned").exists()


@pytest.mark.parametrize("where", ["in threads", "in a loop"])
def test_a_signal(  # noqa: PLR0917 - fixtures
    queue: Queue, engine: Engine, database: Database, tmp_path: Path, program: Program, where: str
) -> None:
    """The first signal lets the handler finish, also one that the system hands to another thread; what was not begun
    is given back, uncounted.

    A supervisor that signals a process and its group ends no graceful stop.
    """
    message_id, _ = send(engine, queue, "aside" if where == "in threads" else 1, 2)
    process = program(600.0, where, 3600.0)
    until((tmp_path / f"started-{message_id}").exists, "the handler works")
    if where == "in a loop":
        process.send_signal(signal.SIGTERM)
    until((tmp_path / "told").exists, "it is told")
    # Another signal is never merged with the first.
    process.send_signal(signal.SIGINT)
    (tmp_path / "go").touch()
    assert process.wait(PATIENCE.total_seconds()) == 0
    assert (tmp_path / "returned").exists()
    assert database.value("select count(*) from fq_message where lease_id is null and attempts = 0") == 1


def test_signals_are_the_programs_again(queue: Queue, engine: Engine, tmp_path: Path, program: Program) -> None:
    """When the worker has stopped, a signal does again what it did before the worker ran."""
    [message_id] = send(engine, queue, 1)
    process = program(600.0, "in threads", 3600.0, "then more")
    until((tmp_path / f"started-{message_id}").exists, "the handler works")
    (tmp_path / "go").touch()
    process.send_signal(signal.SIGTERM)
    until((tmp_path / "over").exists, "the worker has stopped")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE.total_seconds()) == -signal.SIGTERM


_START = """
import asyncio, sys
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy_fairqueue import AsyncWorker, Queue, Worker

url, where = sys.argv[1:]
queue = Queue("documents")
queue.handler()(lambda delivery: None)
if where == "in a loop":
    asyncio.run(AsyncWorker(create_async_engine(url), queue).run(handle_signals=True))
else:
    Worker(create_engine(url), queue).run(handle_signals=True)
"""


@pytest.mark.parametrize("where", ["in threads", pytest.param("in a loop", marks=pytest.mark.whole)])
def test_a_signal_during_the_start(tmp_path: Path, where: str) -> None:
    """A worker that waits for a database that does not answer ends at the first signal, in good order."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql+psycopg://nobody@127.0.0.1:{silent.getsockname()[1]}/nothing"
        (tmp_path / "start.py").write_text(_START)
        with Fork(["python", "start.py", url, where], tmp_path, os.environ) as process:
            try:
                with silent.accept()[0]:
                    process.send_signal(signal.SIGTERM)
                    assert process.wait(PATIENCE.total_seconds()) == 0
            finally:
                process.kill()


def test_the_end_of_grace_by_a_signal(
    queue: Queue, engine: Engine, database: Database, tmp_path: Path, program: Program
) -> None:
    """A handler that never returns does not keep the process from ending with status 0."""
    [message_id] = send(engine, queue, 1)
    process = program(0.05, whole=True)
    until((tmp_path / f"started-{message_id}").exists, "the handler works")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE.total_seconds()) == 0
    assert database.value("select count(*) from fq_message where lease_id is null and attempts = 0") == 1


def test_what_the_end_of_grace_says(
    queue: Queue, engine: Engine, start: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """What a worker gives back at its stop it says once: its handlers, who are told so, have not failed."""
    started, go = threading.Event(), threading.Event()

    @queue.handler()
    def handle(_: Delivery, context: Context) -> None:
        started.set()
        until(go.is_set, "it may end")
        context.check()

    [message_id] = send(engine, queue, 1)
    worker = start(queue, concurrency=1)
    until(started.is_set, "the handler works")
    with caplog.at_level(logging.WARNING, "sqlalchemy_fairqueue.worker"):
        worker.stop(timedelta())
        go.set()
        until(lambda: not _handler_threads(worker.name), "its thread has ended")
    [said] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert f"gives back messages [{message_id}]" in said
