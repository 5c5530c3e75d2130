from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import LeaseLost, Queue
from tests.cli.conftest import Cli
from tests.cli.messages import QUEUE, bury, enqueue, enqueue_group, lease
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database


def test_pause_and_resume_a_queue(cli: Cli, engine: Engine) -> None:
    """A paused queue delivers nothing until it is resumed; doing either twice changes nothing and says so."""
    enqueue(engine, "a")

    first, again = cli("pause", "--json"), cli("pause", "--json")
    assert first.document == {"queue": "documents", "channel": None, "paused": True, "changed": True}
    assert again.document["changed"] is False
    assert lease(engine) == []

    assert cli("resume").out == "queue 'documents' is running now\n"
    assert cli("resume").out == "queue 'documents' was running already\n"
    assert len(lease(engine)) == 1


def test_pause_and_resume_a_channel(cli: Cli, engine: Engine) -> None:
    """Dequeues pass by a paused channel and serve the others; ``pause --new`` makes a channel that is paused."""
    enqueue(engine, "a", "b")
    assert cli("pause", "c", "--new").out == "channel 'c' of queue 'documents' is paused now\n"
    assert cli("pause", "c", "--new").out == "channel 'c' of queue 'documents' was paused already\n"
    enqueue(engine, "c")

    assert cli("pause", "a").out == "channel 'a' of queue 'documents' is paused now\n"
    assert [delivery.channel for delivery in lease(engine)] == ["b"]
    assert cli("resume", "a", "--json").document == {
        "queue": "documents", "channel": "a", "paused": False, "changed": True,
    }  # fmt: skip
    assert [delivery.channel for delivery in QUEUE.dequeue(engine, lease=timedelta(minutes=1))] == ["a"]


def test_what_is_not_there(cli: Cli, engine: Engine) -> None:
    """A channel or queue that is not there is not made: it may be a slip of the pen. Of several queues one is named."""
    assert "has no queue yet" in cli("pause").err
    enqueue(engine, "a")
    for command in ("pause", "resume"):
        for words in (["b"], ["--queue", "documets"], ["a", "--queue", "documets"]):
            found = cli(command, *words, "--json")
            assert (found.status, found.error["kind"]) == (1, "not_found")
    assert cli("stats", "--json").document["queues"][0]["channels"] == 1
    enqueue(engine, "a", queue=Queue("other"))
    found = cli("pause")
    assert (found.status, "--queue: 'documents', 'other'" in found.err) == (2, True)
    assert cli("pause", "--queue", "other", "--json").document["queue"] == "other"


def test_cancel(cli: Cli, engine: Engine) -> None:
    """Each message is told apart: withdrawn, in a consumer's hands, or not there, which is status 1."""
    out, waiting = enqueue(engine, "a", "b")
    lease(engine, 1)

    found = cli("cancel", str(waiting), str(out), "999", "--json")

    outcomes = [(one["message_id"], one["outcome"]) for one in found.document["messages"]]
    assert (found.status, outcomes) == (1, [(waiting, "cancelled"), (out, "leased"), (999, "missing")])
    assert lease(engine) == []


def test_purge(cli: Cli, engine: Engine) -> None:
    """A channel is emptied of what is not delivered after a question that tells how much that is, and that somebody
    answers.
    """
    enqueue(engine, "a", "a", "a", "b")
    enqueue(engine, "a", delay=timedelta(hours=1))
    lease(engine, 1)
    assert cli("purge", "a").status == 2
    assert cli("purge", "x", "--yes").status == 1

    declined = cli("purge", "a", answer="no\n")
    assert declined.status == 1
    assert "delete 3 undelivered messages of channel 'a' of queue 'documents' for good? [y/N]" in declined.err

    assert cli("purge", "a", "--yes", "--json").document == {"queue": "documents", "channel": "a", "purged": 3}
    assert [(one.channel, one.ready, one.scheduled, one.leased) for one in QUEUE.channels(engine)] == [
        ("a", 0, 0, 1), ("b", 1, 0, 0),
    ]  # fmt: skip
    assert cli("purge", "a").out.startswith("0 messages of channel 'a' of queue 'documents' deleted")


def test_erase(cli: Cli, engine: Engine) -> None:
    """All of a tenant goes in every queue after one question, which tells what there is; the receipt counts it."""
    mails, third = Queue("mails"), Queue("third")
    enqueue(engine, "a", "a", "b")
    bury(engine, "a", queue=mails)
    enqueue(engine, "a", queue=mails, delay=timedelta(hours=1))
    enqueue(engine, "b", queue=third)
    third.schedules.set(engine, "digest", channel="a", payload=None, kind="digest", every=timedelta(days=1))
    QUEUE.configure_channel(engine, "a", weight=3)
    cli("pause", "a", "--queue", "documents", "--by", "dana")
    cli("resume", "a", "--queue", "documents")
    [held] = lease(engine, 1)

    declined = cli("erase", "a", answer="no\n")
    assert declined.status == 1
    assert [line.split() for line in declined.err.splitlines()[1:4]] == [
        ["documents", "1", "1", "0", "0"], ["mails", "1", "0", "1", "0"], ["third", "0", "0", "0", "1"],
    ]  # fmt: skip
    assert QUEUE.stats(engine).leased == 1

    found = cli("erase", "a", "--yes", "--by", "dana", "--json").document
    assert (found["channel"], found["schema"], found["by"], found["at"] is None) == ("a", "public", "dana", False)
    assert [{name: count for name, count in one.items() if count} for one in found["queues"]] == [
        {"queue": "documents", "messages": 1, "leased": 1, "audits": 2, "forgotten": True},
        {"queue": "mails", "messages": 1, "dead_letters": 1, "forgotten": True},
        {"queue": "third", "schedules": 1, "forgotten": True},
    ]
    with pytest.raises(LeaseLost):
        QUEUE.complete(engine, held)
    assert [(one.who, one.what, one.channel, one.details) for one in QUEUE.admin.audits(engine)][:2] == [
        ("dana", "erase", None, {"messages": 1, "leased": 1, "audits": 2}), (engine.url.username, "resume", None, None),
    ]  # fmt: skip
    assert [one.channel for one in QUEUE.channels(engine)] == ["b"]
    assert cli("channels", "a", "--queue", "mails").status == 1
    assert third.stats(engine).ready == 1
    again = cli("erase", "a", "--yes")
    assert (again.status, "has anything of a channel 'a'" in again.err) == (1, True)


def test_erase_what_others_have_locked(cli: Cli, engine: Engine, database: Database) -> None:
    """What another transaction has locked is left over, and told; the next run takes it."""
    enqueue(engine, "a", "a")
    with engine.connect() as other, other.begin():
        QUEUE.complete(other, lease(engine, 1))
        found = cli("erase", "a", "--yes")
        assert (found.status, "1 row that other transactions had locked" in found.out) == (1, True)
    assert database.value("select count(*) from fq_message") == 0


def test_pause_in_all_queues(cli: Cli, engine: Engine) -> None:
    """In an incident one command stops a tenant in every queue that has it, and with --new in the others, too."""
    mails = Queue("mails")
    enqueue(engine, "a", "b")
    enqueue(engine, "a", queue=mails)
    enqueue(engine, "b", queue=Queue("calls"))

    paused = [f"channel 'a' of queue '{name}' is paused now" for name in ("documents", "mails")]
    assert cli("pause", "a", "--all-queues").out.splitlines() == paused
    assert [one.channel for one in lease(engine)] == ["b"]
    assert list(mails.dequeue(engine)) == []
    document = cli("pause", "a", "--all-queues", "--new", "--json").document
    assert (document["channel"], document["paused"]) == ("a", True)
    changed = {one["queue"]: one["changed"] for one in document["queues"]}
    assert changed == {"calls": True, "documents": False, "mails": False}
    resumed = cli("resume", "a", "--all-queues", "--json").document
    assert [one["changed"] for one in resumed["queues"]] == [True, True, True]
    assert len(mails.dequeue(engine)) == 1
    assert cli("pause", "nobody", "--all-queues").status == 1
    assert cli("pause", "--all-queues").status == 2
    assert cli("pause", "a", "--all-queues", "--queue", "mails").status == 2


def test_purge_by_filters(cli: Cli, engine: Engine, clock: Clock) -> None:
    """Messages are deleted by kind, state, time of enqueue and name, and the question counts them."""
    enqueue(engine, "a", kind="mail")
    clock.advance(timedelta(hours=3))
    enqueue(engine, "a", "a", kind="report")
    enqueue(engine, "a", kind="report", delay=timedelta(hours=1))
    enqueue(engine, "b", kind="report")
    asked = cli("purge", "a", "--kind", "report", answer="no\n")
    assert "delete 3 undelivered messages of kind 'report' of channel 'a'" in asked.err
    assert asked.status == 1
    assert cli("purge", "a", "--kind", "report", "--since", "1h", "--until", "30m").out.startswith("0 messages")
    assert cli("purge", "a", "--until", "1h", "--yes", "--json").document["purged"] == 1
    assert cli("purge", "a", "--kind", "report", "--state", "scheduled", "--yes", "--json").document["purged"] == 1
    assert cli("purge", "a", "--state", "held", "--yes", "--json").document["purged"] == 0
    assert cli("purge", "a", "--since", "1h", "--yes", "--json").document["purged"] == 2
    assert cli("purge", "b", "--state", "leased", "--yes").status == 2
    enqueue(engine, "a", "a", ordering_key="s")
    enqueue(engine, "a", key="k")
    asked = cli("purge", "a", "--ordering-key", "s", answer="no\n")
    assert "delete 2 undelivered messages with ordering key 's' of channel 'a'" in asked.err
    assert cli("purge", "a", "--key", "k", "--yes", "--json").document["purged"] == 1
    assert cli("purge", "a", "--ordering-key", "s", "--yes", "--json").document["purged"] == 2


def test_audit(cli: Cli, engine: Engine) -> None:
    """What the commands do is recorded with who did it, by the channel and the message; what changes nothing is not."""
    QUEUE.configure(engine, history=True)
    first, second, _ = enqueue(engine, "a", "a", "b", delay=timedelta(hours=1))
    [dead] = bury(engine, "c")
    for words in (
        ["pause", "a", "--by", "dana"], ["pause", "a", "--by", "dana"], ["resume", "a"],
        ["configure", "channel", "a", "--weight", "3", "--by", "erin"],
        ["configure", "queue", "--max-concurrency", "9", "--by", "erin"],
        ["messages", "retry", str(first), "--by", "dana"], ["cancel", str(first), "--by", "dana"],
        ["cancel", str(first), "--by", "dana"], ["messages", "move", str(second), "--to", "b", "--by", "dana"],
        ["dead", "redrive", str(dead), "--by", "dana"], ["purge", "b", "--kind", "parse", "--by", "dana", "--yes"],
    ):  # fmt: skip
        cli(*words)
    found = cli("audit", "--json").document["audit"]
    assert [(one["who"], one["what"], one["channel"], one["message_id"]) for one in reversed(found)] == [
        ("dana", "pause", "a", None), ("postgres", "resume", "a", None), ("erin", "configure", "a", None),
        ("erin", "configure", None, None), ("dana", "retry", None, first), ("dana", "cancel", None, first),
        ("dana", "move", "b", second), ("dana", "redrive", None, dead), ("dana", "purge", "b", None),
    ]  # fmt: skip
    assert found[0]["details"] == {"kind": "parse", "purged": 2}
    assert found[6]["details"] == {"weight": 3}
    assert [one["what"] for one in cli("audit", "a", "--json").document["audit"]] == ["configure", "resume", "pause"]
    assert [one["what"] for one in cli("audit", "--message", str(dead), "--json").document["audit"]] == ["redrive"]
    shown = cli("messages", "show", str(dead))
    assert ["dana", "redrive"] in [row[1:3] for row in shown.rows()]
    assert "nobody did anything" in cli("audit", "nobody").out


def test_audit_of_schedules_groups_limits_and_workers(cli: Cli, engine: Engine) -> None:
    """What is done to these is recorded, too, for each queue what is done to a shared limit; a failure is not."""
    enqueue(engine, "a")
    group = enqueue_group(engine, "a")
    for words in (
        ["schedules", "set", "s", "--channel", "a", "--every", "1h"], ["schedules", "pause", "s", "--channel", "a"],
        ["schedules", "resume", "s", "--channel", "a"], ["schedules", "run", "s", "--channel", "a"],
        ["schedules", "remove", "s", "--channel", "a", "--yes"], ["schedules", "run", "s", "--channel", "a"],
        ["groups", "cancel", group, "--yes"], ["workers", "stop", "w1"],
        ["configure", "limit", "api", "--max-concurrency", "3"], ["configure", "limit", "api", "--remove"],
    ):  # fmt: skip
        cli(*words, "--by", "dana")
    found = cli("audit", "--json").document["audit"]
    assert [(one["what"], one["channel"], one["details"]) for one in reversed(found)] == [
        *((f"{what} schedule", "a", {"schedule": "s"}) for what in ("set", "pause", "resume", "run", "remove")),
        ("cancel group", None, {"group": group}), ("stop worker", None, {"worker": "w1"}),
        ("configure limit", None, {"limit": "api", "max_concurrency": 3}), ("remove limit", None, {"limit": "api"}),
    ]  # fmt: skip
    assert {one["who"] for one in found} == {"dana"}
    assert len(cli("audit", "a", "--json").document["audit"]) == 5


def test_pages_of_the_audit(engine: Engine, database: Database) -> None:
    """A page begins behind the last row of the page before, also within a microsecond, and a time restricts, too."""
    with engine.begin() as connection:
        QUEUE.admin.record_audit(connection, "redrive", message_ids=[1, 2, 3, 4, 5])
    database.execute("update fq_audit set at = 7")
    pages: list[Any] = [[]]
    while not pages[1:] or pages[-1]:
        last = pages[-1][-1] if pages[-1] else None
        pages.append(QUEUE.admin.audits(engine, before=last, limit=2))
    assert [len(page) for page in pages[1:]] == [2, 2, 1, 0]
    assert sorted(one.message_id or 0 for page in pages for one in page) == [1, 2, 3, 4, 5]
    assert QUEUE.admin.audits(engine, before=pages[1][0].at) == []
