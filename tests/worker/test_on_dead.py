"""Functions that follow dead letters: however a message dies, one message tells of it, in the same transaction."""

from datetime import timedelta

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Bury, BytesCodec, ChannelPolicy, Delivery, InvalidArgument, Queue, Retry
from tests.fixtures.database import Database
from tests.worker.conftest import StartWorker
from tests.worker.helpers import drained, expire_leases, until, waiting


def _follow(queue: Queue, kind: str = "parse") -> list[dict[str, object]]:
    """Follow dead letters of a kind; what was told."""
    told: list[dict[str, object]] = []

    @queue.on_dead(kind)
    def tell(delivery: Delivery) -> None:
        told.append(delivery.payload)

    return told


def test_each_way_to_die(engine: Engine, database: Database) -> None:
    """A handler buries it, its attempts are used up, a program buries it, its consumer dies in the last attempt."""
    ends: dict[str, Bury | Retry] = {"bury": Bury("no file"), "exhausted": Retry(error="no file")}
    for death in "bury", "exhausted", "bury by hand", "crash":
        queue = Queue(death)
        told = _follow(queue)
        queue.handler("parse")(lambda delivery: ends[delivery.queue])
        drained(engine, queue)
        receipt = queue.enqueue(
            engine, channel="a", payload=1, kind="parse", max_attempts=1, key="k", ordering_key="s", headers={"t": "t"}
        )
        if death not in ends:
            deliveries = queue.dequeue(engine)
            if death == "crash":
                expire_leases(database)
            else:
                queue.bury(engine, deliveries, reason="no file")
        drained(engine, queue)
        [one] = told
        [letter] = queue.dead_letters.list(engine)
        assert one == {
            "message_id": receipt.message_id, "channel": "a", "kind": "parse", "reason": letter.reason,
            "error": letter.error, "attempts": 1, "key": "k", "ordering_key": "s",
        }  # fmt: skip
        assert "no file" in f"{letter.reason} {letter.error}" or death == "crash"


def test_a_burial_wakes_an_idle_worker(queue: Queue, engine: Engine, database: Database, start: StartWorker) -> None:
    """Nobody waits for a poll to hear of a dead letter."""
    told = _follow(queue)
    drained(engine, queue)
    other = Queue(queue.name)
    other.enqueue(engine, channel="a", payload=1, kind="parse")
    held = other.dequeue(engine, lease=timedelta(hours=1))
    worker = start(queue)
    until(lambda: waiting(database) == 1, "it waits")
    woken = worker.stats.woken
    other.bury(engine, held, reason="no file")
    until(lambda: worker.stats.woken > woken and told, "it is woken, and told")


def test_it_shares_the_fate_of_the_burial(queue: Queue, engine: Engine) -> None:
    """Nothing is told of a burial that is rolled back, of a cancelled message, and of other kinds."""
    told = _follow(queue)
    queue.handler("other")(print)
    drained(engine, queue)
    for kind in "parse", "parse", "other":
        queue.enqueue(engine, channel="a", payload=1, kind=kind)
    first, second, other = queue.dequeue(engine, limit=3)
    with Session(engine) as session:
        queue.bury(session, first)
        session.rollback()
    queue.cancel(engine, second.message_id)
    queue.bury(engine, [second, other])
    queue.complete(engine, first)
    drained(engine, queue)
    assert told == []


def test_consumers_that_do_not_know_the_function(queue: Queue, engine: Engine) -> None:
    """They add the message all the same, beyond a full backlog, until nobody asks; it waits for a worker that knows."""
    _follow(queue)
    drained(engine, queue)
    stranger = Queue(queue.name)
    stranger.configure_channel(engine, "a", ChannelPolicy(max_backlog=1))
    stranger.enqueue(engine, channel="a", payload=1, kind="parse")
    stranger.bury(engine, stranger.dequeue(engine))
    assert stranger.stats(engine).ready == 1
    again = Queue(queue.name)
    told = _follow(again)
    drained(engine, again)
    assert len(told) == 1
    again.configure(engine, on_dead_kinds=None)
    stranger.enqueue(engine, channel="a", payload=1, kind="parse")
    stranger.bury(engine, stranger.dequeue(engine))
    assert stranger.stats(engine).ready == 0


def test_a_codec_of_the_queue(engine: Engine) -> None:
    """The database writes what is told, as JSON, whatever the payloads of the queue are, and so it is in each call."""
    queue = Queue("pictures", codec=BytesCodec())
    told: list[object] = []

    @queue.on_dead("parse")
    def tell(delivery: Delivery, session: Session) -> None:
        told.append(delivery.payload["reason"])
        if len(told) < 2:
            session.execute(text("do $$ begin raise exception 'conflict' using errcode = '40001'; end $$"))

    drained(engine, queue)
    queue.enqueue(engine, channel="a", payload=b"\xff", kind="parse")
    queue.bury(engine, queue.dequeue(engine), reason="no picture")
    drained(engine, queue)
    assert told == ["no picture"] * 2


def test_its_own_death_is_not_told(queue: Queue, engine: Engine) -> None:
    """A message that follows a dead letter and dies itself is a dead letter, and nothing follows."""
    queue.on_dead("parse")(lambda _: Bury("no mail"))
    drained(engine, queue)
    queue.enqueue(engine, channel="a", payload=1, kind="parse")
    queue.bury(engine, queue.dequeue(engine))
    drained(engine, queue)
    assert [letter.kind for letter in queue.dead_letters.list(engine)] == ["parse", "on_dead:parse"]
    assert queue.dead_letters.list(engine)[1].payload["kind"] == "parse"


def test_bad_declarations(queue: Queue) -> None:
    """A kind has one such function, and a name that leaves room for what its message is called."""
    _follow(queue)
    with pytest.raises(InvalidArgument, match="has a handler already"):
        _follow(queue)
    with pytest.raises(InvalidArgument, match="use 1 to 512"):
        queue.on_dead("k" * 510)
