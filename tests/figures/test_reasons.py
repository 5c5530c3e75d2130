"""Each reason of a wait is produced on purpose, and named with those who take the capacity."""

import re
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue import InvalidArgument, Queue
from sqlalchemy_fairqueue.dashboard.words import reason_detail
from sqlalchemy_fairqueue.database.calls import Target
from sqlalchemy_fairqueue.database.stats import read_clock, read_competition
from sqlalchemy_fairqueue.figures.leftovers import read_leftovers
from sqlalchemy_fairqueue.figures.queues import QueueFigures, channel_waits
from sqlalchemy_fairqueue.figures.shared import SharedFigures
from sqlalchemy_fairqueue.values.messages import FairBy
from sqlalchemy_fairqueue.values.reports import ChannelDemand, MessageDetails, QueueTaker, Reason, Wait
from sqlalchemy_fairqueue.values.waits import with_waits
from tests.cli.messages import QUEUE, enqueue, lease
from tests.fixtures.database import Database
from tests.queue.damage import lose


class _Tenant(NamedTuple):
    """A channel in the figures of its queue."""

    queue: QueueFigures
    channel: ChannelDemand

    @property
    def wait(self) -> Wait:
        assert self.channel.wait is not None
        return self.channel.wait

    @property
    def reason(self) -> Reason:
        return self.wait.reason

    @property
    def shares(self) -> tuple[float | None, float]:
        """What it uses, and what it is entitled to."""
        return self.queue.contention.used(self.channel), self.queue.contention.entitled(self.channel)


def _tenant(engine: Engine, channel: str, of: Queue = QUEUE) -> _Tenant:
    queue = SharedFigures(engine).get().queues[of.name]
    [found] = [one for one in queue.contention.channels if one.channel == channel]
    return _Tenant(queue, found)


def _message(engine: Engine, message_id: int, queue: Queue = QUEUE) -> MessageDetails:
    found = queue.message(engine, message_id)
    assert found is not None
    return found


def _consume(engine: Engine, *channels: str, queue: Queue = QUEUE) -> None:
    """Let a consumer hold a message of each channel."""
    enqueue(engine, *channels, queue=queue)
    assert len(lease(engine, len(channels), queue)) == len(channels)


def _shared(engine: Engine, queue: Queue = QUEUE, name: str = "api", **limit: object) -> Queue:
    """Another queue that draws from the same limit, with two messages out; a message waits here."""
    queue.limits.configure(engine, name, **limit)  # type: ignore[call-overload]
    other = Queue(f"summaries{name.removeprefix('api')}")
    enqueue(engine, "y", "y", queue=other)
    for one in (queue, other):
        one.configure(engine, limits=[name])
    _consume(engine, "b", queue=queue)
    assert len(lease(engine, 10, queue=other)) == 2
    enqueue(engine, "a", queue=queue)
    return other


def test_a_shared_limit_that_grows(engine: Engine) -> None:
    """Where the limit is not used up any more, it is the others' turn; what a consumer holds waits for nothing."""
    [held, _] = _shared(engine, max_concurrency=3).messages(engine, channel="y")
    assert held.wait is None
    QUEUE.limits.configure(engine, "api", max_concurrency=4)
    assert _tenant(engine, "a").reason is Reason.TURN


_OF_B = {Reason.QUEUE_LIMIT, Reason.QUEUE_RATE, Reason.SHARED_LIMIT, Reason.SHARED_RATE, Reason.TURN}
"""Those of which b is the cause where a test has prepared them."""


def prepare(engine: Engine, reason: Reason, queue: Queue) -> int:
    """Let a message of channel a wait for this reason, because of b where others are the reason; its id."""
    match reason:
        case Reason.QUEUE_PAUSED:
            queue.pause(engine)
        case Reason.PAUSED:
            queue.pause(engine, "a", new=True)
        case Reason.OWN_LIMIT | Reason.RATE:
            limit = {"max_concurrency": 1} if reason is Reason.OWN_LIMIT else {"rate": "1/h, burst 1"}
            queue.configure_channel(engine, "a", **limit)
            _consume(engine, "a", queue=queue)
        case Reason.QUEUE_LIMIT | Reason.QUEUE_RATE:
            queue.configure(engine, **({"max_concurrency": 1} if reason is Reason.QUEUE_LIMIT else {"rate": "1/h"}))
            _consume(engine, "b", queue=queue)
        case Reason.SHARED_LIMIT | Reason.SHARED_RATE:
            by_rate = reason is Reason.SHARED_RATE
            limit = {"rate": "1/h, burst 3"} if by_rate else {"max_concurrency": 3}
            _shared(engine, queue, "api of rate" if by_rate else "api", **limit)
        case Reason.NEXT:
            enqueue(engine, "b", queue=queue)
            queue.complete(engine, lease(engine, queue=queue))
        case Reason.CAPACITY | Reason.TURN:
            _consume(engine, "a" if reason is Reason.CAPACITY else "b", queue=queue)
        case Reason.ORDERING_KEY:
            enqueue(engine, "a", ordering_key="k", queue=queue)
            lease(engine, queue=queue)
    delay = timedelta(hours=reason is Reason.SCHEDULED)
    [message_id] = enqueue(engine, "a", queue=queue, delay=delay, ordering_key="k")
    if reason is Reason.ORDERING_KEY:
        assert lease(engine, queue=queue) == []
    return message_id


def test_each_reason(engine: Engine) -> None:
    """It has the channels and queues that take the capacity, or when the next may go, for a message as its tenant."""
    for reason in Reason:
        queue = Queue(reason.name)
        found = _message(engine, prepare(engine, reason, queue), queue)
        tenant = _tenant(engine, "a", queue)
        wait = tenant.wait
        assert found.wait is not None
        assert (found.wait.reason, found.wait.takers, found.wait.limit, found.wait.queues, found.wait.behind) == (
            reason, wait.takers, wait.limit, wait.queues, wait.behind,
        )  # fmt: skip
        shared = [one for one in queue.limits.list(engine) if one.name == wait.limit]
        assert len(shared) == (reason in {Reason.SHARED_LIMIT, Reason.SHARED_RATE})
        assert list(wait.queues) == [QueueTaker(f"summaries{one.name.removeprefix('api')}", 2) for one in shared]
        assert [taker.channel for taker in wait.takers] == ["b"] * (reason in _OF_B)
        allows_at = {
            Reason.RATE: tenant.channel.rate_allows_at,
            Reason.QUEUE_RATE: queue.stats(engine).rate_allows_at,
            Reason.SHARED_RATE: shared and shared[0].rate_allows_at,
        }
        assert (wait.until, reason in allows_at) == (allows_at.get(reason), wait.until is not None)
        assert (tenant.queue.waited(tenant.channel) is None) == (reason in {Reason.SCHEDULED, Reason.ORDERING_KEY})


def test_others_turn(engine: Engine) -> None:
    """Consumers are busy with others, the most first, whose shares stand beside what their weights entitle them to, or
    these use the queue's limit up. A channel that has its share, and more work than that serves, waits for nobody else.
    """
    QUEUE.configure_channel(engine, "b", weight=3)
    _consume(engine, "b", "b", "b", "c")
    enqueue(engine, "a")
    for reason in (Reason.TURN, Reason.QUEUE_LIMIT):
        tenant = _tenant(engine, "a")
        assert (tenant.reason, tenant.shares) == (reason, (0.0, 0.2))
        assert [(taker.channel, taker.share, taker.entitled, taker.weight) for taker in tenant.wait.takers] == [
            ("b", 0.75, 0.6, 3), ("c", 0.25, 0.2, 1),
        ]  # fmt: skip
        QUEUE.configure(engine, max_concurrency=4)
    QUEUE.configure(engine, max_concurrency=None)
    enqueue(engine, "b")
    assert _tenant(engine, "b").wait == Wait(Reason.CAPACITY)


def test_no_others(engine: Engine) -> None:
    """While consumers hold no message, it is not the others' turn, however many wait, and no lack of consumers."""
    [delivery] = lease(engine, 1) if enqueue(engine, "b") else []
    QUEUE.complete(engine, delivery)
    assert QUEUE.stats(engine).consumers == 1
    for channels in ("a", "bc"):
        ids = enqueue(engine, *channels)
        tenant = _tenant(engine, "a")
        assert (tenant.wait, tenant.shares[0]) == (Wait(Reason.NEXT), None)
        assert _message(engine, ids[0]).wait == tenant.wait


@pytest.mark.parametrize("fair_by", ["messages", "cost"])
def test_all_that_is_out_is_its_own(engine: Engine, fair_by: FairBy) -> None:
    """Others wait, and others were served lately; consumers work for it alone, so that it waits for none of them."""
    QUEUE.configure(engine, fair_by=fair_by, history=True)
    enqueue(engine, "b", cost=90)
    QUEUE.complete(engine, lease(engine, 1))
    _consume(engine, "a")
    enqueue(engine, "a", "b")
    assert _tenant(engine, "a").reason is Reason.CAPACITY


def _reasons(engine: Engine, message_id: int, queue: Queue = QUEUE) -> set[Reason | None]:
    """The reasons that each of the readings gives: of the message, of its tenant, of the channel."""
    message = _message(engine, message_id, queue)
    with engine.connect() as connection:
        [listed] = channel_waits(connection, queue, queue.channels(connection, "a"), read_clock(connection, None))
    return {message.wait.reason if message.wait else None, listed.reason, _tenant(engine, "a", queue).reason}


@pytest.mark.parametrize("reason", [Reason.OWN_LIMIT, Reason.QUEUE_LIMIT, Reason.SHARED_LIMIT])
@pytest.mark.parametrize("by_cost", [False, True])
def test_a_limit_holds_until_the_next_dequeue(engine: Engine, reason: Reason, by_cost: bool) -> None:  # noqa: FBT001
    """While messages end one after the other, it is never said that consumers are busy: they wait for the limit."""
    limit: dict[str, Any] = {"max_cost_out": 20} if by_cost else {"max_concurrency": 2}
    if reason is Reason.OWN_LIMIT:
        QUEUE.configure_channel(engine, "a", **limit)
    elif reason is Reason.QUEUE_LIMIT:
        QUEUE.configure(engine, **limit)
    else:
        QUEUE.limits.configure(engine, "api", **limit)
        QUEUE.configure(engine, limits=["api"])
    *_, last = enqueue(engine, *"aaaa", cost=10)
    held = lease(engine)
    assert len(held) == 2
    for delivery in held:
        assert _reasons(engine, last) == {reason}
        QUEUE.complete(engine, delivery)
    assert _reasons(engine, last) == {reason}
    assert len(lease(engine, 1)) == 1
    assert _reasons(engine, last) == {Reason.CAPACITY}


def test_a_limit_that_leaves_its_slot_to_another_queue(engine: Engine, database: Database) -> None:
    """Both queues wait for the limit while its slot is free: one leaves it to the other, which has not come yet."""
    # A queue that has not come for a second waits no more.
    now = database.value("select fq_now()")
    database.execute(f"create or replace function fq_now() returns bigint language sql as 'select {now}::bigint'")
    other = Queue("summaries")
    enqueue(engine, "a", queue=other)
    other.complete(engine, lease(engine, queue=other))
    QUEUE.limits.configure(engine, "api", max_concurrency=1)
    last = {}
    for queue in (QUEUE, other):
        queue.configure(engine, limits=["api"])
        *_, last[queue] = enqueue(engine, *"aaa", queue=queue)
    [held] = lease(engine)
    assert lease(engine, queue=other) == []
    QUEUE.complete(engine, held)
    assert lease(engine) == []
    assert QUEUE.limits.list(engine)[0].current_concurrency == 0
    for queue in (QUEUE, other):
        assert _reasons(engine, last[queue], queue) == {Reason.SHARED_LIMIT}
    QUEUE.limits.configure(engine, "mail", rate="1/ms, burst 5")
    QUEUE.configure(engine, limits=["api", "mail"])
    assert _reasons(engine, last[QUEUE]) == {Reason.SHARED_LIMIT}
    QUEUE.limits.configure(engine, "api", max_concurrency=100)
    [taken] = lease(engine, 1, queue=other)
    assert taken.channel == "a"
    assert _reasons(engine, last[other], other) == {Reason.CAPACITY}


@pytest.mark.parametrize("is_used_up", [False, True])
@pytest.mark.parametrize("reason", [Reason.RATE, Reason.QUEUE_RATE])
def test_a_rate_holds_until_the_next_dequeue(engine: Engine, reason: Reason, is_used_up: bool) -> None:  # noqa: FBT001
    """A consumer that comes late has waited for the rate, if that was used up; one that does not come is busy."""
    late, busy = timedelta(milliseconds=900), timedelta(milliseconds=1100)
    rate, of_queue = "1/h, burst 1" if is_used_up else "1000/s, burst 1000", reason is Reason.QUEUE_RATE

    def reasons() -> list[Reason | None]:
        with engine.connect() as connection:
            capacity, found, own = read_competition(connection, Target(None, QUEUE.name), ["a"])
            allows_at = capacity.rate_allows_at if of_queue else own[0].rate_allows_at
            assert allows_at is not None
            return [with_waits(capacity, found, (), own, allows_at + after)[0].reason for after in (late, busy)]

    if of_queue:
        QUEUE.configure(engine, rate=rate)
    else:
        QUEUE.configure_channel(engine, "a", rate=rate)
    enqueue(engine, "a", "a")
    [held] = lease(engine, 1)
    assert reasons() == [reason if is_used_up else Reason.CAPACITY, Reason.CAPACITY]
    QUEUE.complete(engine, held)
    assert reasons() == [reason if is_used_up else Reason.NEXT, Reason.NEXT]


@pytest.mark.parametrize("history", [True, False])
def test_what_is_out_longest(engine: Engine, database: Database, history: bool) -> None:  # noqa: FBT001
    """A limit of the tenant names its message that is out longest, a limit of the queue that of all tenants; without
    its kind, if that cannot be read.
    """
    QUEUE.configure(engine, history=history, max_concurrency=4)
    QUEUE.configure_channel(engine, "a", max_concurrency=2)
    first, *_ = enqueue(engine, "b", kind="render")
    assert len(lease(engine)) == 1
    own, *_, last = enqueue(engine, *"aaa", kind="parse")
    for _ in range(2):
        assert len(lease(engine, 1)) == 1

    def named(message_id: int) -> tuple[Reason, int | None, str | None]:
        message = _message(engine, message_id)
        tenant = _tenant(engine, message.channel)
        longest = tenant.wait.longest_out
        assert message.wait is not None
        assert longest is not None
        assert message.wait.longest_out == longest
        assert longest.since == _message(engine, longest.message_id).delivered_at
        assert f"; the longest is message {longest.message_id}" in reason_detail(tenant.channel, tenant.queue)
        return message.wait.reason, longest.message_id, longest.kind

    assert named(last) == (Reason.OWN_LIMIT, own, "parse")
    [_, other] = enqueue(engine, "c", "c")
    assert len(lease(engine, 1)) == 1
    assert named(other) == (Reason.QUEUE_LIMIT, first, "render")
    lose(database, first, "kind")
    wait = _message(engine, other).wait
    assert wait is not None
    assert wait.longest_out is not None
    assert (wait.reason, wait.longest_out.message_id, wait.longest_out.kind) == (Reason.QUEUE_LIMIT, first, None)


def test_since_when_a_single_message_is_out(engine: Engine) -> None:
    """Without a history that is known where the channel may have one message out: since its last dequeue."""
    QUEUE.configure_channel(engine, "a", max_concurrency=1)
    enqueue(engine, "a", "a", kind="parse")
    [held] = lease(engine)
    tenant = _tenant(engine, "a")
    longest = tenant.wait.longest_out
    assert longest is not None
    assert (longest.message_id, longest.since) == (held.message_id, tenant.channel.last_dequeue_at)
    assert re.search(r"1 of 1 message .* is out: message \d+, parse, for", reason_detail(tenant.channel, tenant.queue))
    QUEUE.complete(engine, held)
    tenant = _tenant(engine, "a")
    assert (tenant.reason, tenant.wait.longest_out) == (Reason.OWN_LIMIT, None)
    assert "has just ended" in reason_detail(tenant.channel, tenant.queue)


def test_what_a_drained_worker_left(engine: Engine) -> None:
    """Its own lease does not count: what nothing holds back waits for a consumer, unless another one is there."""

    def reasons(worker: str) -> list[tuple[str, int]]:
        with engine.connect() as connection:
            [left] = read_leftovers(connection, [QUEUE], worker)
        return [(str(one.reason), one.messages) for one in left.reasons]

    enqueue(engine, "a")
    assert reasons("drained") == [("no consumer", 1)]
    QUEUE.complete(engine, lease(engine, 1))
    enqueue(engine, "a", "b")
    [consumer] = QUEUE.admin.consumers(engine)
    assert reasons(consumer.consumer) == [("no consumer", 2)]
    assert reasons("drained") == [("next dequeue", 2)]
    QUEUE.configure_channel(engine, "a", rate="1/h, burst 1")
    _ = lease(engine, 2)
    enqueue(engine, "a")
    assert reasons(consumer.consumer) == [("rate", 1)]


def test_held(engine: Engine) -> None:
    """What waits for others of its ordering key is held, by what is out, tried again later, or dead."""
    QUEUE.configure(engine, on_dead="hold")
    first, second = enqueue(engine, "a", "a", ordering_key="k")
    [delivery] = lease(engine)

    def held() -> tuple[Reason | None, int | None, int, int]:
        assert lease(engine) == []
        tenant = _tenant(engine, "a")
        with engine.connect() as connection:
            [listed] = channel_waits(connection, QUEUE, QUEUE.channels(connection), read_clock(connection, None))
        assert (listed.wait, listed.held, listed.scheduled) == (
            tenant.channel.wait, tenant.channel.held, tenant.channel.scheduled,
        )  # fmt: skip
        assert not tenant.channel.competes or tenant.channel.leased
        message = _message(engine, second)
        assert (message.wait, message.state(tenant.queue.at)) == (tenant.channel.wait, "held")
        return tenant.reason, tenant.wait.behind, tenant.channel.held, tenant.channel.scheduled

    assert held() == (Reason.ORDERING_KEY, first, 1, 0)
    QUEUE.retry(engine, delivery, delay=timedelta(hours=1))
    assert held() == (Reason.ORDERING_KEY, first, 1, 1)
    QUEUE.admin.retry_now(engine, first)
    QUEUE.bury(engine, lease(engine), reason="bad")
    assert held() == (Reason.ORDERING_KEY, first, 1, 0)
    with engine.connect() as connection:
        [left] = read_leftovers(connection, [QUEUE], "worker")
    assert [str(one) for one in left.reasons] == ["ordering key: 1 in 1 channel"]
    QUEUE.dead_letters.purge(engine, [first])
    assert len(lease(engine)) == 1


def test_order_and_totals(engine: Engine) -> None:
    """The longest wait comes first, whatever the names; the figures of the whole queue count each channel once."""
    for channel in ("c", "a", "b"):
        enqueue(engine, channel)
    QUEUE.pause(engine, "a")
    figures = SharedFigures(engine).get().queues[QUEUE.name]
    assert [one.channel for one in figures.contention.channels] == ["c", "a", "b"]
    contention = figures.contention
    assert (contention.waiting, contention.rivals, contention.rival_weight, contention.leased) == (3, 2, 2, 0)
    assert list(contention.waits) == sorted(contention.waits)
    assert figures.oldest_ready is not None
    assert contention.waits[-1] >= figures.oldest_ready


def test_the_limit_keeps_the_longest_waits_and_the_most_held(engine: Engine) -> None:
    """With a limit come the channels that wait longest and those that hold most, and the figures are still of all."""
    _consume(engine, "x", "y", "y")
    enqueue(engine, "b")
    enqueue(engine, "a")
    contention = QUEUE.admin.contention(engine, limit=1)
    assert [one.channel for one in contention.channels] == ["b", "y"]
    assert (contention.waiting, contention.rivals, contention.leased) == (2, 4, 3)


def test_consumers(engine: Engine) -> None:
    """Each consumer is told with what it has held longest; since when, of queues that record their history."""
    enqueue(engine, "a", "b", kind="parse")
    [delivery] = lease(engine, 1)
    assert QUEUE.admin.consumers(engine)[0].delivered_at is None
    QUEUE.release(engine, delivery)
    QUEUE.configure(engine, history=True)
    [held] = lease(engine, 1)
    [consumer] = QUEUE.admin.consumers(engine)
    assert (consumer.leased, consumer.kind) == (1, "parse")
    assert (consumer.message_id, consumer.channel) == (held.message_id, held.channel)
    assert consumer.delivered_at is not None
    assert consumer.expires_at > consumer.delivered_at
    assert Queue("other").admin.consumers(engine) == []


def test_consumers_that_were_asked_to_stop(engine: Engine, database: Database) -> None:
    """It is told who asked and when, but not of one that took or waited for work after it: that started later."""
    QUEUE.configure(engine, history=True)
    enqueue(engine, "a", "b")
    lease(engine, 1)
    [name] = [one.consumer for one in QUEUE.admin.consumers(engine)]
    Queue("other").admin.stop_worker(engine, name)
    assert QUEUE.admin.consumers(engine)[0].stop_requested_at is None
    QUEUE.admin.stop_worker(engine, name, by="dana")
    [asked] = QUEUE.admin.consumers(engine)
    assert asked.stop_requested_by == "dana"
    assert asked.delivered_at is not None
    assert asked.stop_requested_at is not None
    assert asked.stop_requested_at > asked.delivered_at

    def marked(change: str) -> bool:
        database.execute(change)
        return QUEUE.admin.consumers(engine)[0].stop_requested_at is not None

    assert marked("update fq_message set delivered_at = fq_now() + 9000000 where lease_id is not null")
    assert not marked("update fq_message set delivered_at = fq_now() + 11000000 where lease_id is not null")
    assert marked("update fq_message set delivered_at = null")
    assert marked("update fq_lease set waiting_until = fq_now() + 70000000")
    assert not marked("update fq_lease set waiting_until = fq_now() + 75000000")
    assert marked("update fq_lease set waiting_until = null")
    assert not marked("update fq_stop_request set requested_at = requested_at - 3600000000")


def test_limits_that_are_none(engine: Engine) -> None:
    """A limit that is none is refused before the database is asked, and by it."""
    wrong: tuple[Any, ...] = (0, 100_001, True, "1")
    for limit in wrong:
        for call in (QUEUE.admin.contention, QUEUE.admin.consumers):
            with pytest.raises(InvalidArgument, match="limit"):
                call(engine, limit=limit)


def test_the_database_refuses(database: Database) -> None:
    """What cannot be asked for is an error of the function, with what to ask for."""
    for call in (
        *(f"fq_contention('q', {limit})" for limit in ("0", "null", "0, '{c}', 1, 1", "null, '{c}', 1, 1")),
        *(f"fq_contention('q', 1, {bounds})" for bounds in ("'{c}', 0, 1", "'{c}', null, 1", "'{c}', 1, 0")),
        "fq_contention('q', 1, null, 1, 1)", "fq_consumers('q', 0)",
        "fq_plan_channels('q', 'p', 0, 0)",
        "fq_message_details('q', '{1}', -1, 0)", "fq_message_details('q', '{1}', 0, -1)",
        "fq_longest_out('q', null, 0)", "fq_longest_out('q', '{c}', null)",
        "fq_dead_letter_groups('q', 0, 1)", "fq_dead_letter_groups('q', 1, null)",
        "fq_trend('q', null, 3600000000, 0)", "fq_trend('q', null, 86400000001, 60000000)",
        "fq_trend('q', null, null, 60000000)", "fq_handler_times('q', null, 1, '{1}', 0)",
        "fq_handler_times('q', null, 1, null, 1)", "fq_handler_times('q', null, 1, '{}', 1)",
        "fq_audits('q', null, null, null, null, 0)", "fq_record_audit('q', '', null, null, null, null)",
        "fq_recent_attempts('q', null, null, null, null, null, null, 0, 1, 1)",
        "fq_recent_attempts('q', 1, null, null, null, null, null, 1, 1, -1)",
    ):  # fmt: skip
        with pytest.raises(DBAPIError) as refused:
            database.rows(f"select * from {call}")
        assert getattr(refused.value.orig, "sqlstate", None) == "QF001", call


@pytest.mark.parametrize("fair_by", ["cost", "seconds"])
def test_shares_by_cost(engine: Engine, fair_by: FairBy) -> None:
    """In a queue that is fair by cost, the share is that of the cost that was served, and so is the reason."""
    QUEUE.configure(engine, fair_by=fair_by, history=True)
    for channel, cost in (("dear", 90), ("cheap", 5), ("cheap", 5)):
        enqueue(engine, channel, cost=cost)
    deliveries = lease(engine, 3)
    for one in deliveries:
        QUEUE.complete(engine, one, cost=90 if one.channel == "dear" else 5)
    enqueue(engine, "dear", "cheap", "cheap", "cheap")
    assert len(lease(engine, 3)) == 3
    enqueue(engine, "dear", "cheap")
    dear, cheap = _tenant(engine, "dear"), _tenant(engine, "cheap")
    assert (dear.shares, dear.reason) == ((0.9, 0.5), Reason.CAPACITY)
    assert (cheap.shares, cheap.reason) == ((0.1, 0.5), Reason.TURN)
    QUEUE.configure(engine, fair_by="messages")
    assert _tenant(engine, "dear").queue.contention.served_cost is None
