"""Stops by signals that the application handles itself."""

import os
import signal
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from sqlalchemy_fairqueue import Context, Delivery, Queue, Worker
from tests.fixtures.database import Database
from tests.fixtures.forks import Fork
from tests.fixtures.options import PATIENCE
from tests.worker.helpers import is_empty, send, threads_of, until

_OWN_SIGNALS = """
import pathlib, signal, sys, threading
from sqlalchemy import create_engine
from sqlalchemy_fairqueue import Queue, Worker

queue = Queue("documents")

@queue.handler()
def handle(delivery, context):
    print("started", flush=True)
    while not context.stopping:
        threading.Event().wait(0.005)
    print("stopping", flush=True)
    while not pathlib.Path("go").exists():
        threading.Event().wait(0.005)

worker = Worker(create_engine(sys.argv[1]), queue, concurrency=1)

def stop(*_):
    worker.stop()
    print("told", flush=True)

signal.signal(signal.SIGTERM, stop)
worker.run()
print("returned", flush=True)
"""


def test_signal_handlers_of_the_application(queue: Queue, engine: Engine, database: Database, tmp_path: Path) -> None:
    """A program's own signal handler may call stop, also while a stop is under way."""
    send(engine, queue, 1)
    (tmp_path / "program.py").write_text(_OWN_SIGNALS)
    url = database.url.render_as_string(hide_password=False)
    with Fork(["python", "program.py", url], tmp_path, os.environ) as program:
        try:
            assert program.stdout.readline() == "started\n"
            program.send_signal(signal.SIGTERM)
            assert program.stdout.readline() == "stopping\n"
            program.send_signal(signal.SIGTERM)
            assert program.stdout.readline() == "told\n"
            (tmp_path / "go").touch()
            assert program.stdout.read() == "told\nreturned\n"
            assert program.wait(PATIENCE.total_seconds()) == 0
        finally:
            program.kill()
    assert is_empty(database)


@pytest.mark.parametrize("how", ["start", "run"])
def test_a_signal_handler_of_the_program_while_it_starts(queue: Queue, engine: Engine, how: str) -> None:
    """A stop that comes in the middle of a start, from the same thread, is not forgotten; a later one has its grace."""
    queue.handler()(lambda _: None)
    worker = Worker(engine, queue)
    threads: list[threading.Thread] = []

    def stop_at_once(*_: object) -> None:
        threads.append(threading.current_thread())
        worker.stop(timedelta())

    interrupted = threading.Event()

    def interrupt(*_: object) -> None:
        if not interrupted.is_set():
            interrupted.set()
            os.kill(os.getpid(), signal.SIGUSR1)

    # While it connects to look at the schema.
    event.listen(engine, "do_connect", interrupt)
    before = signal.signal(signal.SIGUSR1, stop_at_once)
    try:
        getattr(worker, how)()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert threads == [threading.current_thread()]
    assert not threads_of(worker.name)
    started, done = threading.Event(), threading.Event()

    @queue.handler("slow")
    def slow(_: Delivery, context: Context) -> None:
        started.set()
        until(lambda: context.stopping, "it is to stop")
        done.set()

    worker.start()
    send(engine, queue, 1, kind="slow")
    assert started.wait(PATIENCE.total_seconds())
    worker.stop(PATIENCE)
    assert done.is_set()
    assert worker.stats.completed == 1
