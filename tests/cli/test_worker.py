import json
import re
import shlex
import signal
import socket
from collections.abc import Callable
from datetime import timedelta

import httpx
import pytest

from sqlalchemy_fairqueue import Queue, Rate
from tests.cli.conftest import PROGRAM, Cli
from tests.cli.messages import QUEUE as MESSAGES_QUEUE
from tests.cli.messages import enqueue
from tests.cli.processes import outcome
from tests.cli.shops import QUEUE, TASKS, THREADS, Shop, stopped, until_listening
from tests.cli.test_target import url_of
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.worker.helpers import until

Module = Callable[[str], str]

_PATIENT = (
    QUEUE
    + """
from threading import Event
from sqlalchemy import text

@queue.handler("parse")
def parse(delivery, session, context):
    session.execute(text("select pg_advisory_xact_lock(8)"))
    while not context.stopping:
        Event().wait(0.01)
    session.execute(text("select pg_advisory_xact_lock(9)"))
    if delivery.payload == "forever":
        Event().wait()
    session.execute(text("insert into parsed values (:id)"), {"id": delivery.message_id})
"""
)
"""It holds the lock 8 while it works, and also 9 when it has seen that its worker is stopping."""


_HOLDS = (
    "select 1 from pg_locks where locktype = 'advisory' and objid = :lock "
    "and database = (select oid from pg_database where datname = current_database())"
)


@pytest.mark.parametrize(("source", "words"), [(THREADS, []), (TASKS, ["--async"])])
def test_a_worker(shop: Shop, source: str, words: list[str]) -> None:
    """It calls the handlers until SIGTERM, ends with 0, logs to stderr, and tells what it did as a document."""
    ids = enqueue(shop.engine, *"abcde")

    with shop.worker(source, "--json", *words) as process:
        shop.waits.until("select 1 from parsed having count(*) = 5")
        found = stopped(process)

    assert found.status == 0, found.err
    assert found.document["queues"] == ["documents"]
    assert found.document["stats"]["completed"] == len(ids)
    assert f"worker {found.document['worker']} started on ['documents']" in found.err
    assert shop.waiting() == []


def test_it_says_what_it_left(shop: Shop) -> None:
    """A drained worker names the messages that wait for a rate or for their time; its status is 0 all the same."""
    MESSAGES_QUEUE.configure(shop.engine, rate=Rate(1, per=timedelta(hours=1)))
    enqueue(shop.engine, "a", "b", "c")
    enqueue(shop.engine, "later", delay=timedelta(days=1))
    document = outcome(shop.worker(TASKS, "--drain", "--json", "--async"))
    [left] = json.loads(document.out)["left"]
    assert (document.status, left["ready"], left["scheduled"]) == (0, 2, 1)
    reasons = {one["waits_for"]: (one["messages"], one["channels"], one["first_at"] is None) for one in left["reasons"]}
    assert reasons == {"queue rate": (2, 2, False), "scheduled": (1, 1, True)}

    found = outcome(shop.worker(TASKS, "--drain", "--async"))
    assert found.status == 0
    assert "left in queue documents: 2 ready, 1 scheduled" in found.out
    assert "queue rate: 2 in 2 channels; the first may go at 2" in found.out
    assert "scheduled: 1 in 1 channel" in found.out


def test_its_log_names_a_command_that_runs(
    shop: Shop, bare_cli: Cli, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that shows a traceback runs as it is pasted from the log, without an environment. The error of a
    handler is text that commands no terminal.
    """
    made = f"create_engine({url_of(database)!r}, poolclass=NullPool)"
    engine = f"from sqlalchemy import NullPool, create_engine\nengine = {made}\n"
    [message_id] = enqueue(shop.engine, "a", kind="break", max_attempts=1)
    found = outcome(shop.worker(THREADS + engine, "--drain"))
    assert (r"red \x1b[31m ink" in found.err, "\x1b" in found.err) == (True, False)
    [command] = re.findall("traceback: fairqueue (.*)", found.err)
    monkeypatch.delenv("FAIRQUEUE_DATABASE_URL")
    shown = bare_cli(*shlex.split(command))
    assert (shown.status, "ValueError" in shown.out) == (0, True), shown.err
    assert re.fullmatch(rf"dead show {message_id} --app app_\w+:queue", command)


def test_a_child_process(shop: Shop) -> None:
    """A handler of an application's module runs in a child process of the command."""
    source = f"""{QUEUE}
import multiprocessing

@queue.handler("parse", isolation="process")
def parse(delivery):
    assert multiprocessing.parent_process() is not None
"""
    enqueue(shop.engine, *"ab")
    found = outcome(shop.run("worker", f"{shop.write(source)}:queue", "--drain", "--json", program=PROGRAM))
    assert (found.status, json.loads(found.out)["stats"]["completed"]) == (0, 2), found.err


def test_a_log_of_objects(shop: Shop) -> None:
    """With --log-format json each line of the log is an object with the fields of its record; it ends by itself."""
    enqueue(shop.engine, *"abcde")
    found = outcome(shop.worker(THREADS, "--drain", "--log-format", "json", "--name", "w1"))
    assert (found.status, found.out, shop.waiting()) == (0, "", [])
    lines = [json.loads(line) for line in found.err.splitlines()]
    # Its housekeeping writes lines of its own where the worker runs long enough for it.
    assert [lines[end]["message"].split(" ")[2] for end in (0, -1)] == ["started", "stopped:"]
    assert {(line["level"], line["worker"]) for line in lines} == {("info", "w1")}


def test_ctrl_c_stops_it_too(shop: Shop) -> None:
    """SIGINT stops as SIGTERM does; without --json stdout stays empty."""
    with shop.worker(THREADS, "--no-listen", "--log-level", "warning") as process:
        # By then it hears both signals.
        shop.waits.until(
            "select 1 from pg_stat_activity"
            " where datname = current_database() and query like '%fq_dequeue%' and pid <> pg_backend_pid()"
        )
        found = stopped(process, signal.SIGINT)

    assert (found.status, found.out, found.err) == (0, "", "")


def test_the_first_signal_lets_handlers_finish(shop: Shop, database: Database) -> None:
    """After the first signal nothing more is taken, and what is at work ends well."""
    first, second = enqueue(shop.engine, "a", "a")

    with shop.worker(_PATIENT, "--concurrency", "1", "--json") as process:
        shop.waits.until(_HOLDS, lock=8)
        found = stopped(process)

    assert found.status == 0
    assert database.value("select id from parsed") == first
    assert shop.waiting() == [(second, 0, None)]


def test_the_second_signal_ends_it_at_once(shop: Shop) -> None:
    """A second signal does not wait for handlers."""
    enqueue(shop.engine, "a", payload="forever")

    with shop.worker(_PATIENT, "--grace", "1h") as process:
        shop.waits.until(_HOLDS, lock=8)
        until_listening(process)
        process.send_signal(signal.SIGTERM)
        shop.waits.until(_HOLDS, lock=9)

        def has_ended() -> bool:
            # At first these repeat the first one.
            process.send_signal(signal.SIGINT)
            return process.poll() is not None

        until(has_ended, "it ends")
        assert process.returncode == 128 + signal.SIGINT


def test_grace(shop: Shop, connect: Connect) -> None:
    """What does not end within the grace period is given back, its attempt not counted."""
    [message_id] = enqueue(shop.engine, "a")
    connect().exec_driver_sql("select pg_advisory_lock(7)")

    with shop.worker(THREADS, "--grace", "100ms") as process:
        shop.until_handling()
        found = stopped(process)

    assert found.status == 0
    assert "stops with 1 handler(s) still at work" in found.err
    assert shop.waiting() == [(message_id, 0, None)]


def test_several_queues(shop: Shop) -> None:
    """Several queues are served, each by its own handlers, also those of modules that are imported besides."""
    other = shop.write("from sqlalchemy_fairqueue import Queue\nqueue = Queue('other')\n")
    handlers = shop.write(
        f"from {other} import queue\nfrom sqlalchemy import text\n"
        "@queue.handler('parse')\n"
        "def parse(delivery, session):\n"
        "    session.execute(text('insert into parsed values (-1)'))\n"
    )
    enqueue(shop.engine, "a")
    enqueue(shop.engine, "a", queue=Queue("other"))

    with shop.worker(THREADS, f"{other}:queue", "--import", handlers, "--json", "-c", "2") as process:
        shop.waits.until("select 1 from parsed having count(*) = 2 and min(id) = -1")
        assert stopped(process).document["queues"] == ["documents", "other"]


def test_what_cannot_be_worked_with(cli: Cli, module: Module) -> None:
    """A worker that could not work does not start: status 2 with what to do."""
    for source, words, complaint in (
        (THREADS, ["--session-factory", "json:nothing"], "there is no 'nothing' in module json"),
        (THREADS, ["--session-factory", "json:__name__"], "is a str, which cannot be called; give a sessionmaker"),
        (THREADS, ["--prefetch", "501"], "prefetch is 501"),
        (THREADS, ["--name", ""], "name"),
        (QUEUE, [], "has no handlers; declare them with @queue.handler(...)"),
        ("queue = 7", [], "is a int, not a Queue; it has no Queue; make one"),
        (THREADS, ["--import", "nowhere_at_all"], "there is no module 'nowhere_at_all'"),
        (THREADS, ["--concurrency", "0"], "concurrency is 0; give an int from 1"),
        (THREADS, ["--lease", "1ms"], "lease is "),
        (THREADS, ["--log-level", "loud"], "--log-level"),
        (THREADS, ["--sync-session-factory", "json:loads"], "--sync-session-factory is for --async"),
        (THREADS, ["--worker-engine", "json:loads"], "--worker-engine is for --async"),
        (TASKS, ["--worker-engine", "json:loads"], "'json:loads' is a function, not an Engine"),
        (TASKS, ["--threads"], "is async, and this worker calls handlers in threads"),
        (THREADS, ["--schema", "x"], "No such option"),
    ):
        found = cli("worker", f"{module(source)}:queue", "--json", *words)
        assert (found.status, found.error["kind"]) == (2, "usage")
        assert complaint in found.err
    assert cli("worker").status == 2


@pytest.mark.parametrize("driver", [None, "asyncpg"])
def test_a_database_that_is_away(bare_cli: Cli, module: Module, driver: str | None) -> None:
    """A worker whose database is away when it starts says so, without the password: status 3. Drivers such as asyncpg
    raise the system's errors as they are.
    """
    url, source, words = "u:s3cret@127.0.0.1:1/x", THREADS, ["--json"]
    if driver is None:
        words += ["--database-url", f"postgresql://{url}"]
    else:
        pytest.importorskip(driver)
        source = f"from sqlalchemy.ext.asyncio import create_async_engine as create\n{TASKS}"
        source += f"\nengine = create('postgresql+{driver}://{url}')\n"
    found = bare_cli("worker", f"{module(source)}:queue", *words)
    assert (found.status, found.error["kind"]) == (3, "database_away")
    assert "cannot reach postgresql://u@127.0.0.1:1/x" in found.error["message"]
    assert "s3cret" not in found.err + found.out


def _probe(port: int, path: str) -> tuple[int, str]:
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE.total_seconds())
    except httpx.TransportError:
        return 0, ""
    return answer.status_code, answer.text


def test_probes(shop: Shop) -> None:
    """With --http it answers probes while it works; pages that are none are 404."""
    with shop.worker(THREADS, "--http", "127.0.0.1:0") as process:
        assert process.stderr is not None
        told = (re.search(r"/healthz and /readyz are at http://127\.0\.0\.1:(\d+)", line) for line in process.stderr)
        port = int(next(found[1] for found in told if found))
        until(lambda: _probe(port, "/readyz")[0] == 200, "it is ready")
        assert json.loads(_probe(port, "/healthz")[1]) == {"alive": True, "ready": True, "problems": []}
        assert _probe(port, "/readyz?verbose")[0] == 200
        assert _probe(port, "/other")[0] == 404
        assert 'fairqueue_worker_events_total{event="taken"' in _probe(port, "/metrics")[1]
        found = stopped(process)
    assert found.status == 0, found.err
    assert _probe(port, "/healthz")[0] == 0


def test_an_address_that_is_taken(shop: Shop) -> None:
    """The command says so, and does not start."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = outcome(shop.worker(THREADS, "--http", str(port)))
    assert found.status == 2
    assert f"127.0.0.1:{port} cannot be served" in found.err
