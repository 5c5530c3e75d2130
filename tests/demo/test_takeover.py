from collections.abc import Callable

import pytest
from sqlalchemy import Engine, delete
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue.demo import fair, fifo
from sqlalchemy_fairqueue.demo.business import LEASE, SourceStats
from sqlalchemy_fairqueue.demo.endings import DemoError
from sqlalchemy_fairqueue.demo.run import Accident, Run, Visit, check, files_of, now, upload
from sqlalchemy_fairqueue.demo.screen import story
from sqlalchemy_fairqueue.demo.workers import FAIR, FIFO, SERVICES

_CUSTOMERS = ("Bob", "Alice", "Carol")


def _lease_fair(engine: Engine) -> str:
    return fair.queue.dequeue(engine, limit=2, lease=LEASE)[0].lease.consumer


def _lease_fifo(engine: Engine) -> str:
    return str(fifo.lease(engine, "worker 1", limit=2)[0].leased_to)


def _result(session: Session, key: str) -> None:
    """Store the result of a file, now by the server's clock."""
    session.add(SourceStats(upload_key=key, lines=0, functions=0, classes=0, imports=0))
    session.commit()


@pytest.mark.parametrize(("service", "lease"), [(FAIR, _lease_fair), (FIFO, _lease_fifo)], ids=["fair", "fifo"])
def test_what_a_worker_holds_is_known(app_engine: Engine, service: str, lease: Callable[[Engine], str]) -> None:
    """Both services know the uploads that are leased to a worker, and no others."""
    for customer in _CUSTOMERS:
        upload(service, app_engine, Visit(customer, {f"{customer}/a": "nowhere"}))
    worker = lease(app_engine)
    with Session(app_engine) as session:
        assert sorted(session.scalars(SERVICES[service].held(worker))) == ["Alice/a", "Bob/a"]
        assert list(session.scalars(SERVICES[service].held("another"))) == []


def test_what_a_killed_worker_held_is_followed_to_its_end(app_engine: Engine) -> None:
    """Files that had no result at the kill count as held until others have parsed them, and the seconds count from the
    kill; a result from before is the dead worker's own.
    """
    for customer in _CUSTOMERS:
        upload(FIFO, app_engine, Visit(customer, {f"{customer}/a": "nowhere", f"{customer}/b": "nowhere"}))
    with Session(app_engine) as session:
        _result(session, "Carol/a")
        accident = Accident("worker 1", now(session), frozenset({"Bob/a", "Alice/a", "Carol/a"}))
        session.commit()
        assert Run(FIFO, files_of(app_engine)).orphans == []

        def run() -> Run:
            return Run(FIFO, files_of(app_engine), accident)

        assert {file.customer for file in run().orphans} == {"Bob", "Alice"}
        assert (len(run().orphans), run().takeover) == (2, [])
        assert "2 files[/] in its hands" in story(run())[0]

        _result(session, "Bob/b")
        _result(session, "Bob/a")
        assert (len(run().orphans), len(run().takeover)) == (2, 1)
        assert "others have parsed 1" in story(run())[1]

        _result(session, "Alice/a")
        assert len(run().orphans) == 2
        assert 0 < run().takeover[0] < run().takeover[1]
        assert run().files[-1].wait >= 0
        assert "Others had parsed them" in story(run())[1]


def test_each_file_must_have_one_result(app_engine: Engine) -> None:
    """A run in which a file has none or two, or that leaves jobs, is refused with the number of each."""
    visit = Visit("Bob", {"Bob/a": "nowhere", "Bob/b": "nowhere"})
    upload(FIFO, app_engine, visit)
    with Session(app_engine) as session:
        _result(session, "Bob/a")
        _result(session, "Bob/a")
        with pytest.raises(DemoError, match=r"of 2 files 2 .*: Bob/a has 2, Bob/b has 0; 2 are left in the queue"):
            check(Run(FIFO, files_of(app_engine)), app_engine, [visit])
        session.execute(delete(SourceStats).where(SourceStats.id > 1))
        _result(session, "Bob/b")
        with pytest.raises(DemoError, match=r"of 2 files 0 .* 2 are left"):
            check(Run(FIFO, files_of(app_engine)), app_engine, [visit])
        session.execute(delete(fifo.Job))
        session.commit()
        assert check(Run(FIFO, files_of(app_engine)), app_engine, [visit])["lines"] == 0
