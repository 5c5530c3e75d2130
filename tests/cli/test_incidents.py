"""A night on call: what goes wrong, the first command that one types, its answer, and the remedy that it names."""

import shlex
from datetime import timedelta
from typing import Any

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Engine

from sqlalchemy_fairqueue import Queue, Worker
from tests.cli.conftest import Cli
from tests.cli.messages import QUEUE, Findings, enqueue, lease, levels
from tests.cli.processes import Outcome, ended
from tests.cli.shops import THREADS, Shop
from tests.cli.test_installation import role
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.worker.helpers import until


def shown(cli: Cli, message_id: int, *words: str) -> dict[str, Any]:
    """The document of a message."""
    document: dict[str, Any] = cli("messages", "show", str(message_id), "--json", *words).document
    return document


def obeyed(cli: Cli, advice: str, **filled: str) -> Outcome:
    """Paste the command that an answer names, with what it leaves open filled in."""
    command = advice.partition("fairqueue ")[2].partition("'")[0]
    return cli(*(filled.get(word, word) for word in shlex.split(command)))


def handling(kind: str) -> Queue:
    """The queue in the code of a worker that knows this kind alone."""
    queue = Queue("documents")
    queue.handler(kind)(lambda _: None)
    return queue


def test_a_paused_tenant(cli: Cli, engine: Engine) -> None:
    """A tenant's job does not run: its message and its channel say that it is paused, since when, and by whom."""
    assert lease(engine) == []
    [message_id] = enqueue(engine, "customer-7")
    cli("pause", "customer-7", "--by", "dana")
    found = shown(cli, message_id)
    [channel] = cli("channels", "customer-7", "--json").document["channels"]
    assert (found["waits_for"], found["paused_by"], channel["waits_for"]) == ("paused", "dana", "paused")
    assert found["paused_at"] == channel["paused_at"] is not None
    QUEUE.admin.record_audit(engine, "pause", by="erin", channel="customer-7")  # a pause that changed nothing
    assert shown(cli, message_id)["paused_by"] == "dana"
    assert "held back: 1 message ready" in cli("stats").out
    assert cli("resume", "customer-7").status == 0
    assert [one.message_id for one in lease(engine)] == [message_id]


def test_the_limit_of_the_tenant(cli: Cli, engine: Engine, clock: Clock) -> None:
    """A tenant has as many messages out as it may: the one that runs is named, and for how long it has run."""
    QUEUE.configure(engine, history=True)
    cli("configure", "channel", "customer-7", "--max-concurrency", "1")
    running, waiting = enqueue(engine, "customer-7", "customer-7")
    lease(engine)
    clock.advance(timedelta(minutes=4))
    found = shown(cli, waiting)
    assert (found["waits_for"], found["limit_used"], found["limit_most"]) == ("own limit", 1, 1)
    assert found["longest_out"]["message_id"] == running
    for words in (["messages", "show", str(waiting)], ["channels", "customer-7"]):
        assert f"message {running}, parse, for 4m" in cli(*words).out
    cli("configure", "channel", "customer-7", "--max-concurrency", "2")
    assert [one.message_id for one in lease(engine)] == [waiting]


def test_the_rate_of_the_tenant(cli: Cli, engine: Engine, clock: Clock) -> None:
    """A tenant has used up its rate: it is told when the next message may go, and a higher rate lets it go now."""
    cli("configure", "channel", "customer-7", "--queue", "documents", "--rate", "1/h")
    _, waiting = enqueue(engine, "customer-7", "customer-7")
    lease(engine)
    clock.advance(timedelta(minutes=4, seconds=30))
    assert (shown(cli, waiting)["waits_for"], shown(cli, waiting)["waits_until"] is None) == ("rate", False)
    for words in (["messages", "show", str(waiting)], ["channels", "customer-7"]):
        assert "rate, next in 55m" in cli(*words).out
    cli("configure", "channel", "customer-7", "--rate", "none")
    assert [one.message_id for one in lease(engine)] == [waiting]


def test_the_limit_of_the_queue(cli: Cli, findings: Findings, engine: Engine) -> None:
    """Other tenants have all that the queue may have out: they are named, and doctor's command raises the limit."""
    QUEUE.configure(engine, max_concurrency=3)
    enqueue(engine, "b", "c", "c")
    lease(engine)
    [waiting] = enqueue(engine, "customer-7")
    found = shown(cli, waiting)
    assert (found["waits_for"], found["limit_most"]) == ("queue limit", 3)
    assert [(one["channel"], one["leased"]) for one in found["taken_by"]] == [("c", 2), ("b", 1)]
    assert "at its limit: 3 of 3" in cli("stats", "--json").document["summary"]
    [told] = findings("queues")
    assert obeyed(cli, told["remedy"], N="4").status == 0
    assert [one.message_id for one in lease(engine)] == [waiting]


def test_a_shared_limit(cli: Cli, engine: Engine) -> None:
    """Another queue has used up what both draw from: the limit and that queue are named, and the limit can grow."""
    mails, here = Queue("mails"), ("--queue", "documents")
    cli("configure", "limit", "api", "--max-concurrency", "3")
    for queue, channels in ((mails, "yy"), (QUEUE, "b")):
        queue.configure(engine, limits=["api"])
        enqueue(engine, *channels, queue=queue)
        lease(engine, queue=queue)
    [waiting] = enqueue(engine, "customer-7")
    found = shown(cli, waiting, *here)
    assert (found["waits_for"], found["shared_limit"]) == ("shared limit", "api")
    assert found["taken_by_queues"] == [{"queue": "mails", "leased": 2}]
    assert {"shared limit api", "queue mails: 2, b: 1"} <= set(cli("channels", "customer-7", *here).rows()[1])
    [one] = cli("channels", "customer-7", *here, "--json").document["channels"]
    assert (one["waits_for"], one["shared_limit"]) == ("shared limit", "api")
    assert cli("limits", "--json").document["limits"][0]["current_concurrency"] == 3
    cli("configure", "limit", "api", "--max-concurrency", "4")
    assert [one.message_id for one in lease(engine)] == [waiting]


def test_the_turn_of_others(cli: Cli, engine: Engine) -> None:
    """Consumers work for other tenants: these are named with their weights, and one more consumer serves it first."""
    cli("configure", "channel", "b", "--queue", "documents", "--weight", "3")
    enqueue(engine, *"bbbc")
    lease(engine)
    [waiting] = enqueue(engine, "customer-7")
    found = shown(cli, waiting)
    assert found["waits_for"] == "others' turn"
    assert [(one["channel"], one["weight"], one["leased"]) for one in found["taken_by"]] == [("b", 3, 3), ("c", 1, 1)]
    assert "b (weight 3): 3, c: 1" in cli("channels", "customer-7").out
    assert [one.message_id for one in lease(engine, 1)] == [waiting]


def test_behind_its_ordering_key(cli: Cli, engine: Engine) -> None:
    """A message waits for one of its key that failed and is to be tried in an hour: retried at once, both go on."""
    first, second = enqueue(engine, "customer-7", "customer-7", ordering_key="order-9")
    [row] = cli("messages", "list", "customer-7", "--state", "held").rows()[1:]
    assert (row[0], row[1], row[4]) == (str(second), "held", "order-9")
    QUEUE.retry(engine, lease(engine), delay=timedelta(hours=1), error="TimeoutError: host 1")
    assert lease(engine) == []
    found = shown(cli, second)
    assert (found["state"], found["waits_for"], found["behind"]) == ("held", "ordering key", first)
    rows = cli("messages", "show", str(second)).rows()
    assert ["waits for", f"behind message {first} of its ordering key"] in rows
    assert found["ordering_key"] == "order-9"
    assert "1 message behind others of the same ordering key" in cli("stats", "--json").document["summary"]
    assert shown(cli, found["behind"])["error"] == "TimeoutError: host 1"
    assert cli("messages", "retry", str(found["behind"])).status == 0
    QUEUE.complete(engine, lease(engine))
    assert [one.message_id for one in lease(engine)] == [second]


def test_no_worker(cli: Cli, findings: Findings, engine: Engine) -> None:
    """No worker runs: the first line of stats and doctor say so at once, and a worker is all that it needs."""
    [message_id] = enqueue(engine, "customer-7", kind="parse")
    assert "'documents' has no consumer: 1 ready" in cli("stats", "--json").document["summary"]
    assert shown(cli, message_id)["waits_for"] == "no consumer"
    assert cli("workers", "list", "--json").document["workers"] == []
    [told] = findings("queues")
    assert (told["level"], told["remedy"]) == ("problem", "start a worker")
    Worker(engine, handling("parse"), housekeeping=False).run(drain=True)
    assert levels(findings("queues")) == ["ok"]


def test_a_kind_that_no_worker_knows(cli: Cli, findings: Findings, engine: Engine, clock: Clock) -> None:
    """Workers run and the message comes back to them: they do not know its kind, and one that does handles it."""
    enqueue(engine, "customer-7")
    for _ in range(3):
        # As workers that stop give messages back.
        QUEUE.release(engine, lease(engine))
    assert levels(findings("kinds")) == ["ok"]
    QUEUE.complete(engine, lease(engine))
    [message_id] = enqueue(engine, "customer-7", kind="print")
    for _ in range(2):
        QUEUE.release(engine, lease(engine), delay=timedelta(minutes=1))
        clock.advance(timedelta(hours=1))
        assert levels(findings("kinds")) == ["ok"]
    Worker(engine, handling("parse"), housekeeping=False).run(drain=True)
    assert "no handler for kind 'print'" in " ".join(cli("messages", "show", str(message_id)).out.split())
    [told] = findings("kinds")
    assert (told["level"], told["values"]["kind"], told["values"]["returned"]) == ("warning", "print", 1)
    assert "start a worker that has a handler" in told["remedy"]
    clock.advance(timedelta(hours=1))
    Worker(engine, handling("print"), housekeeping=False).run(drain=True)
    assert cli("messages", "list", "--json").document["messages"] == []


def test_a_deploy_that_broke_a_handler(cli: Cli, findings: Findings, engine: Engine) -> None:
    """Messages die of one error: it is counted, and after the repair all of them are redriven, after a question."""
    broken = Queue("documents")
    broken.handler("invoice")(lambda delivery: delivery.payload["vat"])
    dead = enqueue(engine, "a", "b", "b", kind="invoice", max_attempts=1)
    Worker(engine, broken, housekeeping=False).run(drain=True)
    assert "has 3 dead letters" in cli("stats", "--json").document["summary"]
    assert "dead groups" in findings("kinds")[0]["remedy"]
    assert [row[:3] for row in obeyed(cli, findings("kinds")[0]["remedy"]).rows()[1:]] == [["3", "2", "invoice"]]
    chosen = ["--kind", "invoice", "--error", "vat", "--rate", "100/s", "--by", "dana"]
    assert "redrive 3 dead letters" in cli("dead", "redrive", *chosen, answer="y\n").err
    assert {one["message_id"] for one in cli("audit", "--json").document["audit"]} == {*dead}
    Worker(engine, handling("invoice"), housekeeping=False).run(drain=True)
    assert (QUEUE.stats(engine).dead, QUEUE.stats(engine).ready) == (0, 0)


def test_a_runaway_producer(cli: Cli, findings: Findings, engine: Engine, clock: Clock) -> None:
    """A backlog grows: doctor's command shows whose it is, a question tells what a purge would delete, and it does."""
    enqueue(engine, *["customer-7"] * 40, "b", "b")
    clock.advance(timedelta(minutes=10))
    assert {one.channel for one in lease(engine, 2)} == {"customer-7", "b"}
    assert "is behind: 40 of 40 ready" in cli("stats", "--json").document["summary"]
    listed = {row[0]: row[1] for row in obeyed(cli, findings("queues")[0]["remedy"]).rows()}
    assert (listed["customer-7"], listed["b"]) == ("39", "1")
    asked = cli("purge", "customer-7", "--since", "1h", answer="n\n")
    assert (asked.status, "delete 39 undelivered messages" in asked.err) == (1, True)
    assert cli("purge", "customer-7", "--since", "1h", "--by", "dana", "--yes", "--json").document["purged"] == 39
    assert cli("audit", "customer-7", "--json").document["audit"][0]["details"]["purged"] == 39


def test_a_backlog_that_grows(cli: Cli, findings: Findings, engine: Engine, database: Database, clock: Clock) -> None:
    """More comes each minute, though nothing waits for long yet: the first line and doctor say so."""
    for count in (15, 30, 45, 60):
        clock.advance(timedelta(minutes=1))
        QUEUE.complete(engine, lease(engine, 100))
        enqueue(engine, *["customer-7"] * count)
        database.value("select fq_keep_samples('{documents}')")
    assert "'documents' grows: from 15 to 60 messages" in cli("stats", "--json").document["summary"]
    assert [one["values"]["state"] for one in findings("queues")] == ["growing"]
    lease(engine, 50)
    assert levels(findings("queues")) == ["ok"]


def test_a_handler_that_hangs(cli: Cli, engine: Engine, shop: Shop) -> None:
    """A handler goes on though its message is cancelled: it stands with its worker, and the command ends that."""
    here = ("--queue", "documents")
    [message_id], _ = enqueue(engine, "customer-7"), enqueue(engine, "customer-7", queue=Queue("mails"))
    with engine.connect() as holder, shop.worker(THREADS, "--grace", "100ms", "--name", "w1") as process:
        holder.exec_driver_sql("select pg_advisory_lock(7)")
        shop.until_handling()
        cli("cancel", str(message_id), *here)
        found = shown(cli, message_id, *here)
        assert (found["cancelled"], found["consumer"]) == (True, "w1")
        listed = cli("workers", "list", *here)
        assert "1 message cancelled, and the handler goes on" in listed.out
        assert obeyed(cli, listed.out).status == 0
        assert "asked it to" in ended(process).err


def test_who_paused_this_queue(cli: Cli, findings: Findings, engine: Engine, database: Database) -> None:
    """A whole queue stands still: the first line says that it is paused, the audit by whom, doctor how to resume."""
    [message_id] = enqueue(engine, "customer-7")
    cli("pause", "--queue", "documents", "--by", "dana")
    assert "is paused for" in cli("stats", "--json").document["summary"]
    assert (shown(cli, message_id)["waits_for"], shown(cli, message_id)["paused_by"]) == ("queue paused", "dana")
    [entry] = cli("audit", "--json").document["audit"]
    assert (entry["who"], entry["what"], entry["channel"]) == ("dana", "pause", None)
    assert "'documents' is paused all the same" in cli("resume", "customer-7").out
    assert obeyed(cli, findings("queues")[0]["remedy"]).status == 0
    assert [one.message_id for one in lease(engine)] == [message_id]
    QUEUE.pause(engine, "customer-7")
    assert "what programs do by themselves is not recorded" in cli("audit", "customer-7").out
    cli("pause", "--queue", "documents", "--by", "dana")
    database.execute("update fq_queue set paused_at = paused_at - 3600000000")
    database.execute("update fq_audit set at = at - 3600000000")
    QUEUE.admin.record_audit(engine, "reread", by="eve", message_ids=range(1, 102))
    again = enqueue(engine, "customer-8")[0]
    assert shown(cli, again)["paused_by"] == "dana"


def test_a_message_that_is_done(cli: Cli, engine: Engine) -> None:
    """What became of a message: without a history nobody knows, the command begins one, and later ends are known."""
    [before, after] = enqueue(engine, "customer-7", "customer-7")
    QUEUE.complete(engine, lease(engine, 1))
    unknown = cli("messages", "show", str(before))
    assert unknown.status == 1
    assert obeyed(cli, unknown.err.partition("; '")[2]).status == 0
    QUEUE.complete(engine, lease(engine, 1))
    assert shown(cli, after)["state"] == "completed"
    assert "--history" not in cli("messages", "show", str(before)).err


def test_schedules_that_do_not_run(
    cli: Cli, findings: Findings, engine: Engine, database: Database, clock: Clock
) -> None:
    """One schedule is late and one cannot be run: doctor names both, and a worker and a correction are the remedy."""
    there = ("--queue", "documents", "--channel", "a")
    for name in ("late", "failing"):
        QUEUE.schedules.set(engine, name, channel="a", kind="parse", every=timedelta(hours=1), payload=1)
    QUEUE.schedules.set(engine, "paused", channel="a", every=timedelta(hours=1))
    QUEUE.schedules.pause(engine, "paused", channel="a")
    assert levels(findings("schedules")) == ["ok"]
    database.execute("update fq_schedule set problem = 'no such zone', due_at = fq_now() where name = 'failing'")
    assert levels(findings("schedules")) == ["warning"]
    clock.advance(timedelta(hours=2))
    failing, late = findings("schedules")
    assert "'failing' of channel 'a' of queue 'documents' cannot be run: no such zone" in failing["message"]
    assert "'late'" in late["message"]
    assert levels(findings("schedules", "--queue", "another")) == ["ok"]
    found = cli("schedules", "show", "late", *there, "--json").document
    assert (found["schedule"]["state"], {one["state"] for one in found["slots"]}) == (
        "overdue",
        {"late", "due", "next"},
    )
    forgot = cli("schedules", "set", "failing", *there, "--every", "2h").out
    assert ("kind is 'default', before 'parse'" in forgot, "4 bytes, before 1" in forgot) == (True, True)
    assert cli("schedules", "set", "failing", *there, "--every", "2h", "--kind", "parse").status == 0
    with Worker(engine, handling("parse")):
        until(lambda: levels(findings("schedules")) == ["ok"], "both are run")


def test_a_role_that_lacks_a_grant(bare_cli: Cli, engine: Engine, database: Database) -> None:
    """An operator's command is refused: the grant is named, and the operation that doctor names makes it work."""
    enqueue(engine, "customer-7")
    name = f"{database.name}_ops"
    with role(database, name) as url:
        database.execute(f'revoke execute on function fq_pause from "{name}"')
        there = ["--json", "--database-url", url]
        refused = bare_cli("pause", "customer-7", *there)
        assert (refused.status, refused.error["kind"]) == (5, "privilege_missing")
        assert "needs the grant 'operator'; 'fairqueue doctor --role operator'" in refused.error["message"]
        found = bare_cli("doctor", "--role", "operator", *there).document["findings"]
        told = next(one for one in found if one["check"] == "privileges")
        assert "execute on function public.fq_pause" in told["message"]
        with engine.begin() as connection:
            operations = Operations(MigrationContext.configure(connection))
            exec(told["remedy"].partition(" in a migration")[0], {"op": operations})  # noqa: S102 - as a migration
        assert bare_cli("pause", "customer-7", *there).status == 0
