"""Handlers in child processes: they can be killed, and they leave nothing behind."""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, Delivery, InvalidArgument, Queue, RetryPolicy, Worker, WorkerError
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.worker import isolated
from tests.worker.helpers import LONG_LEASE, MANY_HEARTBEATS, is_empty, retimed, send, until

_AT_ONCE = RetryPolicy(first=timedelta(), cap=timedelta())


_LATER = RetryPolicy(first=timedelta(hours=1), cap=timedelta(hours=1), jitter=0)


_PROCESS: Any = {"isolation": "process"}


# Each starts processes: of most tests one variant runs, in threads or in a loop.
pytestmark = pytest.mark.many(1)


Serve = Callable[..., Worker | AsyncWorker]


@pytest.fixture(params=["in threads", "in a loop"])
def serve(request: pytest.FixtureRequest, queue: Queue, engine: Engine, async_engine: AsyncEngine) -> Iterator[Serve]:
    """Start a worker of either class: ``serve(concurrency=1, timings={"cleanup": 9.0})``; it is stopped after the test.

    The AsyncWorker has a thread with a loop of its own.
    """
    with contextlib.ExitStack() as stack:

        def start(timings: dict[str, float] | None = None, **options: Any) -> Worker | AsyncWorker:
            options = {"housekeeping": False, "retry": _LATER, "grace": timedelta(), **options}
            if request.param == "in threads":
                worker = retimed(Worker(engine, queue, **options), **(timings or {}))
                worker.start()
                stack.callback(worker.stop)
                return worker
            loop = asyncio.new_event_loop()
            aside = threading.Thread(target=loop.run_forever)
            aside.start()

            def end() -> None:
                loop.call_soon_threadsafe(loop.stop)
                aside.join(PATIENCE.total_seconds())
                loop.close()

            stack.callback(end)
            in_loop = retimed(AsyncWorker(async_engine, queue, **options), **(timings or {}))
            asyncio.run_coroutine_threadsafe(in_loop.start(), loop).result(PATIENCE.total_seconds())

            def stop() -> None:
                asyncio.run_coroutine_threadsafe(in_loop.stop(), loop).result(PATIENCE.total_seconds())

            stack.callback(stop)
            return in_loop

        yield start


def _said(folder: Path, what: str) -> str:
    """What a handler says, as soon as it does."""
    until((folder / what).exists, f"{what} is said")
    return (folder / what).read_text()


def _is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has reaped yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _are_gone(pids: str) -> bool:
    return all(_is_gone(int(pid)) for pid in pids.split())


def test_what_cannot_run_in_another_process(queue: Queue) -> None:
    """What a child could not be given, or could not find, is refused where it is declared."""

    def inner(_: Delivery) -> None: ...

    def with_session(_: Delivery, session: Session) -> None: ...

    async def asynchronous(_: Delivery) -> None: ...

    with pytest.raises(InvalidArgument, match="takes a session, and isolation is 'process'"):
        queue.handler("a", isolation="process")(with_session)
    for wrong, why in (inner, "top of a module"), (lambda _: None, "top of a module"), (asynchronous, "no plain"):
        with pytest.raises(InvalidArgument, match=why):
            queue.handler("a", isolation="process")(wrong)
    with pytest.raises(InvalidArgument, match="isolation is 'thread'"):
        queue.handler("a", isolation="thread")  # type: ignore[call-overload]  # that is the point
    assert not queue.handlers


def test_what_another_process_would_not_find(queue: Queue, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker does not start with a function whose name means another one, by a further decorator."""
    queue.handler("a", isolation="process")(isolated.crash)
    monkeypatch.setattr(isolated, "crash", isolated.fail)
    with pytest.raises(WorkerError, match=r"kind 'a' of queue 'documents': .* outermost decorator"):
        Worker(engine, queue).start()


def test_a_child_is_used_again(queue: Queue, engine: Engine, database: Database, serve: Serve, tmp_path: Path) -> None:
    """Messages are handled in another process, one after the other in the same one."""
    queue.handler(**_PROCESS)(isolated.say_pid)
    sent = send(engine, queue, *[{"folder": str(tmp_path)}] * 3)
    worker = serve(concurrency=1)
    until(lambda: is_empty(database), "all are done")
    [pid] = {int(_said(tmp_path, f"pid-{message_id}-1")) for message_id in sent}
    assert pid != os.getpid()
    until(lambda: worker.stats.completed == 3, "they are counted")


def test_a_context_variable_is_not_left(
    queue: Queue, engine: Engine, database: Database, serve: Serve, tmp_path: Path
) -> None:
    """The next message in the same process does not see what a handler has set in a context variable."""
    queue.handler(**_PROCESS)(isolated.set_tenant)
    sent = send(engine, queue, *[{"folder": str(tmp_path)}] * 2)
    serve(concurrency=1)
    until(lambda: is_empty(database), "all are done")
    assert [_said(tmp_path, f"tenant-{message_id}-1") for message_id in sent] == ["nobody"] * 2


@pytest.mark.many(4)
@pytest.mark.parametrize(
    ("how", "verb", "says"),
    [
        ("return", "completed", None),
        ("retry", "retried", "not yet"),
        ("class", "released", None),
        ("bury", "buried", "ValueError: the cause"),
        ("exit", "retried", "SystemExit: a word"),
        ("generator", "retried", "nobody runs"),
        ("awaitable", "retried", "nobody awaits"),
        ("unpicklable", "retried", "in fail\n    raise _error_with_a_lock()\nRuntimeError: cannot be pickled"),
    ],
)
def test_how_a_handler_ends(  # noqa: PLR0917 - fixtures
    queue: Queue, engine: Engine, database: Database, how: str, verb: str, says: str | None
) -> None:
    """What it returns and raises in a child means what it means in the worker; the error has the traceback."""
    queue.handler(**_PROCESS)(isolated.fail)
    send(engine, queue, {"how": how})
    with Worker(engine, queue, retry=_LATER, housekeeping=False) as worker:
        until(lambda: sum(getattr(worker.stats, one) for one in ("completed", "retried", "released", "buried")), how)
    assert getattr(worker.stats, verb) >= 1
    if says is not None:
        table = "fq_dead_letter" if verb == "buried" else "fq_message"
        assert says in database.value(f"select error from {table}")


def test_an_exception_of_a_child_is_known_by_its_class(queue: Queue, engine: Engine) -> None:
    """A policy means an exception of a child as well, and retries what is not the doing of its handler."""
    queue.handler("named", retry=RetryPolicy(bury_on=(RuntimeError,)), **_PROCESS)(isolated.fail)
    queue.handler("other", retry=RetryPolicy(retry_on=(OSError,)), **_PROCESS)(isolated.fail)
    send(engine, queue, {"how": "unpicklable"}, kind="named")
    send(engine, queue, {"how": "exit"}, kind="other")
    send(engine, queue, {"how": "away"}, kind="other", max_attempts=1)
    with Worker(engine, queue, concurrency=1, housekeeping=False) as worker:
        until(lambda: worker.stats.buried == 3, "all are dead letters")
    reasons = {letter.reason for letter in queue.dead_letters(engine)}
    assert reasons == {"not retried: RuntimeError", "not retried: SystemExit", "attempts exhausted"}


@pytest.mark.many
@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("kill", "was killed by signal 9 (SIGKILL)"),
        ("segfault", "was killed by signal 11 (SIGSEGV)"),
        ("exit", "exited with status 3"),
    ],
)
def test_a_crash(  # noqa: PLR0917 - fixtures
    queue: Queue, engine: Engine, database: Database, serve: Serve, how: str, says: str
) -> None:
    """A child that crashes costs its message an attempt, and the worker goes on with another child."""
    queue.handler(retry=RetryPolicy(first=timedelta(), cap=timedelta(), max_attempts=2), **_PROCESS)(isolated.crash)
    queue.handler("fine", **_PROCESS)(isolated.fail)
    send(engine, queue, {"how": how})
    worker = serve(concurrency=1)
    until(lambda: worker.stats.buried == 1, "it is a dead letter")
    error = database.value("select error from fq_dead_letter where attempts = 2")
    assert "HandlerCrashed" in error
    assert says in error
    send(engine, queue, {"how": "return"}, kind="fine")
    until(lambda: worker.stats.completed == 1, "the next one is done")


def test_a_timeout_kills(queue: Queue, engine: Engine, database: Database, serve: Serve, tmp_path: Path) -> None:
    """A child is killed when the time of its handler is over, with what it has started; the next handler can begin."""
    queue.handler("hang", timeout=timedelta(seconds=1), **_PROCESS)(isolated.hang)
    queue.handler("fine", **_PROCESS)(isolated.fail)
    send(engine, queue, {"folder": str(tmp_path)}, kind="hang")
    worker = serve(concurrency=1)
    until(lambda: worker.stats.retried == 1, "it has failed")
    assert "HandlerTimeout" in database.value("select error from fq_message where attempts = 1")
    if (tmp_path / "begun-1").exists():
        until(lambda: _are_gone(_said(tmp_path, "begun-1")), "both processes are gone")
    send(engine, queue, {"how": "return"}, kind="fine")
    until(lambda: worker.stats.completed == 1, "the next one is done")
    assert (worker.stats.timed_out, worker.stats.hung) == (1, 0)


def test_a_child_that_somebody_has_killed(queue: Queue, engine: Engine, tmp_path: Path) -> None:
    """A child that died while it waited costs no message an attempt; a stop leaves none."""
    queue.handler(**_PROCESS)(isolated.say_pid)
    with Worker(engine, queue, housekeeping=False, concurrency=1) as worker:
        pids = []
        for done in 1, 2:
            [message_id] = send(engine, queue, {"folder": str(tmp_path)})
            pids.append(int(_said(tmp_path, f"pid-{message_id}-1")))
            until(lambda done=done: worker.stats.completed == done, "it is counted")  # type: ignore[misc]
            if done == 1:
                os.kill(pids[0], signal.SIGKILL)
                until(lambda: _is_gone(pids[0]), "it has died")
    assert pids[0] != pids[1]
    until(lambda: _is_gone(pids[1]), "the stop has ended the other one")
    assert worker.stats.retried == 0


def test_a_daemonic_process(queue: Queue, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker in a process that may have no children says so when it starts."""
    queue.handler(**_PROCESS)(isolated.fail)
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]  # as multiprocessing does
    with pytest.raises(WorkerError, match="daemonic"):
        Worker(engine, queue).start()


def test_a_cancel_kills(queue: Queue, engine: Engine, database: Database, serve: Serve, tmp_path: Path) -> None:
    """A child is killed when its message is cancelled, and the message is gone."""
    queue.handler(**_PROCESS)(isolated.hang)
    [message_id] = send(engine, queue, {"folder": str(tmp_path)})
    worker = serve(lease=LONG_LEASE, timings=MANY_HEARTBEATS)
    pids = _said(tmp_path, "begun-1")
    queue.cancel(engine, message_id)
    until(lambda: is_empty(database), "the message is gone")
    until(lambda: _are_gone(pids), "both processes are gone")
    until(lambda: worker.stats.cancelled == 1, "it is counted")
    assert worker.stats.buried == 0


def test_a_lost_lease_kills(queue: Queue, engine: Engine, database: Database, serve: Serve, tmp_path: Path) -> None:
    """A child is killed when the lease of its message is lost."""
    queue.handler(**_PROCESS)(isolated.hang)
    send(engine, queue, {"folder": str(tmp_path)})
    serve(lease=LONG_LEASE, timings=MANY_HEARTBEATS)
    pids = _said(tmp_path, "begun-1")
    database.execute("delete from fq_lease")
    until(lambda: _are_gone(pids), "both processes are gone")


def test_the_end_of_grace_kills(queue: Queue, engine: Engine, database: Database, serve: Serve, tmp_path: Path) -> None:
    """A child is killed at the end of a stop's grace, and its message is given back uncounted after that."""
    queue.handler(**_PROCESS)(isolated.hang)
    send(engine, queue, {"folder": str(tmp_path)})
    worker = serve()
    pids = _said(tmp_path, "begun-1")
    if isinstance(worker, Worker):
        worker.stop(timedelta())
    else:
        assert worker._loop is not None
        asyncio.run_coroutine_threadsafe(worker.stop(timedelta()), worker._loop).result(PATIENCE.total_seconds())
    assert _is_gone(int(pids.split()[0]))
    until(lambda: _are_gone(pids), "what it started is gone")
    assert database.value("select count(*) from fq_message where lease_id is null and attempts = 0") == 1


def test_a_stop_tells(queue: Queue, engine: Engine, database: Database, tmp_path: Path) -> None:
    """A handler in a child learns that the worker stops, and may finish; its context has the worker's values."""
    queue.handler(**_PROCESS)(isolated.stop_when_told)
    send(engine, queue, {"folder": str(tmp_path)}, max_attempts=7)
    worker = Worker(engine, queue, housekeeping=False, grace=PATIENCE)
    with worker:
        assert _said(tmp_path, "begun-1") == "7 False False False"
    assert (tmp_path / "told-1").exists()
    assert worker.stats.completed == 1
    assert is_empty(database)


def test_a_child_settles_itself(queue: Queue, engine: Engine, database: Database) -> None:
    """A verb that a handler uses in a child counts, and the worker knows of it."""
    queue.handler(**_PROCESS)(isolated.settle)
    send(engine, queue, {"url": database.url.render_as_string(hide_password=False)})
    with Worker(engine, queue, housekeeping=False) as worker:
        until(lambda: worker.stats.buried or worker.stats.lost, "it is counted")
    assert (worker.stats.buried, worker.stats.lost) == (1, 0)
    assert database.value("select reason from fq_dead_letter") == "it said so"


def test_signals_to_all_processes(queue: Queue, engine: Engine, tmp_path: Path) -> None:
    """A SIGTERM or SIGINT to a child ends neither it nor is it inherited by what its handler starts."""
    queue.handler(**_PROCESS)(isolated.ignore_signals)
    send(engine, queue, {"folder": str(tmp_path)})
    with Worker(engine, queue, housekeeping=False) as worker:
        until(lambda: worker.stats.completed or worker.stats.retried, "it has ended")
    assert worker.stats.completed == 1
    assert _said(tmp_path, "ended-1") == f"{-signal.SIGTERM}"


_PROGRAM = """
import multiprocessing, pathlib, sys, threading
from sqlalchemy import create_engine
from sqlalchemy_fairqueue import Queue, Worker
from tests.worker import isolated

queue = Queue("documents")
queue.handler(isolation="process")(getattr(isolated, sys.argv[2]))

def serve(until):
    worker = Worker(create_engine(sys.argv[1]), queue, concurrency=1, housekeeping=False)
    if until is None:
        worker.run()
    worker.start()
    while not until.exists():
        threading.Event().wait(0.01)

if __name__ == "__main__":
    leave = pathlib.Path(__file__).with_name("leave")
    if sys.argv[3] == "leave a process":
        process = multiprocessing.get_context("fork").Process(target=serve, args=(leave,))
        process.start()
        process.join()
    else:
        serve(None if sys.argv[3] == "kill" else leave)
"""


@pytest.mark.many
@pytest.mark.parametrize(
    ("how", "handler"),
    [
        ("kill", "hang"),
        ("kill", "hang_without_threads"),
        ("leave", "hang"),
        ("leave", "hang_without_threads"),
        ("leave a process", "hang"),
    ],
)
def test_no_orphans(  # noqa: PLR0917 - fixtures
    queue: Queue, engine: Engine, database: Database, tmp_path: Path, how: str, handler: str
) -> None:
    """When a worker's process is killed, or ends without a stop, no child is left, whatever its handler does."""
    if handler == "hang_without_threads" and sys.platform != "linux":
        pytest.skip("only Linux kills a process that runs no Python thread")
    send(engine, queue, {"folder": str(tmp_path)})
    source = tmp_path / "program.py"
    source.write_text(_PROGRAM)
    url = database.url.render_as_string(hide_password=False)
    root = str(Path(__file__).parents[2])
    process = subprocess.Popen([sys.executable, source, url, handler, how], env={**os.environ, "PYTHONPATH": root})
    try:
        pids = _said(tmp_path, "begun-1")
        if how == "kill":
            process.kill()
        else:
            (tmp_path / "leave").touch()
        assert process.wait(PATIENCE.total_seconds()) == (-signal.SIGKILL if how == "kill" else 0)
        until(lambda: _are_gone(pids), "no process is left")
    finally:
        process.kill()
        process.wait()


def test_a_program_without_a_guard(queue: Queue, engine: Engine, database: Database, tmp_path: Path) -> None:
    """A child that imports a program which starts its worker unguarded starts no second worker, and says what to do."""
    send(engine, queue, {"folder": str(tmp_path)})
    source = tmp_path / "program.py"
    source.write_text(_PROGRAM.replace('__name__ == "__main__"', "True"))
    url = database.url.render_as_string(hide_password=False)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, source, url, "say_pid", "run"], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            until(lambda: database.value("select error from fq_message") is not None, "the attempt has failed")
        finally:
            process.kill()
        complaints = process.communicate()[1]
    assert "before it could begin; see its stderr" in database.value("select error from fq_message")
    assert "start it under if __name__ == '__main__':" in complaints
