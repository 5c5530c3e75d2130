from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, NullPool, create_engine

from sqlalchemy_fairqueue import Queue, Worker
from tests.cli.conftest import Cli, only
from tests.cli.messages import QUEUE, Findings, bury, enqueue, lease, levels
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.worker.helpers import until


def test_queues_that_wait(findings: Findings, engine: Engine, clock: Clock) -> None:
    """Ready messages that nobody serves are a warning after a time, for which an option asks."""
    enqueue(engine, "a", "a")
    clock.advance(timedelta(minutes=10))
    lease(engine, 1)
    [served] = findings("queues")
    assert (served["level"], served["values"]["consumers"]) == ("warning", 1)
    assert served["values"]["oldest_ready_seconds"] == pytest.approx(600, abs=60)
    assert levels(findings("queues", "--max-age", "1h")) == ["ok"]


def test_what_holds_back_is_not_behind(findings: Findings, engine: Engine, clock: Clock) -> None:
    """Messages that a paused channel holds back are not behind, those that the queue's limit does are at it."""
    enqueue(engine, "a", "b")
    lease(engine, 1)
    QUEUE.pause(engine, "b")
    clock.advance(timedelta(minutes=4))
    assert levels(findings("queues", "--max-age", "1m")) == ["ok"]

    QUEUE.resume(engine, "b")
    assert [one["values"]["state"] for one in findings("queues", "--max-age", "1m")] == ["behind"]

    QUEUE.configure(engine, max_concurrency=1)
    assert [one["values"]["state"] for one in findings("queues", "--max-age", "1m")] == ["at its limit"]


def test_kinds_that_die(findings: Findings, engine: Engine, clock: Clock) -> None:
    """Deaths of the last hour are told by kind, with an error."""
    assert levels(findings("kinds")) == ["ok"]
    bury(engine, "a", "b", kind="parse")
    [found] = findings("kinds")
    assert found["values"] == {"queue": "documents", "kind": "parse", "died": 2, "tried": 0, "returned": 0}
    assert found["message"].endswith("2 died in the last hour: ValueError: no such page")
    assert levels(findings("kinds", "--queue", "other")) == ["ok"]
    clock.advance(timedelta(hours=2))
    assert levels(findings("kinds")) == ["ok"]


@pytest.mark.parametrize("crash", [False, True])
def test_kinds_that_fail_again(findings: Findings, engine: Engine, clock: Clock, *, crash: bool) -> None:
    """Messages that failed three times, or whose consumers died, and that go on trying are told by kind."""
    enqueue(engine, "a", kind="parse", max_attempts=9)
    for attempt in range(3):
        assert findings("kinds")[0]["values"].get("tried", 0) == 0, attempt
        held = lease(engine, 1)
        clock.advance(timedelta(minutes=10))
        QUEUE.retry(engine, [] if crash else held, error="OSError: away")
    if crash:
        assert lease(engine, 1)[0].attempt == 4
    [found] = findings("kinds")
    assert (found["values"]["tried"], found["level"]) == (1, "warning")


def test_server_figures(findings: Findings) -> None:
    """The connections and the sizes of the tables are told."""
    [connections], [sizes] = findings("connections"), findings("sizes")
    assert 0 < connections["values"]["used"] <= connections["values"]["most"]
    assert {"fq_message", "fq_history"} <= set(sizes["values"])
    assert all(size > 0 for size in sizes["values"].values())


def test_dead_letters_of_long_ago(cli: Cli, findings: Findings, engine: Engine, clock: Clock) -> None:
    """A queue is warned of while messages die, not for ever; messages for later are no calm."""
    bury(engine, "a")
    assert [one["values"]["state"] for one in findings("queues")] == ["dead letters"]
    clock.advance(timedelta(days=1))
    assert levels(findings("queues")) == ["ok"]
    assert "All is calm: nothing waits." in cli("stats").out
    enqueue(engine, "a", delay=timedelta(hours=1))
    assert "Nothing is ready; 1 message for later, or for the next attempt after a failure." in cli("stats").out


def test_paused_queues(cli: Cli, findings: Findings, engine: Engine) -> None:
    """A paused queue is a warning, with how to resume it. A warning is status 0, and with --strict status 1."""
    queue = Queue("it's off")
    queue.pause(engine)
    bury(engine, "a")

    other, paused = findings("queues")
    assert (other["level"], other["values"]["state"], other["values"]["dead"]) == ("warning", "dead letters", 1)
    assert (paused["level"], paused["remedy"]) == ("warning", """fairqueue resume --queue 'it'"'"'s off'""")
    assert [one["values"]["queue"] for one in findings("queues", "--queue", "documents")] == ["documents"]
    assert levels(findings("queues", "--queue", "nowhere")) == ["problem"]
    with only("queues"):
        assert (cli("doctor").status, cli("doctor", "--strict").status) == (0, 1)


_OWN = "worker-7:1234:00c0ffee"


def test_waits_without_a_listener(findings: Findings, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that waits while no session listens for it is told, by its name.

    A session with the name of a listener that executes other statements is one of a transaction pooler.
    """
    monkeypatch.setattr("sqlalchemy_fairqueue.doctor.findings.sleep", lambda _seconds: None)
    assert levels(findings("waits")) == ["ok"]
    for consumer, listener, statement, level in (
        (_OWN, "fairqueue listener 1234@worker-7", "listen fairqueue", "ok"),
        (_OWN, "fairqueue listener 1234@worker-7", "select 1", "warning"),
        (_OWN, "fairqueue listener 1235@worker-7", "listen fairqueue", "warning"),
        (_OWN, "somebody else", "listen fairqueue", "warning"),
        ("by a name of mine", "fairqueue listener 1235@worker-7", "listen fairqueue", "ok"),
        ("by a name of mine", "somebody else", "listen fairqueue", "warning"),
        (f"{'h' * 60}:1234:00c0ffee", f"fairqueue listener 1234@{'h' * 60}", "listen fairqueue", "ok"),
    ):
        database.execute("select fq_wait('documents', :consumer, null, 3600000000)", consumer=consumer)
        engine = create_engine(database.url, poolclass=NullPool, connect_args={"application_name": listener})
        with engine.connect() as connection:
            connection.exec_driver_sql(statement)
            [found] = findings("waits")
        assert found["level"] == level, (consumer, listener, statement)
        if level == "warning":
            assert found["message"].startswith(f"queue 'documents': consumer {consumer!r} waits for ")
            assert 0 < found["values"]["left_seconds"] <= 3600
        database.execute("update fq_lease set waiting_until = fq_now() - 1")
        assert levels(findings("waits")) == ["ok"]


def test_waits_of_a_worker(findings: Findings, engine: Engine, database: Database) -> None:
    """A worker's own listener is known by its name."""
    queue = Queue("documents")
    queue.handler()(lambda _: None)
    with Worker(engine, queue, housekeeping=False):
        until(lambda: database.value("select count(*) from fq_lease where waiting_until > fq_now()"), "it waits")
        assert levels(findings("waits")) == ["ok"]


def test_expired_leases(cli: Cli, findings: Findings, engine: Engine, clock: Clock) -> None:
    """Leases that ended with messages in them and that nobody took back are a problem; no calm is said of them."""
    [message_id] = enqueue(engine, "a")
    lease(engine)
    assert levels(findings("leases")) == ["ok"]
    assert "it is over" not in cli("messages", "show", str(message_id)).out

    clock.advance(timedelta(minutes=10))
    [found] = findings("leases")
    assert (found["level"], found["values"]["leases"]) == ("problem", 1)
    assert found["values"]["overdue_seconds"] == pytest.approx(300, abs=60)
    assert "has no consumer: 0 ready, 1 out with consumers that are gone" in cli("stats").out
    assert "it is over" in " ".join(cli("messages", "show", str(message_id)).out.split())


def test_unheard_signals(findings: Findings, database: Database, engine: Engine) -> None:
    """Very many notes that nobody has heard are a warning."""
    enqueue(engine, "a")
    assert findings("signals") == []

    database.execute(
        "insert into fq_signal (queue, channel_id) select queue, channel_id from fq_signal, generate_series(1, 10001)"
    )
    [found] = findings("signals")
    assert (found["level"], found["values"]["signals"]) == ("warning", 10002)


def test_history(cli: Cli, findings: Findings, engine: Engine, clock: Clock) -> None:
    """Days without a partition, and rows that went to the default one, are warnings until history prune.

    Not before the first housekeeping of a worker may have made them.
    """
    assert levels(findings("history")) == ["ok"]
    QUEUE.configure(engine, history=True)
    enqueue(engine, "a")
    QUEUE.complete(engine, lease(engine))

    [found] = findings("history")
    assert (found["level"], "no partition of the history yet" in found["message"]) == ("ok", True)
    clock.advance(timedelta(minutes=6))
    strays, missing = findings("history")
    assert levels([strays, missing]) == ["warning", "warning"]
    assert "1 row of the history in its default partition" in strays["message"]
    assert f"no partition for {clock.now():%Y-%m-%d}" in missing["message"]
    assert cli("history", "prune").status == 0
    [found] = findings("history")
    assert (found["level"], found["values"]["strays"], found["values"]["ahead"]) == ("ok", 0, 7)


def test_a_name_of_a_day_that_something_else_has(
    cli: Cli, findings: Findings, engine: Engine, database: Database
) -> None:
    """The housekeeping goes on under another name, and the finding names the table and its owner."""
    QUEUE.configure(engine, history=True)
    day = f"fq_history_p{datetime.now(UTC) + timedelta(days=1):%Y%m%d}"
    database.execute(f"create table {day} ()")
    assert cli("history", "prune").status == 0

    found, told = findings("history")

    assert (found["level"], found["values"]["ahead"]) == ("ok", 7)
    assert (told["level"], told["values"]) == ("warning", {"relations": [day], "owners": ["postgres"]})
