"""The library keeps no session, transaction or connection alive, and nothing of one transaction for the next."""

import gc
import weakref
from collections.abc import Callable

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import FairQueueError, Queue
from sqlalchemy_fairqueue.errors import UnsentWork
from sqlalchemy_fairqueue.unit_of_work import sending, sessions
from tests.unit_of_work.business import QUEUE, Upload


def _fail(session: Session) -> None:
    Queue("documents", schema="nowhere").enqueue(session, channel="a", payload=1)
    with pytest.raises(FairQueueError):
        session.commit()
    session.connection().invalidate()


def _swallow(session: Session) -> None:
    session.add_all([Upload(name="same"), Upload(name="same")])
    with pytest.raises(IntegrityError):
        session.flush()
    with pytest.raises(UnsentWork):
        QUEUE.enqueue(session, channel="a", payload=1)


def _abandon(session: Session) -> None:
    session.begin_nested()
    QUEUE.enqueue(session, channel="a", payload=1)


@pytest.fixture(autouse=True, scope="module")
def _frozen() -> None:
    """What earlier tests have left is not visited each time that this module collects garbage."""
    gc.collect()
    gc.freeze()


def _lock_orders() -> int:
    # What the first round frees may hold the last reference to more.
    while gc.collect():
        pass
    return len(sending._lock_orders)


@pytest.mark.parametrize("end", [Session.commit, Session.rollback, Session.close, _fail, _swallow, _abandon])
@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")
def test_no_session_is_kept(engine: Engine, end: Callable[[Session], None]) -> None:
    """A session that is dropped is collected, however its last transaction ended, failed or was left open."""
    before = _lock_orders()
    session = Session(engine)
    with session.begin_nested():
        QUEUE.enqueue(session, channel="a", payload=1)
        QUEUE.enqueue(session.connection(), channel="a", payload=1)
    end(session)
    gone = weakref.ref(session)
    del session
    assert _lock_orders() <= before
    assert gone() is None


def test_no_transaction_is_kept(engine: Engine) -> None:
    """A session, or a connection, that lives on keeps no entry of the transactions that ended."""
    before = _lock_orders()
    with Session(engine) as session, engine.connect() as connection:
        for _ in range(3):
            QUEUE.enqueue(session, channel="a", payload=1)
            with session.begin_nested():
                QUEUE.enqueue(session.connection(), channel="a", payload=1)
            session.commit()
            QUEUE.enqueue(connection, channel="a", payload=1)
            connection.commit()
        assert _lock_orders() <= before
        assert vars(session)[sessions._STATE].records == {}


def test_a_session_without_queue_work_is_not_looked_up(engine: Engine) -> None:
    """Reads and a commit leave a session unmarked, which keeps its commits cheap; queue work marks it."""
    with Session(engine) as session:
        session.execute(text("select 1"))
        session.commit()
        assert sessions._STATE not in vars(session)
        QUEUE.enqueue(session, channel="a", payload=1)
        assert sessions._STATE in vars(session)


def test_a_session_is_listened_to_once(engine: Engine) -> None:
    """However often a session enqueues, it has one listener more; without listeners of others none."""
    with Session(engine) as session:
        QUEUE.enqueue(session, channel="a", payload=1)
        assert len(session.dispatch.before_commit) == 1
        event.listen(session, "before_commit", lambda _: None)
        before = len(session.dispatch.before_commit)
        for _ in range(3):
            QUEUE.enqueue(session, channel="a", payload=1)
            session.commit()
        assert len(session.dispatch.before_commit) == before + 1


def test_no_queue_keeps_an_engine(engine: Engine) -> None:
    """What dequeue remembers of an engine goes with the engine."""
    queue = Queue("documents")
    option = engine.execution_options()
    queue.dequeue(option)
    assert len(queue._consumers) == 1
    del option
    gc.collect()
    assert len(queue._consumers) == 0
