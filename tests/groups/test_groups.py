"""Groups: made, counted, listed and cancelled; what follows comes exactly once."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Bury, ChannelPolicy, Context, Delivery, Enqueue, InvalidArgument, Queue, Worker
from sqlalchemy_fairqueue.errors import UnknownGroup
from sqlalchemy_fairqueue.reports import GroupCounts
from sqlalchemy_fairqueue.testing import drain, rolled_back
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.groups.conftest import Make, counts, fold, followups
from tests.worker.helpers import LONG_LEASE, is_empty, retimed, until

pytestmark = pytest.mark.installed


def test_what_follows_comes_once(engine: Engine, database: Database, queue: Queue, make: Make) -> None:
    """The follow-up is enqueued when the last member is done, once, with the counts."""
    group = make(1, 2, 3)
    first, *rest = queue.dequeue(engine, limit=3)
    for delivery in rest:
        queue.complete(engine, delivery)
    fold(database)
    assert followups(database) == []
    assert counts(queue.groups.status(engine, group)) == (3, 2, 0, 0, 1)
    queue.complete(engine, first)
    fold(database)
    fold(database)
    [found] = queue.dequeue(engine, limit=9)
    assert (found.kind, found.payload, found.channel) == ("report", "done", "reports")
    assert found.headers == {"after_group": {"id": str(group), "total": 3, "done": 3, "failed": 0, "cancelled": 0}}
    status = queue.groups.status(engine, group)
    assert status.message_id == found.message_id
    assert status.finished_at is not None
    assert status.problem is None
    assert not database.value("select fq_groups_due()")
    assert database.value("select count(*) from fq_group_followup") == 0


def test_the_floor_of_another_server_hides_no_end(engine: Engine, database: Database, queue: Queue, make: Make) -> None:
    """Members end after a restore into a server whose transaction ids are lower, and nobody folds before these ids have
    passed those of the dump: the follow-up comes all the same.
    """
    group = make(1, 2)
    fold(database)
    # a row that this server has written, with an id that it has not reached
    database.execute("update fq_round set snapshot = pg_current_xact_id()::text::bigint + 20 where duty = 'fold'")
    queue.complete(engine, queue.dequeue(engine, limit=2))
    for _ in range(20):
        database.execute("select pg_current_xact_id()")
    assert database.value("select fq_groups_due()")
    assert counts(queue.groups.status(engine, group)) == (2, 2, 0, 0, 0)
    assert [one.done for one in queue.groups.list(engine)] == [2]
    fold(database)
    assert followups(database) == ["report"]


def test_without_follow_up(engine: Engine, database: Database, queue: Queue, make: Make) -> None:
    """A group may only count."""
    group = make(1, then=None)
    queue.complete(engine, queue.dequeue(engine))
    fold(database)
    status = queue.groups.status(engine, group)
    assert (status.finished_at is not None, status.message_id) == (True, None)


def test_rolled_back(engine: Engine, queue: Queue) -> None:
    """A transaction that rolls back leaves nothing; a savepoint that rolls back takes its members."""
    with Session(engine) as session:
        with queue.group(session) as group:
            group.enqueue_many([Enqueue(channel="a", payload=1)])
        session.rollback()
        with queue.group(session) as kept:
            kept.enqueue_many([Enqueue(channel="a", payload=2)])
            with session.begin_nested() as savepoint:
                kept.enqueue_many([Enqueue(channel="a", payload=3)])
                savepoint.rollback()
        session.commit()
    with pytest.raises(UnknownGroup, match="has no group"):
        queue.groups.status(engine, group.id)
    assert counts(queue.groups.status(engine, str(kept.id))) == (1, 0, 0, 0, 1)
    assert [each.payload for each in queue.dequeue(engine, limit=9)] == [2]


def test_a_block_that_raises_enqueues_nothing(engine: Engine, database: Database, queue: Queue) -> None:
    """If the block raises and the transaction is committed all the same, there is no group and no member."""
    with Session(engine) as session, session.begin():
        queue.enqueue(session, channel="a", payload="other")
        with suppress(ZeroDivisionError), queue.group(session) as group:
            group.enqueue_many([Enqueue(channel="a", payload=1)])
            raise ZeroDivisionError
    assert database.value("select count(*) from fq_group") == 0
    assert [each.payload for each in queue.dequeue(engine, limit=9)] == ["other"]


def test_cancel_group(engine: Engine, database: Database, queue: Queue, make: Make) -> None:
    """All members are withdrawn, those of others stay; the follow-up for failures comes when the last has ended."""
    other = make(0)
    group = make(1, 2, 3, on_failure=True)
    zero, held = queue.dequeue(engine, limit=2)
    assert queue.groups.cancel(engine, group) == (2, 1)
    fold(database)
    assert followups(database) == []
    queue.release(engine, held)
    fold(database)
    assert followups(database) == ["alarm"]
    assert queue.groups.cancel(engine, group) == (0, 0)
    assert counts(queue.groups.status(engine, group)) == (3, 0, 0, 3, 0)
    assert counts(queue.groups.status(engine, other)) == (1, 0, 0, 0, 1)
    queue.complete(engine, zero)
    with pytest.raises(UnknownGroup):
        queue.groups.cancel(engine, uuid4())
    with pytest.raises(InvalidArgument, match="group_id is 'x'"):
        queue.groups.cancel(engine, "x")


def test_a_full_channel_makes_the_follow_up_wait(
    engine: Engine, database: Database, queue: Queue, make: Make, clock: Clock
) -> None:
    """Neither a bound nor a policy that drops loses it: it comes when there is room, and other groups go on."""
    for on_full in ("raise", "drop"):
        queue.configure_channel(engine, "reports", ChannelPolicy(max_backlog=1, on_full=on_full))
        first = make()
        fold(database)
        second = make()
        fold(database)
        assert followups(database) == ["report"]
        assert "is full" in str(queue.groups.status(engine, second).problem)
        queue.complete(engine, queue.dequeue(engine))
        clock.advance(timedelta(seconds=2))
        fold(database)
        assert queue.groups.status(engine, second).problem is None
        assert queue.groups.status(engine, first).message_id != queue.groups.status(engine, second).message_id
        queue.complete(engine, queue.dequeue(engine))


def test_a_follow_up_that_its_channel_refuses(
    engine: Engine, database: Database, queue: Queue, make: Make, clock: Clock
) -> None:
    """A payload that is too large for its channel keeps one follow-up back, with the reason; other groups go on."""
    queue.configure_channel(engine, "reports", max_payload_bytes=7)
    refused = make(on_failure=True)
    database.execute("update fq_group_followup set content = '\"too large\"'")
    fold(database)
    assert "channel reports has 11 bytes" in str(queue.groups.status(engine, refused).problem)
    make()
    fold(database)
    assert followups(database) == ["report"]
    queue.configure_channel(engine, "reports", max_payload_bytes=None)
    clock.advance(timedelta(minutes=1))
    fold(database)
    assert followups(database) == ["report", "report"]


def test_follow_up_with_options(engine: Engine, database: Database, queue: Queue, make: Make, clock: Clock) -> None:
    """Delay, priority, key and max_attempts are its own; a key that stands by then adds nothing."""
    hour = timedelta(hours=1)
    for _ in range(2):
        make(then=Enqueue(channel="r", payload=1, delay=hour, key="k", max_attempts=3, headers={"own": 1}))
        fold(database)
    assert list(queue.dequeue(engine)) == []
    clock.advance(hour)
    [found] = queue.dequeue(engine, limit=9)
    assert (found.max_attempts, (found.headers or {})["own"]) == (3, 1)
    with Session(engine) as session:
        for bad in (
            {"then": "x"},
            {"then": Enqueue(channel="r", payload=1, key="k", on_duplicate="raise")},
            {"on_failure": Enqueue(channel="r", payload=1, headers={"after_group": 1})},
        ):
            with pytest.raises(InvalidArgument):
                queue.group(session, **bad)
        with pytest.raises(InvalidArgument, match="header 'group'"), queue.group(session) as group:
            group.enqueue_many([Enqueue(channel="a", payload=1, headers={"group": 1})])
        with pytest.raises(InvalidArgument, match="session"):
            queue.group(engine)  # type: ignore[arg-type]


@pytest.mark.parametrize("failed", [False, True])
def test_what_follows_has_its_ordering_key(engine: Engine, database: Database, queue: Queue, *, failed: bool) -> None:
    """That of the message that follows, of success or of failure; it waits behind others of its key as any message."""
    queue.enqueue(engine, channel="r", payload="before", ordering_key="failed" if failed else "done")
    then = Enqueue(channel="r", payload=1, ordering_key="done")
    alarm = Enqueue(channel="r", payload=2, ordering_key="failed")
    with Session(engine) as session, session.begin(), queue.group(session, then=then, on_failure=alarm) as group:
        group.enqueue_many([Enqueue(channel="a", payload="member")])
    before, member = sorted(queue.dequeue(engine, limit=9), key=lambda one: str(one.payload))
    queue.bury(engine, member, reason="bad") if failed else queue.complete(engine, member)
    fold(database)
    assert list(queue.dequeue(engine, limit=9)) == []
    queue.complete(engine, before)
    # The first dequeue lets it go, and the next one takes it.
    [found] = [one for _ in range(2) for one in queue.dequeue(engine, limit=9)]
    assert (found.payload, found.ordering_key) == ((2, "failed") if failed else (1, "done"))


def test_groups_are_listed_and_pruned(
    engine: Engine, database: Database, queue: Queue, make: Make, clock: Clock
) -> None:
    """The newest first, by pages, open or finished; those that are finished go after their time, open ones stay."""
    ids = []
    for number in range(3):
        ids.append(make(*range(number)))
        clock.advance(timedelta(seconds=1))
    fold(database)
    assert [one.id for one in queue.groups.list(engine)] == ids[::-1]
    assert [one.id for one in queue.groups.list(engine, is_open=True)] == ids[:0:-1]
    assert [one.id for one in queue.groups.list(engine, is_open=False)] == ids[:1]
    page = queue.groups.list(engine, limit=2)
    assert [one.id for one in queue.groups.list(engine, before=page[-1])] == ids[:1]
    assert database.value("select deleted from fq_prune_expired(100)") == 0
    clock.advance(timedelta(days=8))
    assert database.value("select deleted from fq_prune_expired(100)") == 1
    assert [one.id for one in queue.groups.list(engine)] == ids[:0:-1]


def test_a_list_counts_what_no_worker_has_counted(engine: Engine, database: Database, queue: Queue, make: Make) -> None:
    """Each group of a list has the counts that it has alone, before workers count, after, and in between."""
    first, second, empty = make(1, 2, 3), make(4), make()

    def agree() -> None:
        assert {one.id: one for one in queue.groups.list(engine)} == {
            each: queue.groups.status(engine, each) for each in (first, second, empty)
        }

    agree()
    taken = queue.dequeue(engine, limit=4)
    queue.complete(engine, taken[:2])
    agree()
    with Session(engine) as session:
        # It has written before the fold, and notes the end of a member after it.
        queue.enqueue(session.connection(), channel="b", payload=5)
        fold(database)
        agree()
        queue.bury(session, taken[2], reason="bad")
        session.commit()
    agree()
    queue.groups.cancel(engine, second)
    agree()
    queue.release(engine, taken[3])
    found = {one.id: counts(one) for one in queue.groups.list(engine)}
    assert found == {first: (3, 2, 1, 0, 0), second: (1, 0, 0, 1, 0), empty: (0, 0, 0, 0, 0)}
    fold(database)
    agree()


def test_a_worker_finishes_groups(engine: Engine) -> None:
    """Jobs in a group add calls of jobs; a worker that drains ends with what follows, which gets the counts."""
    queue = Queue("documents")
    seen: list[object] = []

    @queue.job
    def parse(context: Context, session: Session, *, pages: int) -> None:
        assert context.group is not None
        assert context.session is session
        if pages == 3:
            raise Bury("three")
        for _ in range(pages):
            context.group.enqueue(parse, "a", pages=0)

    @queue.job
    def report(context: Context, *, run: int) -> None:
        seen.append((run, context.after_group, context.group))

    then = report.prepare("b", run=1)
    with Session(engine) as session, session.begin(), queue.group(session, then=then) as group:
        for pages in range(4):
            group.enqueue(parse, channel="a", pages=pages)
    Worker(engine, queue, lease=LONG_LEASE).run(drain=True)
    assert seen == [(1, GroupCounts(group.id, 7, 6, 1, 0), None)]


@contextmanager
def _folded_once(engine: Engine, queue: Queue) -> Iterator[Any]:
    """The runtime of a worker that has folded once, and does it again in an hour, or to be drained."""
    with retimed(Worker(engine, queue, lease=LONG_LEASE), groups_every=3600.0) as worker:
        runtime: Any = worker._runtime
        until(lambda: runtime.is_drained() or runtime._groups.folded_at is not None, "a first fold has found nothing")
        assert not runtime.is_drained(), "it polls once more"
        yield runtime


def test_a_drain_folds_what_ended_since_the_last_fold(engine: Engine, database: Database) -> None:
    """Members that are taken and settled between two looks at the worker are folded before it counts as drained."""
    queue = Queue("documents")
    for kind in ("member", "report"):
        queue.handler(kind)(lambda _: None)
    with _folded_once(engine, queue) as runtime:
        then = Enqueue(channel="b", payload=1, kind="report")
        with Session(engine) as session, session.begin(), queue.group(session, then=then) as group:
            group.enqueue_many([Enqueue(channel="a", payload=1, kind="member")])
        until(lambda: is_empty(database), "the member is settled")
        until(lambda: not runtime.queues[0].held(), "the worker knows")
        until(runtime.is_drained, "it is drained")
    assert database.value("select message_id is not null from fq_group")
    assert is_empty(database)


def test_what_follows_a_group_that_ends_at_the_last_moment(engine: Engine, database: Database) -> None:
    """A group that the worker finishes after the last fold, as its member ended elsewhere, is followed all the same."""
    queue, handled = Queue("documents"), []
    queue.handler("member")(print)

    @queue.handler("report")
    def report(_: Delivery, context: Context) -> None:
        handled.append(context.after_group)

    with _folded_once(engine, queue) as runtime:
        queue.pause(engine)
        then = Enqueue(channel="b", payload=1, kind="report")
        with Session(engine) as session, session.begin(), queue.group(session, then=then) as group:
            [receipt] = group.enqueue_many([Enqueue(channel="a", payload=1, kind="member")])
        queue.cancel(engine, receipt.message_id or 0)
        polls, now = runtime.queues[0].polls, runtime._options.clock()
        polls.poll_now(now)
        runtime.trigger.set()
        until(lambda: polls.empty_at >= now, "nothing is left to take")
        runtime._groups.run()
        assert not runtime.is_drained(), "the group was finished since"
        queue.resume(engine)
        until(runtime.is_drained, "it is drained")
        assert (len(handled), is_empty(database)) == (1, True)
        runtime._groups.start()
        assert not runtime._groups.is_under_way


def test_in_tests_that_roll_back(engine: Engine, database: Database) -> None:
    """Drain performs members and what follows them within the transaction."""
    queue = Queue("documents")
    seen: list[object] = []

    @queue.handler("member")
    def member(delivery: Delivery, context: Context, session: Session) -> None:
        assert context.group is not None
        assert context.session is session
        if delivery.payload:
            context.group.enqueue_many([Enqueue(channel="a", payload=0, kind="member")])

    @queue.handler("report")
    def report(delivery: Delivery, context: Context) -> None:
        seen.append((delivery.payload, context.after_group))

    with rolled_back(engine) as session:
        with queue.group(session, then=Enqueue(channel="a", payload=1, kind="report")) as group:
            group.enqueue_many([Enqueue(channel="a", payload=1, kind="member")])
        assert len(drain(session, queue)) == 3
    assert seen == [(1, GroupCounts(group.id, 2, 2, 0, 0))]
    assert database.value("select count(*) from fq_group") == 0
