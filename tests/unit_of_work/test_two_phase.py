"""Two-phase sessions: the work is sent before PREPARE, so that it is prepared with the rest."""

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue.errors import UnsentWork
from tests.fixtures.database import Database
from tests.unit_of_work.business import QUEUE, Upload, channels, uploads


def _prepared(database: Database) -> int:
    return int(database.value("select count(*) from pg_prepared_xacts where database = current_database()"))


@pytest.mark.parametrize("committed", [True, False])
def test_prepare_and_then(engine: Engine, database: Database, *, committed: bool) -> None:
    """What was prepared is one with its second phase; the receipt knows only after a commit."""
    with Session(engine, twophase=True) as session:
        session.add(Upload(name="a"))
        receipt = QUEUE.enqueue(session, channel="alice", payload=1)
        session.prepare()
        assert _prepared(database) == 1
        assert receipt.message_id is None
        session.commit() if committed else session.rollback()
    assert (uploads(database), channels(database)) == ((["a"], ["alice"]) if committed else ([], []))
    assert (receipt.message_id is not None) is committed
    assert _prepared(database) == 0


def test_enqueue_after_prepare(engine: Engine, database: Database) -> None:
    """Between the phases nothing can be added: an enqueue is refused and the prepared transaction still commits."""
    with Session(engine, twophase=True) as session:
        QUEUE.enqueue(session, channel="alice", payload=1)
        session.prepare()
        with pytest.raises(UnsentWork, match="committed or prepared already"):
            QUEUE.enqueue(session, channel="bob", payload=1)
        session.commit()
    assert channels(database) == ["alice"]
