"""Calls that wait for an open transaction, and calls that do not: the table of docs/transactions.md."""

from collections.abc import Callable
from functools import partial
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, Delivery, Queue
from tests.fixtures.connections import Connect
from tests.fixtures.waits import Waits

Do = Callable[[Queue, Any, Delivery], object]

HOLDERS: dict[str, Do] = {
    "pause of the queue": lambda queue, where, _: queue.pause(where),
    "pause of a": lambda queue, where, _: queue.pause(where, "a"),
    "purge of a": lambda queue, where, _: queue.purge(where, "a"),
    "limit": lambda queue, where, _: queue.configure(where, max_concurrency=5),
    "cancel": lambda queue, where, out: queue.cancel(where, out.message_id),
    "complete": lambda queue, where, out: queue.complete(where, out),
    "redrive": lambda queue, where, _: queue.dead_letters.redrive(where),
}
CALLS: dict[str, Do] = {
    "enqueue": lambda queue, where, _: _enqueue(queue, where),
    "stats": lambda queue, where, _: queue.stats(where),
    "channels": lambda queue, where, _: queue.channels(where),
    "dead_letters": lambda queue, where, _: queue.dead_letters.list(where),
    "dequeue": lambda queue, where, _: queue.dequeue(where, limit=5),
    "history": lambda queue, where, _: queue.configure(where, history=True),
    "resume of a": lambda queue, where, _: queue.resume(where, "a"),
    "purge of a": lambda queue, where, _: queue.purge(where, "a"),
    "limit": lambda queue, where, _: queue.configure(where, max_concurrency=7),
    "cancel": lambda queue, where, out: queue.cancel(where, out.message_id),
    "redrive": lambda queue, where, _: queue.dead_letters.redrive(where),
    "pause of the queue": lambda queue, where, _: queue.pause(where),
}
# For whom a call waits; whatever is not here waits for nobody.
WAITS: dict[str, set[str]] = {
    "history": {"pause of the queue", "limit"},
    "pause of the queue": {"pause of the queue", "limit"},
    "resume of a": {"pause of a", "purge of a"},
    "purge of a": {"pause of a", "purge of a"},
    # Messages that are out are counted already.
    "limit": {"pause of the queue", "limit"},
    "cancel": {"cancel", "complete"},
}


def _enqueue(queue: Queue, engine: Engine) -> None:
    with Session(engine) as session:
        queue.enqueue(session, channel="a", payload=1)
        session.commit()


def _do(do: Do, queue: Queue, out: Delivery, engine: Engine) -> None:
    do(queue, engine, out)


def _out(queue: Queue, engine: Engine) -> Delivery:
    """A message that is out, beside one that is ready and a dead one, all of channel a."""
    queue.configure(engine, defaults=ChannelPolicy(), max_concurrency=3)
    for _ in range(3):
        _enqueue(queue, engine)
    held, dead = queue.dequeue(engine, limit=2)
    queue.bury(engine, dead)
    queue.pause(engine, "other", new=True)
    return held


def test_who_waits_for_whom(connect: Connect, waits: Waits, engine: Engine) -> None:
    """While a transaction is open that has done one thing, each call waits for it or does not, as the table says."""
    for name, hold in HOLDERS.items():
        queue = Queue(name)
        out = _out(queue, engine)
        connection = connect()
        for call, do in CALLS.items():
            hold(queue, connection, out)
            if name in WAITS.get(call, ()):
                rival = waits.start(partial(_do, do, queue, out)).blocked()
                connection.rollback()
                rival.result()
            else:
                waits.unhindered(partial(_do, do, queue, out))
                connection.rollback()
        connection.close()
