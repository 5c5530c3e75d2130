"""Pauses, limits, the history and leased messages, as the models show them."""

from datetime import timedelta

from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, Queue
from sqlalchemy_fairqueue.models import Channel, History, Message, QueueConfig, QueueState
from tests.fixtures.clock import Clock


def test_paused(engine: Engine) -> None:
    """Whether a queue or a channel is paused is read in Python and asked for in a query."""
    queue = Queue("documents")
    queue.pause(engine)
    queue.pause(engine, "alice", new=True)
    queue.configure_channel(engine, "bob", ChannelPolicy(max_backlog=7, on_full="drop"))
    with Session(engine) as session:
        assert session.scalars(select(QueueConfig.name).where(QueueConfig.is_paused)).all() == ["documents"]
        assert session.scalars(select(Channel.name).where(Channel.is_paused)).all() == ["alice"]
        assert session.scalars(select(Channel.name).where(~Channel.is_paused)).all() == ["bob"]
        alice, bob = session.scalars(select(Channel).order_by(Channel.name))
        assert (alice.is_paused, bob.is_paused, alice.queue_config.is_paused) == (True, False, True)
        assert alice.state.paused_at is not None
        assert alice.state.paused_at.utcoffset() == timedelta()
        assert (bob.state.max_backlog, bob.state.on_full, bob.state.backlog, bob.state.dropped) == (7, "drop", 0, 0)


def test_queue_state(engine: Engine) -> None:
    """A queue with a limit on the whole has its count, and the other way round."""
    queue = Queue("documents")
    queue.configure(engine, max_concurrency=3, history=True, history_retention=timedelta(days=2))
    with Session(engine) as session:
        config = session.scalars(select(QueueConfig)).one()
        assert (config.max_concurrency, config.defaults, config.history) == (3, None, True)
        assert config.history_retention == timedelta(days=2)
        assert isinstance(config.state, QueueState)
        assert (config.state.max_concurrency, config.state.current_concurrency) == (3, 0)
        assert config.state.queue_config is config


def test_history(engine: Engine, clock: Clock) -> None:
    """An attempt that has ended tells how long it waited and how long it took, in Python and in a query."""
    queue = Queue("documents")
    queue.configure(engine, history=True)
    queue.enqueue(engine, channel="alice", payload=1, kind="parse")
    clock.advance(timedelta(minutes=5))
    [delivery] = queue.dequeue(engine)
    clock.advance(timedelta(minutes=1))
    queue.complete(engine, delivery)
    with Session(engine) as session:
        attempt = session.scalars(select(History)).one()
        assert (attempt.queue, attempt.channel, attempt.message_id) == ("documents", "alice", delivery.message_id)
        assert (attempt.kind, attempt.consumer, attempt.attempt) == ("parse", delivery.lease.consumer, 1)
        assert (attempt.outcome, attempt.error) == ("completed", None)
        assert attempt.enqueued_at == delivery.enqueued_at
        assert timedelta(minutes=5) <= attempt.wait < timedelta(minutes=6)
        assert timedelta(minutes=1) <= attempt.duration < timedelta(minutes=2)
        asked = select(History.wait, History.duration, func.max(History.wait).over())
        assert session.execute(asked).one() == (attempt.wait, attempt.duration, attempt.wait)
        assert session.scalar(select(func.count()).where(History.wait > timedelta(minutes=5))) == 1
        follow = select(History.id).where(History.recorded_xid >= attempt.recorded_xid)
        assert session.scalars(follow.order_by(History.recorded_xid, History.id)).all() == [attempt.id]
        assert session.scalar(select(func.count()).where(History.recorded_xid > attempt.recorded_xid)) == 0


def test_a_message_that_is_out(engine: Engine) -> None:
    """A message that was cancelled while it is out says so, and since when it is out."""
    queue = Queue("documents")
    queue.configure(engine, history=True)
    queue.enqueue(engine, channel="alice", payload=1)
    [delivery] = queue.dequeue(engine)
    queue.cancel(engine, delivery.message_id)
    with Session(engine) as session:
        message = session.scalars(select(Message)).one()
        assert (message.cancelled, message.returned_at) == (True, None)
        assert message.delivered_at is not None
        assert message.lease.waiting_until is None
