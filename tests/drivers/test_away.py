"""What says that the database cannot serve now is the same on every driver: by SQLSTATE, else by the driver's words."""

import asyncio
import contextlib
import socket
import struct
import threading
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import AsyncWorker, Delivery, Queue, RetryPolicy, Worker
from sqlalchemy_fairqueue.database.errors import is_away, sqlstate_of, translated
from tests.drivers.conftest import MakeFace
from tests.drivers.faces import AsyncFace, Face
from tests.drivers.test_errors import refused
from tests.fixtures.database import Database

_CODES = {
    True: "08006 08P01 25006 25P03 25P04 28000 53100 53300 53400 55P03 57014 57P01 57P03 57P05 58030",
    False: "0A000 22012 22P02 23505 25001 25P02 42501 42601 54000 55000 55006 P0001 XX000",
}


def _check(error: BaseException, *, away: bool) -> None:
    original = getattr(error, "orig", None)
    # SQLAlchemy makes one of its own of asyncpg's.
    for one in (error, *([original.__cause__ or original] if original is not None else ())):
        assert is_away(one) is away, repr(one)


def test_codes(face: Face) -> None:
    """An SQLSTATE decides it, through SQLAlchemy and without it, and is no error of ours."""
    for away, codes in _CODES.items():
        for code in codes.split():
            error = face.on_connection(partial(refused, code=code))
            assert (sqlstate_of(error), translated(error, "do something", {})) == (code, None)
            _check(error, away=away)


def _ended(connection: Connection, statement: str) -> DBAPIError:
    connection.execute(text("set statement_timeout = 1"))
    with pytest.raises(DBAPIError) as caught:
        connection.execute(text(statement))
    connection.rollback()
    return caught.value


def test_a_statement_that_was_ended(face: Face) -> None:
    """So does what a timeout or an administrator ended."""
    for statement in ("select pg_sleep(60)", "select pg_terminate_backend(pg_backend_pid())"):
        _check(face.on_connection(partial(_ended, statement=statement)), away=True)


def _reset(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = server.accept()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()


@pytest.mark.parametrize("why", ["refused", "reset", "no such host", "no such role", "no such database"])
def test_no_connection(make_face: MakeFace, database: Database, why: str) -> None:
    """A server that cannot be reached, or lets nobody in, is away: also where the driver raises the system's error."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if why == "refused":
            server.close()
        else:
            threading.Thread(target=_reset, args=(server,), daemon=True).start()
        urls = {
            "no such host": database.url.set(host="nowhere.invalid", query={}),
            "no such role": database.url.set(username="nobody"),
            "no such database": database.url.set(database="nowhere"),
        }
        url = urls.get(why, database.url.set(host="127.0.0.1", port=port, query={}))
        face = make_face(url)
        with pytest.raises(Exception) as caught:  # noqa: PT011 - the point is which it is
            face.on_connection(lambda _: None)
    _check(caught.value, away=True)


def test_errors_of_others() -> None:
    """An application's own exception is not the database's, whatever attributes it has, nor is another's connection."""

    class Own(Exception):
        sqlstate = "57P01"
        connection_invalidated = False

    async def other() -> Any:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        return await asyncio.open_connection("127.0.0.1", port)

    with pytest.raises(ConnectionRefusedError) as caught:
        asyncio.run(other())
    _check(caught.value, away=False)
    _check(Own(), away=False)


@pytest.mark.parametrize("statement", ["select pg_sleep(60)", "select 1 / 0"])
def test_a_policy_of_other_exceptions(face: Face, queue: Queue, statement: str) -> None:
    """A handler whose statement takes too long gets another attempt on each driver; one that asks nonsense does not."""
    policy = RetryPolicy(first=timedelta(), cap=timedelta(), max_attempts=2, retry_on=(ConnectionError,))
    statements = [text("set local statement_timeout = 20"), text(statement)]
    face.call(queue, "enqueue", channel="a", payload=1)
    if isinstance(face, AsyncFace):

        @queue.handler(retry=policy)
        async def ask(_: Delivery, session: AsyncSession) -> None:
            for one in statements:
                await session.execute(one)

        face.runner.run(AsyncWorker(face.engine, queue, concurrency=1, housekeeping=False).run(drain=True))
    else:

        @queue.handler(retry=policy)
        def sync_ask(_: Delivery, session: Session) -> None:
            for one in statements:
                session.execute(one)

        Worker(face.engine, queue, concurrency=1, housekeeping=False).run(drain=True)
    [letter] = face.call(queue, "dead_letters.list")
    assert letter.attempts == (2 if "sleep" in statement else 1)
