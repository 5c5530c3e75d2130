"""Row ids of deliveries: each driver sends them as they are, and a settlement does without them."""

from dataclasses import replace
from itertools import product
from typing import Any

from sqlalchemy import Connection, text

from sqlalchemy_fairqueue import Enqueue, Queue
from sqlalchemy_fairqueue.database.calls import Clause
from sqlalchemy_fairqueue.database.drivers import driver_of
from tests.drivers.faces import Face
from tests.drivers.test_verbs import SETTLING
from tests.fixtures.database import Database

_ROWS = ["(0,1)", "(7,65535)", "(4294967295,1)"]


def _answer(face: Face, database: Database, type_: str, value: Any) -> str:
    """What the server reads in a parameter of this type."""
    database.execute(f"create or replace function told(p {type_}) returns text language sql return cast(p as text)")
    clause = Clause(text(f"select cast(told as text) from told(cast(:p as {type_}))"), {"p": type_})

    def ask(connection: Connection) -> Any:
        return connection.execute(clause.statement, clause.encoded(driver_of(connection), {"p": value})).scalar_one()

    return str(face.on_connection(ask))


def test_row_ids_arrive(face: Face, database: Database) -> None:
    """Alone and in an array the server reads each row id as it is."""
    assert [_answer(face, database, "tid", row) for row in _ROWS] == _ROWS
    assert _answer(face, database, "tid[]", _ROWS) == "{" + ",".join(f'"{row}"' for row in _ROWS) + "}"


def test_a_wrong_row_id_settles_its_own_message(face: Face) -> None:
    """A row id is only where the server looks first: the message's own id decides, also if another one stands there."""
    for verb, settled in product(SETTLING, (1, 3)):
        queue = Queue(f"{verb} {settled}")
        messages = [Enqueue(channel="a", payload=number) for number in range(2 * settled)]
        face.call(queue, "enqueue_many", messages)
        taken = face.call(queue, "dequeue", limit=2 * settled)
        wrong = [replace(one, row_id=other.row_id) for one, other in zip(taken[:settled], taken[settled:], strict=True)]
        face.call(queue, verb, wrong, **SETTLING[verb])
        assert face.call(queue, "stats").leased == settled
        face.call(queue, "complete", taken[settled:])
        assert face.call(queue, "stats").leased == 0
