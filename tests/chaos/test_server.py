"""The server restarts under load, and connections are terminated."""

import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, NullPool, create_engine

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.embedded import Server
from tests.chaos.books import Books
from tests.chaos.children import start_child
from tests.chaos.conftest import Rescue, prepared
from tests.fixtures.database import Database


@pytest.fixture
def server(private_server: Callable[..., Server]) -> Server:
    """A server of the test's own."""
    return private_server()


@pytest.fixture
def own_books(server: Server) -> Books:
    """Books on that server."""
    engine = create_engine(server.url(), poolclass=NullPool)
    return Books(prepared(Database(server.url())), engine, Queue("documents", max_attempts=100))


def test_restarts_under_load(own_books: Books, server: Server, tmp_path: Path) -> None:
    """When the server crashes and recovers under workers at work, they go on, and nothing is lost or done twice."""
    books = own_books
    with contextlib.ExitStack() as stack:
        for asynchronous in False, True:
            child = start_child(
                books.database.url, tmp_path, f"child-{asynchronous}", asynchronous=asynchronous, lease=2.0
            )
            stack.callback(child.kill)
        for _ in range(2):
            books.get_under_way(20, "a", "b", "c", seconds=0.01)
            server.restart("immediate")
        books.until_done()
    books.check()


@pytest.fixture
def victim(database: Database) -> Iterator[Engine]:
    """An engine whose connections are known by their name."""
    engine = create_engine(database.url, connect_args={"application_name": "victim"})
    yield engine
    engine.dispose()


def test_terminated_connections(books: Books, rescue: Rescue, victim: Engine) -> None:
    """However often connections of a worker are terminated, at whatever they were, everything is done once."""
    rescue(engine=victim, lease=timedelta(seconds=2))
    for _ in range(6):
        books.get_under_way(8, "narrow", "wide", "other", seconds=0.002, more=3)
        books.terminate("victim", 3)
    books.until_done()
    books.check()
