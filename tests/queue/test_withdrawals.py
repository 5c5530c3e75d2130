"""Cancelling messages and purging channels: what is withdrawn, and what the receipts tell."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import DuplicateMessage, Queue
from sqlalchemy_fairqueue.errors import InvalidArgument
from tests.fixtures.clock import Clock
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits
from tests.queue.seeds import message, seed

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.values.messages import OnDuplicate


def test_cancel_receipts(queue: Queue, engine: Engine, database: Database) -> None:
    """A receipt tells what became of its message once the transaction has committed: cancelled, leased or missing."""
    ids = seed(queue, engine, "b", "a")
    [delivery] = queue.dequeue(engine)
    out = delivery.message_id
    [ready] = {*ids} - {out}
    with Session(engine) as session:
        lost = queue.cancel(session, ready)
        session.rollback()
        receipts = [queue.cancel(session, message_id) for message_id in (out, ready, ready, 10**12)]
        assert {receipt.outcome for receipt in receipts} == {None}
        session.commit()
    assert lost.outcome is None
    assert [receipt.outcome for receipt in receipts] == ["leased", "cancelled", "cancelled", "missing"]
    assert [receipt.message_id for receipt in receipts] == [out, ready, ready, 10**12]
    assert queue.cancel(engine, ready).outcome == "missing"
    assert queue.dequeue(engine) == []
    assert database.value("select string_agg(id::text, ' ') from fq_message".replace("::", r"\:\:")) == str(out)


def test_cancelled_while_out(engine: Engine) -> None:
    """A message that is out may be completed; however else it is settled, it is gone, and its key is free at once."""
    for verb in ("complete", "retry", "release", "bury"):
        queue = Queue(verb)
        [message_id] = seed(queue, engine, "a", key="k")
        [delivery] = queue.dequeue(engine)
        assert queue.cancel(engine, message_id).outcome == "leased"
        [other] = seed(queue, engine, "a", key="k")
        assert other != message_id
        getattr(queue, verb)(engine, delivery)
        assert [one.message_id for one in queue.dequeue(engine, limit=10)] == [other]
        assert queue.dead_letters.list(engine) == []


def test_settled_and_cancelled_in_one_transaction(
    queue: Queue, engine: Engine, connect: Connect, waits: Waits, database: Database
) -> None:
    """Ends and cancels of one transaction are locked together in the order of their ids, so that two just wait."""
    seed(queue, engine, "a", "b")
    low, high = sorted(queue.dequeue(engine, limit=2), key=lambda one: one.message_id)
    holder = connect()
    queue.cancel(holder, low.message_id)

    def complete_and_cancel(rival: Engine) -> None:
        with Session(rival) as session:
            queue.complete(session, high)
            queue.cancel(session, low.message_id)
            session.commit()

    rival = waits.start(complete_and_cancel).blocked()
    # The rival waits for the lower id before it has locked the higher one.
    queue.cancel(holder, high.message_id)
    holder.commit()
    rival.result()
    assert database.value("select count(*) from fq_message") == 1


def test_cancelled_and_asked_for_anew(engine: Engine) -> None:
    """Enqueues are sent before cancels: where that would leave nothing, the commit fails and says so, also where a
    second cancel comes behind the enqueue; an enqueue at once adds and rewrites nothing, and the transaction goes on.
    """
    policies: list[OnDuplicate] = ["skip", "replace", "raise"]
    for on_duplicate in policies:
        queue = Queue(on_duplicate)
        old = queue.enqueue(engine, channel="a", payload="old", key="k").message_id or 0
        for twice in (False, True):
            with Session(engine) as session:
                queue.cancel(session, old)
                queue.enqueue(session, channel="a", payload="new", key="k", on_duplicate=on_duplicate)
                if twice:
                    queue.cancel(session, old)
                with pytest.raises(DuplicateMessage) as caught:
                    session.commit()
            assert (caught.value.key, caught.value.message_id, caught.value.cancelled) == ("k", old, True)


def test_asked_for_anew_and_cancelled(queue: Queue, engine: Engine) -> None:
    """In the other order it is what was asked for: the message that was met is withdrawn."""
    old = queue.enqueue(engine, channel="a", payload="old", key="k").message_id
    with Session(engine) as session, session.begin():
        met = queue.enqueue(session, channel="a", payload="new", key="k", on_duplicate="replace")
        cancelled = queue.cancel(session, old or 0)
        other = queue.enqueue(session, channel="a", payload="other", key="l")
    assert (met.outcome, cancelled.outcome, other.outcome) == ("replaced", "cancelled", "created")
    assert [one.payload for one in queue.dequeue(engine, limit=9)] == ["other"]


def test_purge(queue: Queue, engine: Engine, connect: Connect) -> None:
    """A purge deletes what is in nobody's hands, tells how many, and touches no other channel."""
    seed(queue, engine, *"aaab")
    [held, *_] = [one for one in queue.dequeue(engine, limit=2) if one.channel == "a"]
    queue.enqueue(engine, channel="a", payload=1, priority=5)
    with Session(engine) as session:
        receipt = queue.purge(session, "a")
        assert (receipt.channel, receipt.purged) == ("a", None)
        session.commit()
    assert receipt.purged == 3
    assert queue.purge(engine, "a").purged == 0
    assert queue.purge(connect(), "nobody").purged == 0
    queue.complete(engine, held)
    [stats] = queue.channels(engine, "a")
    assert (stats.ready, stats.leased, stats.backlog) == (0, 0, 0)
    seed(queue, engine, "a")
    assert [one.channel for one in queue.dequeue(engine)] == ["a"]


def test_purge_takes_what_its_transaction_enqueued(queue: Queue, engine: Engine) -> None:
    """Enqueues of a transaction are sent first, so that its purge takes them as well, as it says."""
    with Session(engine) as session:
        purge = queue.purge(session, "a")
        queue.enqueue(session, channel="a", payload=1)
        session.commit()
    assert purge.purged == 1
    assert queue.dequeue(engine) == []


def test_by_name(queue: Queue, engine: Engine) -> None:
    """A key stands for the message that holds it, an ordering key for all that have it, out or not, in their order."""
    for key in "x", None, None:
        queue.enqueue(engine, channel="a", payload=key, key=key, ordering_key="s")
    queue.enqueue(engine, channel="a", payload="other", ordering_key="t")
    queue.enqueue(engine, channel="b", payload="another channel's", key="x", ordering_key="s")
    assert message(queue, engine, channel="a", ordering_key="s").key == "x"
    assert queue.message(engine, channel="a", key="x", ordering_key="t") is None
    [first] = queue.dequeue(engine, limit=1)
    with Session(engine) as session:
        by_key = queue.cancel(session, channel="a", key="x")
        all_of_it = queue.cancel(session, channel="a", ordering_key="s")
        nobody = queue.cancel(session, channel="a", key="y")
        session.commit()
    assert (by_key.message_id, by_key.outcomes, by_key.outcome) == (None, {first.message_id: "leased"}, "leased")
    assert all_of_it.outcomes == {first.message_id: "leased", 2: "cancelled", 3: "cancelled"}
    assert (nobody.outcomes, nobody.outcome) == ({}, "missing")
    assert sorted(one.payload for one in queue.dequeue(engine, limit=9)) == ["another channel's", "other"]


def test_a_name_needs_no_statement_of_its_own(queue: Queue, engine: Engine) -> None:
    """The statement that makes a message due, reads or cancels it finds it by name, too."""
    queue.enqueue(engine, channel="a", payload=1, key="k", delay=timedelta(hours=1))
    sent: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *arguments: sent.append(arguments[2]))
    assert queue.admin.retry_now(engine, channel="a", key="k") == "due"
    assert queue.message(engine, channel="a", key="other") is None
    with Session(engine) as session:
        receipt = queue.cancel(session, channel="a", key="k")
        session.commit()
    assert receipt.outcome == "cancelled"
    assert len(sent) == 3, sent


def test_a_name_stands_for_what_was_there_before(queue: Queue, engine: Engine) -> None:
    """What the transaction enqueues itself keeps its name; under a key whose message it cancels, it cannot enqueue."""
    seed(queue, engine, "a")
    queue.enqueue(engine, channel="a", payload=1, key="k", ordering_key="s")
    with Session(engine) as session:
        queue.cancel(session, channel="a", ordering_key="s")
        queue.enqueue(session, channel="a", payload=2, ordering_key="s")
        session.commit()
    assert [one.payload for one in queue.dequeue(engine, limit=9)] == ["a", 2]
    queue.enqueue(engine, channel="a", payload=3, key="k")
    with Session(engine) as session:
        queue.cancel(session, channel="a", key="k")
        queue.enqueue(session, channel="a", payload=4, key="k")
        with pytest.raises(DuplicateMessage):
            session.commit()


def test_purge_by_filters(queue: Queue, engine: Engine, clock: Clock, connect: Connect) -> None:
    """What is given must all be met; the count before tells the same number, and the channel is served afterwards."""
    began = clock.now()
    queue.enqueue(engine, channel="a", payload=1, kind="mail")
    clock.advance(timedelta(hours=1))
    later = clock.now()
    queue.enqueue(engine, channel="a", payload=2, kind="mail")
    queue.enqueue(engine, channel="a", payload=3, kind="mail", delay=timedelta(hours=1))
    queue.enqueue(engine, channel="a", payload=4, kind="report", ordering_key="s")
    queue.enqueue(engine, channel="a", payload=5, kind="report", ordering_key="s")
    for key in ("x", "y"):
        queue.enqueue(engine, channel="a", payload=key, kind="named", key=key, ordering_key="u")
    queue.enqueue(engine, channel="b", payload=6, kind="mail", key="x")
    selections: list[tuple[dict[str, Any], int]] = [
        ({"ordering_key": "t"}, 0),
        ({"key": "x", "ordering_key": "u"}, 1),
        ({"key": "y"}, 1),
        ({"kind": "mail", "state": "ready", "since": began, "until": later}, 1),
        ({"kind": "report", "state": "held"}, 1),
        ({"state": "scheduled"}, 1),
        ({"kind": "report", "ordering_key": "s", "state": "ready"}, 1),
        ({"until": later}, 0),
        ({"since": later}, 1),
    ]
    for which, count in selections:
        assert queue.admin.count_undelivered(engine, "a", **which) == count, which
        assert queue.purge(engine, "a", **which).purged == count, which
    queue.enqueue(engine, channel="a", payload=7)
    assert {delivery.payload for delivery in queue.dequeue(engine, limit=9)} == {6, 7}
    assert queue.admin.count_undelivered(engine, "nobody") == 0
    for wrong in ({"state": "leased"}, {"since": later.replace(tzinfo=None)}, {"kind": ""}):
        with pytest.raises(InvalidArgument):
            queue.purge(connect(), "a", **wrong)


def test_audits(queue: Queue, engine: Engine, clock: Clock, database: Database) -> None:
    """What is recorded stands and falls with its transaction, page by page, and goes after 90 days."""
    with Session(engine) as session:
        queue.admin.record_audit(session, "pause", by="dana", channel="a")
        session.rollback()
    assert queue.admin.audits(engine) == []
    queue.admin.record_audit(engine, "pause", channel="a", details={"why": "köln"})
    clock.advance(timedelta(days=80))
    queue.admin.record_audit(engine, "cancel", by="dana", message_ids=[1, 2])
    queue.admin.record_audit(engine, "cancel", by="dana", message_ids=[])
    Queue("others").admin.record_audit(engine, "purge", by="erin")
    assert [(one.what, one.message_id) for one in queue.admin.audits(engine, message_id=2)] == [("cancel", 2)]
    *_, first = found = queue.admin.audits(engine)
    assert [one.what for one in found] == ["cancel", "cancel", "pause"]
    assert (first.who, first.channel, first.details) == ("postgres", "a", {"why": "köln"})
    assert queue.admin.audits(engine, before=found[1].at) == [first]
    assert queue.admin.audits(engine, limit=1) == found[:1]
    clock.advance(timedelta(days=11))
    assert database.value("select deleted from fq_prune_expired(10)") == 1
    assert [one.what for one in queue.admin.audits(engine)] == ["cancel", "cancel"]
    for wrong in ({"what": ""}, {"what": "x", "by": "y" * 600}, {"what": "x", "message_ids": 0}):
        with pytest.raises(InvalidArgument):
            queue.admin.record_audit(engine, **wrong)
