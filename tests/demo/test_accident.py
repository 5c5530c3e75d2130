from collections.abc import Callable

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.demo.accident import Accident, Takeover, takeover_of
from sqlalchemy_fairqueue.demo.app import fair
from sqlalchemy_fairqueue.demo.app.models import Customer
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database


def _takeover(engine: Engine, accident: Accident) -> Takeover:
    with Session(engine) as session:
        return takeover_of(accident, session)


def test_what_a_killed_worker_held_is_followed_to_its_end(
    app_engine: Engine, empty_database: Database, clock_of: Callable[..., Clock]
) -> None:
    """Files count as held by the dead worker whether still leased, taken back or done by others, and nothing else does;
    the seconds until others began count from the kill.
    """
    clock = clock_of(empty_database)
    with Session(app_engine) as session, session.begin():
        session.add_all([Customer(id=1, name="Bob"), Customer(id=2, name="Alice"), Customer(id=3, name="Carol")])
        fair.prepare(session)
    for customer, files in {1: ["bob/a", "bob/b"], 2: ["alice/a"], 3: ["carol/a"]}.items():
        fair.upload(app_engine, customer, dict.fromkeys(files, "nowhere"))
    lost = fair.queue.dequeue(app_engine, limit=4, lease=fair.LEASE)
    done, *_ = [delivery for delivery in lost if delivery.channel == "customer-3"]
    fair.queue.complete(app_engine, done)
    accident = Accident(done.lease.consumer, clock.now())

    takeover = _takeover(app_engine, accident)
    assert (takeover.held, takeover.leased, takeover.complete) == (3, 3, False)

    clock.advance(2 * fair.LEASE)
    others = Queue(fair.queue.name)
    again = others.dequeue(app_engine, limit=4, lease=fair.LEASE)
    others.complete(app_engine, again[:2])
    takeover = _takeover(app_engine, accident)
    assert (takeover.held, takeover.leased, takeover.open, takeover.complete) == (3, 0, 1, False)

    others.complete(app_engine, again[2])
    takeover = _takeover(app_engine, accident)
    assert (takeover.held, takeover.complete, takeover.customers) == (3, True, frozenset({"Bob", "Alice"}))
    assert 2 * fair.LEASE.total_seconds() < takeover.begun[0] <= takeover.begun[-1]
