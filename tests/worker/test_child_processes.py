"""Handlers in child processes: they can be killed, and they leave nothing behind.

A child takes long to start: what can be told of one child is told in one test.
"""

import asyncio
import contextlib
import errno
import importlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import (
    AsyncWorker,
    Context,
    Delivery,
    InvalidArgument,
    Queue,
    ResultNotKept,
    Retry,
    RetryPolicy,
    Worker,
)
from sqlalchemy_fairqueue.errors import WorkerError
from sqlalchemy_fairqueue.worker import child_processes
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.worker import isolated
from tests.worker.conftest import MakeWorker
from tests.worker.helpers import (
    LATER,
    LONG_LEASE,
    MANY_HEARTBEATS,
    call,
    charged,
    example,
    forked,
    is_empty,
    retimed,
    send,
    until,
)

_PROCESS: Any = {"isolation": "process"}
_BOTH = pytest.mark.parametrize(
    "make", ["in threads", pytest.param("in a loop", marks=pytest.mark.whole)], indirect=True
)

Serve = Callable[..., Worker | AsyncWorker]


@pytest.fixture
def serve(queue: Queue, make: MakeWorker) -> Iterator[Serve]:
    """Start a worker of either class: ``serve(concurrency=1, timings={"cleanup": 9.0})``; it is stopped after the test.

    Its loop, if it has one, is of another thread.
    """
    with start_blocking_portal() as portal, contextlib.ExitStack() as stack:

        def start(**options: Any) -> Worker | AsyncWorker:
            worker = make(queue, **{"retry": LATER, "grace": timedelta(), **options})
            portal.call(call, worker.start)
            stack.callback(portal.call, call, worker.stop)
            return worker

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
    assert not queue._handlers


def test_what_another_process_would_not_find(queue: Queue, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker does not start with a function whose name means another one, by a further decorator."""
    queue.handler("a", isolation="process")(isolated.crash)
    monkeypatch.setattr(isolated, "crash", isolated.fail)
    with pytest.raises(WorkerError, match=r"kind 'a' of queue 'documents': .* outermost decorator"):
        Worker(engine, queue).start()


def test_a_daemonic_process(queue: Queue, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker in a process that may have no children says so when it starts."""
    queue.handler(**_PROCESS)(isolated.fail)
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]  # as multiprocessing does
    with pytest.raises(WorkerError, match="daemonic"):
        Worker(engine, queue).start()


_SLOW = """
import multiprocessing, pathlib, threading
folder = pathlib.Path(__file__).parent
if multiprocessing.parent_process() is not None:
    (folder / "importing").touch()
    while not (folder / "go").exists():
        threading.Event().wait(0.005)

def handle(delivery):
    pass
"""
_FAILING = """
import multiprocessing
if multiprocessing.parent_process():
    raise ImportError("only here")

def handle(delivery):
    pass
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Any]]:
    """Write and import a module that a child can import, too."""
    monkeypatch.syspath_prepend(tmp_path)
    names: list[str] = []

    def write(name: str, text: str) -> Any:
        (tmp_path / f"{name}.py").write_text(text)
        names.append(name)
        return importlib.import_module(name)

    yield write
    for name in names:
        del sys.modules[name]


_NAMED, _OTHER = RetryPolicy(bury_on=(RuntimeError,)), RetryPolicy(retry_on=(OSError,))
_MIDDLE = "in fail\n    raise _error_with_a_lock()\nRuntimeError: cannot be pickled"
_RETRIED = {
    "retry": "not yet",
    "exit": "SystemExit: a word",
    "generator": "nobody runs",
    "awaitable": "nobody awaits",
    "unpicklable": _MIDDLE,
}
"""How a handler ends that is tried again, and what the error of its message says."""
_RATED = ["raised", "returned", "class", "with a lock"]


_HEAD = """
from datetime import timedelta
from sqlalchemy_fairqueue import Context, Delivery, Queue
queue = Queue('documents')
"""


@pytest.mark.many(1)
def test_what_handlers_do(  # noqa: PLR0915, PLR0917 - one child does it all
    queue: Queue,
    engine: Engine,
    database: Database,
    tmp_path: Path,
    module: Callable[[str, str], Any],
    drain: MakeWorker,
) -> None:
    """What a handler returns, raises, says and does in a child means what it means in the worker.

    One child handles message after message; middleware goes around it in the worker's process.
    """
    seen: list[object] = []

    @queue.middleware
    def look(context: Context, proceed: Callable[[], Any]) -> Any:
        if context.delivery.kind != "rated":
            return proceed()
        try:
            result = proceed()
        except Retry as outcome:
            seen.append(outcome)
            raise
        seen.append(result)
        return result

    functions = {
        "rated": isolated.limit_rate,
        "pid": isolated.say_pid,
        "tenant": isolated.set_tenant,
        "settles": isolated.settle,
        "waits": isolated.wait_for_result,
        "signalled": isolated.ignore_signals,
        "failing": module("failing_to_import", _FAILING).handle,
        "page": module("page", f"{_HEAD}{example('isolation=')}").convert,
    }
    for kind, function in functions.items():
        queue.handler(kind, **_PROCESS)(function)
    for kind, policy in {"ends": None, "named": _NAMED, "other": _OTHER}.items():
        queue.handler(kind, retry=policy, **_PROCESS)(isolated.fail)
    costs = Queue("costs")
    costs.configure(engine, fair_by="cost")
    costs.handler(**_PROCESS)(isolated.cost_seven)
    costs.enqueue(engine, channel="a", payload=1)

    url, folder = engine.url.render_as_string(hide_password=False), {"folder": str(tmp_path)}
    ends = {how: send(engine, queue, {"how": how}, kind="ends")[0] for how in [*_RETRIED, "return", "release", "bury"]}
    send(engine, queue, {"how": "unpicklable"}, kind="named")
    send(engine, queue, {"how": "exit"}, kind="other")
    send(engine, queue, {"how": "away"}, kind="other", max_attempts=1)
    rated = send(engine, queue, *[{"how": how} for how in _RATED], kind="rated")
    pids = send(engine, queue, *[folder] * 3, kind="pid", ordering_key="schlüssel")
    tenants = send(engine, queue, *[folder] * 2, kind="tenant")
    send(engine, queue, {"url": url}, kind="settles")
    [later] = send(engine, queue, 1, kind="ends", delay=timedelta(hours=1))
    send(engine, queue, {"url": url, "message_id": later}, kind="waits", max_attempts=1)
    send(engine, queue, folder, kind="signalled")
    [failing] = send(engine, queue, 1, kind="failing")
    [paged] = send(engine, queue, {"upload": "a"}, kind="page")
    isolated.write.enqueue(engine, "a", path=str(tmp_path / "said"), amount=Decimal("1.50"))
    send(engine, isolated.jobs, {"path": 3}, kind="write")

    worker = drain(queue, isolated.jobs, costs, concurrency=1, retry=LATER)

    rows = database.rows("select id, error, attempts, dequeue_at - fq_now() > 3.5e9 as late from fq_message")
    left = {row.id: (row.attempts, row.late, row.error) for row in rows}
    for how, words in _RETRIED.items():
        attempts, late, error = left.pop(ends[how])
        assert (attempts, late) == (1, True)
        assert words in error
    assert [left.pop(one) for one in rated] == [(1, True, "slow down")] * 4
    assert left.pop(ends["release"]) == (0, True, None)
    assert "ImportError: only here" in left.pop(failing)[2]
    # All others are done.
    assert left.keys() == {later}
    assert paged not in left
    letters = {(one.kind, one.reason): one.error or "" for one in queue.dead_letters.list(engine)}
    assert letters.keys() == {
        ("ends", "no use"),
        ("named", "not retried: RuntimeError"),
        ("other", "not retried: SystemExit"),
        ("other", "attempts exhausted"),
        ("settles", "it said so"),
        ("waits", "attempts exhausted"),
    }
    assert "ValueError: the cause" in letters["ends", "no use"]
    assert (
        "HandlerWaitWarning: the handler of kind 'waits' waits for a result" in letters["waits", "attempts exhausted"]
    )
    plain = Retry(delay=timedelta(hours=1), error="slow down")
    assert sorted(map(str, seen)) == sorted(map(str, [plain, *[isolated.RateLimited(3600)] * 3]))
    [(pid, ordering_key)] = {tuple((tmp_path / f"pid-{one}-1").read_text().split()) for one in pids}
    assert (int(pid) != os.getpid(), ordering_key) == (True, "schlüssel")
    assert _are_gone(pid)
    assert [(tmp_path / f"tenant-{one}-1").read_text() for one in tenants] == ["nobody"] * 2
    assert (tmp_path / "ended-1").read_text() == f"{-signal.SIGTERM}"
    assert charged(database, "costs") == 7
    assert (tmp_path / "said").read_text() == "Decimal('1.50') True"
    assert [one.attempts for one in isolated.jobs.dead_letters.list(engine)] == [1]
    assert worker.stats.lost == 0


@pytest.mark.usefixtures("forked_children")
def test_a_slow_import_and_a_stop(
    queue: Queue, engine: Engine, database: Database, tmp_path: Path, module: Callable[[str, str], Any]
) -> None:
    """The time of a handler begins when its child has imported it; it learns of a stop, and may finish."""
    queue.handler("import", timeout=timedelta(minutes=5), **_PROCESS)(module("slow_to_import", _SLOW).handle)
    queue.handler("stop", **_PROCESS)(isolated.stop_when_told)
    send(engine, queue, 1, kind="import")
    with Worker(engine, queue, concurrency=1, housekeeping=False, grace=PATIENCE) as worker:
        until((tmp_path / "importing").exists, "it is imported")
        assert worker._runtime is not None
        [held] = worker._runtime.executor.running
        assert not held.time_over_at
        (tmp_path / "go").touch()
        until(lambda: worker.stats.completed == 1, "it is done")
        assert held.time_over_at
        send(engine, queue, {"folder": str(tmp_path)}, kind="stop", max_attempts=7)
        assert _said(tmp_path, "begun-1") == "7 False False False"
    assert (tmp_path / "told-1").exists()
    assert worker.stats.completed == 2
    assert is_empty(database)


@pytest.mark.usefixtures("forked_children")
def test_an_import_that_never_ends(
    queue: Queue, engine: Engine, database: Database, module: Callable[[str, str], Any]
) -> None:
    """A child that is not ready in time is killed, and the attempt has failed."""
    queue.handler(**_PROCESS)(module("slow_to_import", _SLOW).handle)
    send(engine, queue, 1)
    worker = retimed(Worker(engine, queue, retry=LATER, housekeeping=False), child_start=0.05)
    with worker:
        until(lambda: worker.stats.retried == 1, "it has failed")
    assert "was not ready after 0.05 s" in database.value("select error from fq_message")


_ONLY_HERE = """
from datetime import timedelta
from sqlalchemy_fairqueue import Bury, Retry

class Value:
    pass

class NoSuchFile(Bury):
    def __init__(self):
        super().__init__("no such file")

class Later(Retry):
    def __init__(self):
        super().__init__(delay=timedelta(hours=3), error="busy")
"""


@_BOTH
def test_what_the_worker_cannot_import(
    queue: Queue, engine: Engine, database: Database, serve: Serve, tmp_path: Path
) -> None:
    """An outcome means what its base class means, and a result is not kept: the work was done, and is not repeated."""
    (tmp_path / "only_here.py").write_text(_ONLY_HERE)
    queue.configure(engine, result_retention=timedelta(hours=1))
    queue.handler(**_PROCESS)(isolated.unknown_class)
    ids = send(engine, queue, *({"folder": str(tmp_path), "how": how} for how in ("NoSuchFile", "Later", "Value")))
    worker = serve(concurrency=1)
    until(lambda: (worker.stats.buried, worker.stats.retried, worker.stats.completed) == (1, 1, 1), "all have ended")
    [letter] = queue.dead_letters.list(engine)
    assert (letter.message_id, letter.reason) == (ids[0], "no such file")
    [later] = database.rows("select id, error, dequeue_at - fq_now() > 10000000000 as late from fq_message")
    assert tuple(later) == (ids[1], "busy", True)
    with pytest.raises(
        ResultNotKept, match="a Value cannot be sent from its child process: the worker cannot unpickle it"
    ):
        queue.result(engine, ids[2])


@_BOTH
@pytest.mark.usefixtures("forked_children")
def test_a_crash(queue: Queue, engine: Engine, serve: Serve, tmp_path: Path) -> None:
    """A child that crashes costs its message an attempt, one that dies while it waits none; the worker goes on."""
    says = {
        "kill": "was killed by signal 9 (SIGKILL)",
        "segfault": "was killed by signal 11 (SIGSEGV)",
        "exit": "exited with status 3",
    }
    queue.handler("crash", **_PROCESS)(isolated.crash)
    queue.handler("pid", **_PROCESS)(isolated.say_pid)
    crashes = {send(engine, queue, {"how": how}, kind="crash", max_attempts=1)[0]: how for how in says}
    worker = serve(concurrency=3)
    until(lambda: worker.stats.buried == 3, "they are dead letters")
    letters = {crashes[letter.message_id]: letter.error or "" for letter in queue.dead_letters.list(engine)}
    for how, words in says.items():
        assert "HandlerCrashed" in letters[how]
        assert words in letters[how]
    pids = []
    for done in 1, 2:
        [message_id] = send(engine, queue, {"folder": str(tmp_path)}, kind="pid")
        pids.append(int(_said(tmp_path, f"pid-{message_id}-1").split()[0]))
        until(lambda done=done: worker.stats.completed == done, "the next one is done")  # type: ignore[misc]
        if done == 1:
            os.kill(pids[0], signal.SIGKILL)
            until(lambda: _is_gone(pids[0]), "it has died")
    assert pids[0] != pids[1]
    assert worker.stats.retried == 0


@_BOTH
def test_no_process_left(
    queue: Queue, engine: Engine, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that cannot start a child costs an attempt, whatever the handler is retried on."""
    pipe, calls = child_processes._SPAWN.Pipe, []

    def first_fails() -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return pipe()

    monkeypatch.setattr(child_processes._SPAWN, "Pipe", first_fails)
    retry = RetryPolicy(first=timedelta(microseconds=1), retry_on=(KeyError,))
    queue.handler("pid", retry=retry, **_PROCESS)(isolated.say_pid)
    [message_id] = send(engine, queue, {"folder": str(tmp_path)}, kind="pid")
    worker = serve(concurrency=1)
    until(lambda: worker.stats.completed == 1, "it is done")
    assert (worker.stats.retried, worker.stats.buried) == (1, 0)
    assert _said(tmp_path, f"pid-{message_id}-2")


@_BOTH
@pytest.mark.usefixtures("forked_children")
def test_what_kills(queue: Queue, engine: Engine, database: Database, serve: Serve, tmp_path: Path) -> None:
    """A child is killed, with what it has started, when the time of its handler is over, its message is cancelled, its
    lease is lost, or the grace of a stop ends.
    """
    queue.handler("short", timeout=timedelta(milliseconds=300), **_PROCESS)(isolated.hang)
    queue.handler("long", **_PROCESS)(isolated.hang)

    def sent(name: str, kind: str = "long") -> int:
        (tmp_path / name).mkdir()
        return send(engine, queue, {"folder": str(tmp_path / name)}, kind=kind)[0]

    sent("timeout", "short")
    message_id = sent("cancel")
    # With the lease its wait goes, too: nobody wakes it any more.
    worker = serve(lease=LONG_LEASE, poll_interval=timedelta(milliseconds=50), timings=MANY_HEARTBEATS)
    cancelled = _said(tmp_path / "cancel", "begun-1")
    queue.cancel(engine, message_id)
    until(lambda: worker.stats.cancelled == 1, "it is counted")
    until(lambda: worker.stats.retried == 1, "it has failed")
    until(lambda: database.value("select count(*) from fq_message") == 1, "the cancelled message is gone")
    assert "HandlerTimeout" in database.value("select error from fq_message")
    until(lambda: _are_gone(cancelled), "both processes are gone")
    # It may have been killed before it could say anything.
    if (tmp_path / "timeout" / "begun-1").exists():
        until(lambda: _are_gone(_said(tmp_path / "timeout", "begun-1")), "both processes are gone")
    assert (worker.stats.timed_out, worker.stats.hung, worker.stats.buried) == (1, 0, 0)

    sent("lost")
    lost = _said(tmp_path / "lost", "begun-1")
    database.execute("delete from fq_lease")
    until(lambda: _are_gone(lost), "both processes are gone")

    message_id = sent("grace")
    pids = _said(tmp_path / "grace", "begun-1")
    if (stopping := worker.stop(timedelta())) is not None:
        asyncio.run(stopping)
    assert _is_gone(int(pids.split()[0]))
    until(lambda: _are_gone(pids), "what it started is gone")
    assert database.value("select lease_id is null and attempts = 0 from fq_message where id = :id", id=message_id)


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


@pytest.mark.parametrize(
    ("how", "handler"),
    [
        ("kill", "hang_without_threads"),
        ("leave a process", "hang"),
        pytest.param("kill", "hang", marks=pytest.mark.whole),
        pytest.param("leave", "hang", marks=pytest.mark.whole),
        pytest.param("leave", "hang_without_threads", marks=pytest.mark.whole),
    ],
)
def test_no_orphans(  # noqa: PLR0917 - fixtures
    queue: Queue, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, handler: str
) -> None:
    """When a worker's process is killed, or ends without a stop, no child is left, whatever its handler does."""
    if handler == "hang_without_threads" and sys.platform != "linux":
        pytest.skip("only Linux kills a process that runs no Python thread")
    send(engine, queue, {"folder": str(tmp_path)})
    (tmp_path / "program.py").write_text(_PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    words = [str(tmp_path / "program.py"), engine.url.render_as_string(hide_password=False), handler, how]
    with forked(*words, folder=tmp_path, whole=how == "leave") as process:
        pids = _said(tmp_path, "begun-1")
        if how == "kill":
            process.kill()
        else:
            (tmp_path / "leave").touch()
        assert process.wait(PATIENCE.total_seconds()) == (-signal.SIGKILL if how == "kill" else 0)
        until(lambda: _are_gone(pids), "no process is left")


def test_a_program_without_a_guard(queue: Queue, engine: Engine, database: Database, tmp_path: Path) -> None:
    """A child that imports a program which starts its worker unguarded starts no second worker, and says what to do."""
    send(engine, queue, {"folder": str(tmp_path)})
    (tmp_path / "program.py").write_text(_PROGRAM.replace('__name__ == "__main__"', "True"))
    url = database.url.render_as_string(hide_password=False)
    with forked(str(tmp_path / "program.py"), url, "say_pid", "run", folder=tmp_path) as process:
        until(lambda: database.value("select error from fq_message") is not None, "the attempt has failed")
        process.kill()
        complaints = process.communicate(PATIENCE.total_seconds())[1]
    assert "before it could begin; see its stderr" in database.value("select error from fq_message")
    assert "start it under if __name__ == '__main__':" in complaints
