"""Leases and waits by the typed calls: what goes in and comes out are Python's values."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from sqlalchemy_fairqueue import Delivery, Queue
from sqlalchemy_fairqueue.database.calls import Target
from sqlalchemy_fairqueue.database.deliveries import (
    SettlementVerb,
    Token,
    extend_lease,
    find_holder,
    heartbeat,
    held_tokens,
    settlement,
)
from sqlalchemy_fairqueue.database.engines import run, set_lock_timeout
from tests.fixtures.connections import Connect

HOUR = timedelta(hours=1)
TARGET = Target(None, "documents")


@pytest.fixture
def batch(queue: Queue, engine: Engine) -> list[Delivery]:
    """Two messages under one lease."""
    for number in range(2):
        queue.enqueue(engine, channel="a", payload=number)
    return queue.dequeue(engine, limit=2)


def _tokens(batch: list[Delivery]) -> list[Token]:
    return [Token(one.message_id, one.row_id, one.lease.id, one.deliveries) for one in batch]


def _settled(engine: Engine, verb: SettlementVerb, tokens: list[Token], **values: Any) -> list[tuple[Any, ...]]:
    settled = run(engine, lambda on: settlement(TARGET, verb, tokens, **values).rows(on))
    return list(map(tuple, settled))


def test_held(engine: Engine, batch: list[Delivery]) -> None:
    """The tokens of what is held under a lease settle it; then nothing is held."""
    lease_id = batch[0].lease.id
    held = run(engine, lambda connection: held_tokens(connection, TARGET, lease_id))
    assert held == sorted(_tokens(batch))
    assert _settled(engine, "release", held, delays=[None, HOUR]) == []
    assert run(engine, lambda connection: held_tokens(connection, TARGET, lease_id)) == []


def test_what_is_not_settled(engine: Engine, batch: list[Delivery]) -> None:
    """A token that is not valid any more is answered as lost, beside those that are settled."""
    first, second = _tokens(batch)
    stale = second._replace(deliveries=second.deliveries + 1)
    assert _settled(engine, "complete", [first, stale]) == [(second.message_id, "lost")]
    assert run(engine, lambda connection: find_holder(connection, TARGET, second.message_id)) == (
        batch[1].lease.consumer
    )


def test_extensions(engine: Engine, batch: list[Delivery]) -> None:
    """Extend and heartbeat say when a lease ends now, and None for one that is not there."""
    lease_id = batch[0].lease.id
    until = run(engine, lambda connection: extend_lease(connection, TARGET, _tokens(batch), HOUR))
    assert until is not None
    assert HOUR - timedelta(minutes=1) < until - datetime.now(UTC) < HOUR + timedelta(minutes=1)
    beaten = run(engine, lambda connection: heartbeat(connection, TARGET, [lease_id, 17], 2 * HOUR))
    found = {lease.lease_id: lease for lease in beaten}
    assert found.keys() == {lease_id, 17}
    assert (found[lease_id].expires_at or until) > until
    assert (found[17].expires_at, found[lease_id].cancelled) == (None, [])
    lost = [token._replace(lease_id=17) for token in _tokens(batch)]
    assert run(engine, lambda connection: extend_lease(connection, TARGET, lost, HOUR)) is None


def test_lock_timeout(connect: Connect) -> None:
    """A statement of the connection fails when it has waited that long for a lock."""
    holder, waiting = connect(), connect()
    holder.execute(text("lock table fq_message in access exclusive mode"))
    set_lock_timeout(waiting, timedelta(milliseconds=20))
    with pytest.raises(OperationalError, match="lock timeout"):
        waiting.execute(text("select from fq_message"))
