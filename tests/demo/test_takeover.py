from collections.abc import Callable, Mapping
from datetime import datetime

import pytest
from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue.demo.app import fair, fifo
from sqlalchemy_fairqueue.demo.app.models import LEASE, Customer, SourceStats
from sqlalchemy_fairqueue.demo.services import Service
from sqlalchemy_fairqueue.demo.takeover import Accident, takeover_of

_NAMES = {1: "Bob", 2: "Alice", 3: "Carol"}


def _lease_fair(engine: Engine) -> str:
    return fair.queue.dequeue(engine, limit=2, lease=LEASE)[0].lease.consumer


def _lease_fifo(engine: Engine) -> str:
    return str(fifo._lease(engine, "worker 1", limit=2)[0].leased_to)


def _result(session: Session, key: str) -> None:
    """Store the result of a file, now by the server's clock."""
    session.add(SourceStats(upload_key=key, lines=0, functions=0, classes=0, imports=0))
    session.commit()


def _now(session: Session) -> datetime:
    now: datetime = session.scalars(select(func.clock_timestamp())).one()
    session.commit()
    return now


@pytest.fixture
def customers(app_engine: Engine) -> Mapping[int, str]:
    """Three customers, by id."""
    with Session(app_engine) as session, session.begin():
        session.add_all(Customer(id=number, name=name) for number, name in _NAMES.items())
    return _NAMES


@pytest.mark.parametrize(("service", "lease"), [(fair, _lease_fair), (fifo, _lease_fifo)], ids=["fair", "fifo"])
def test_what_a_worker_holds_is_known(
    app_engine: Engine, customers: Mapping[int, str], service: Service, lease: Callable[[Engine], str]
) -> None:
    """Both services know the uploads that are leased to a worker, and no others."""
    for number in customers:
        service.upload(app_engine, number, {f"{number}/a": "nowhere"})
    worker = lease(app_engine)
    with Session(app_engine) as session:
        assert sorted(service.held(session, worker)) == ["1/a", "2/a"]
        assert list(service.held(session, "another")) == []


def test_what_a_killed_worker_held_is_followed_to_its_end(app_engine: Engine, customers: Mapping[int, str]) -> None:
    """Files that had no result at the kill count as held until others have parsed them, and the seconds count from the
    kill; a result from before is the dead worker's own.
    """
    for number in customers:
        fifo.upload(app_engine, number, {f"{number}/a": "nowhere", f"{number}/b": "nowhere"})
    held = frozenset({"1/a", "2/a", "3/a"})
    with Session(app_engine) as session:
        _result(session, "3/a")
        accident = Accident("worker 1", _now(session), held)
        takeover = takeover_of(accident, session)
        assert (takeover.held, takeover.results, takeover.complete) == (2, (), False)
        assert takeover.customers == {"Bob", "Alice"}

        _result(session, "1/b")
        _result(session, "1/a")
        takeover = takeover_of(accident, session)
        assert (takeover.held, len(takeover.results), takeover.complete) == (2, 1, False)

        _result(session, "2/a")
        takeover = takeover_of(accident, session)
        assert (takeover.held, takeover.complete) == (2, True)
        assert 0 < takeover.results[0] < takeover.results[1] <= takeover.seconds
