"""One application, each part of which logs in with a role of its own that was granted the part's work alone."""

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Context, Delivery, Queue, Retry, Worker
from tests.cli.conftest import Cli
from tests.roles.conftest import SCHEMA, Actor, Installation
from tests.worker.helpers import retimed, until

if TYPE_CHECKING:
    from collections.abc import Callable


def queue() -> Queue:
    """The application's queue, as each of its programs declares it."""
    return Queue("documents", schema=SCHEMA)


@dataclass(frozen=True, slots=True)
class Application:
    """The parts of an application, each of which logs in as a role of its own."""

    jobs: Installation
    cli: Cli
    web: Actor
    worker: Actor
    ops: Actor
    monitor: Actor

    def run(self, actor: Actor, *words: str) -> dict[str, Any]:
        """Run a command line as a role; it must succeed."""
        found = self.cli(*words, "--json", *actor.words)
        assert found.status == 0, (words, found.err)
        return dict(json.loads(found.out))

    def value(self, sql: str) -> Any:
        """A value that the owner reads."""
        return self.jobs.database.value(sql.replace("{schema}", SCHEMA))


@pytest.fixture
def application(jobs: Installation, bare_cli: Cli) -> Application:
    """An application whose operator has switched the history on."""
    kinds = {"web": "producer", "worker": "consumer", "ops": "operator", "monitor": "monitor"}
    made = Application(jobs, bare_cli, **{name: jobs.role(name, kind) for name, kind in kinds.items()})
    made.run(made.ops, "configure", "queue", "--queue", "documents", "--history", "--max-concurrency", "10")
    made.run(made.ops, "configure", "channel", "customer-1", "--queue", "documents", "--weight", "2")
    return made


def produce(engine: Engine) -> None:
    """Enqueue in sessions, replace, and cancel: six messages are left to handle, one of them fails."""
    with Session(engine) as session, session.begin():
        receipts = [
            queue().enqueue(session, channel=f"customer-{number % 3}", kind=kind, payload=number)
            for number, kind in enumerate(["parse"] * 6 + ["fails"])
        ]
        queue().enqueue(session, channel="customer-1", kind="parse", payload="x", delay=timedelta(hours=1), key="k")
    with Session(engine) as session, session.begin():
        queue().enqueue(session, channel="customer-1", kind="parse", payload="y", key="k", on_duplicate="replace")
        queue().cancel(session, receipts[0].message_id or 0)


def test_a_worker_with_a_history(application: Application) -> None:
    """What a producer enqueues a worker of a consumer serves: it waits, is woken, records and keeps the history."""
    web, worker = application.web.engine, application.worker.engine
    produce(web)
    served, seen = queue(), []

    @served.handler("parse")
    def parse(delivery: Delivery, session: Session, context: Context) -> None:
        session.connection()
        context.check()
        seen.append(delivery.payload)

    @served.handler("fails")
    def fails(_delivery: Delivery) -> None:
        raise Retry(delay=timedelta(hours=1))

    waiting = "select count(*) from {schema}.fq_lease where waiting_until is not null"
    with retimed(Worker(worker, served, concurrency=2), housekeeping_first=0.01, housekeeping_every=0.5):
        until(lambda: len(seen) == 6, "the worker has handled six messages")
        until(lambda: application.value(waiting), "the worker waits")
        queue().enqueue(web, channel="customer-9", kind="parse", payload="woken")
        until(lambda: "woken" in seen, "the worker was notified")
        recorded = "select count(*) from {schema}.fq_history where outcome = 'completed'"
        until(lambda: application.value(recorded) == 7, "the history has every completion")
        days = "select count(*) from pg_inherits where inhparent = '{schema}.fq_history'::regclass"
        until(lambda: application.value(days) > 5, "housekeeping has made the days to come")

    # The stop ended the wait.
    assert application.value(waiting) == 0
    stats = queue().stats(application.monitor.engine)
    assert (stats.ready + stats.scheduled, stats.leased) == (1, 0)
    assert [one.channel for one in queue().channels(application.monitor.engine)] == [
        "customer-0", "customer-1", "customer-2", "customer-9",
    ]  # fmt: skip


def test_an_operator(application: Application) -> None:
    """The operator looks after dead letters, pauses, purges and prunes; the monitor sees the figures of all that."""
    produce(application.web.engine)
    deliveries = queue().dequeue(application.worker.engine, limit=2)
    queue().bury(application.worker.engine, deliveries, reason="cannot be read")
    ops = application.ops
    assert len(application.run(ops, "dead", "list", "--queue", "documents")["dead_letters"]) == 2
    for words in (
        f"dead show {deliveries[0].message_id} --queue documents",
        f"dead redrive {deliveries[0].message_id} --queue documents",
        f"dead purge {deliveries[1].message_id} --queue documents --yes",
        "pause --queue documents",
        "purge customer-0 --queue documents --yes",
        "resume --queue documents",
        "history prune",
        "stats",
    ):
        application.run(ops, *words.split())
    for words in ("stats", "channels", "top --once", "roles"):
        application.run(application.monitor, *words.split())


def test_what_is_none_of_their_work(application: Application) -> None:
    """Each role is refused what its kind of work does not allow."""

    def enqueue(engine: Engine) -> object:
        return queue().enqueue(engine, channel="a", kind="parse", payload=1).message_id

    made = queue()
    forbidden: dict[Actor, list[Callable[[Engine], object]]] = {
        application.web: [made.dequeue, made.stats, made.dead_letters.list, made.pause, made.dead_letters.redrive],
        application.worker: [enqueue, made.pause, made.dead_letters.list, made.stats],
        application.monitor: [enqueue, made.dequeue, made.dead_letters.list, made.pause],
        application.ops: [enqueue, made.dequeue],
    }
    for actor, verbs in forbidden.items():
        for verb in verbs:
            with pytest.raises(ProgrammingError, match="permission denied for function"):
                verb(actor.engine)


def test_a_loader(jobs: Installation) -> None:
    """A loader loads through a stage of its own, that no other loader can read, fill or drop."""
    loader, other = jobs.role("loader", "loader"), jobs.role("other", "loader")

    def connect(actor: Actor) -> psycopg.Connection:
        url = actor.url.set(drivername="postgresql").render_as_string(hide_password=False)
        return psycopg.connect(url, autocommit=True)

    with connect(loader) as mine, connect(other) as theirs:
        row = mine.execute(f"select {SCHEMA}.fq_stage_schema(), {SCHEMA}.fq_make_stage(3600000000::bigint)").fetchone()
        assert row
        stage = f"{row[0]}.{row[1]}"
        with mine.cursor().copy(f"copy {stage} (attempt, channel, kind, content) from stdin (format csv)") as copy:
            copy.write("1,customer-1,parse,1\n1,customer-2,parse,2\n")
        refused = [
            f"insert into {stage} (attempt, channel, kind, content) values (1, 'a', 'b', '')",
            f"select content from {stage}",
            f"drop table {stage}",
            f"select {SCHEMA}.fq_drop_stage('{row[1]}')",
            f"select {SCHEMA}.fq_make_stage_channels('documents', '{row[1]}', array[1]::bigint[], 10, null::jsonb)",
        ]
        for statement in refused:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                theirs.execute(statement)
        made = f"select {SCHEMA}.fq_make_stage_channels('documents', '{row[1]}', array[1]::bigint[], 10, null::jsonb)"
        assert mine.execute(made).fetchone() == (2,)
        merge = (
            f"select merged, created from {SCHEMA}.fq_merge('documents', 'job', '{row[1]}', array[1]::bigint[], "
            "2::bigint, null::bigint, null::text, 'skip', 0::bigint, true)"
        )
        with mine.transaction():
            assert mine.execute(merge).fetchone() == (True, 2)
        found = mine.execute(f"select created from {SCHEMA}.fq_find_load('documents', 'job')").fetchone()
        assert found == (2,)
        assert mine.execute(f"select {SCHEMA}.fq_drop_stage('{row[1]}')").fetchone() == (True,)
    assert queue().stats(jobs.owner).ready == 2
