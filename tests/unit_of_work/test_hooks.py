"""Messages enqueued by hooks of a flush or a commit are sent or refused with an error, never lost silently."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.orm import Session, sessionmaker

from sqlalchemy_fairqueue.errors import UnsentWork
from tests.fixtures.database import Database
from tests.unit_of_work.business import QUEUE, Upload, channels, taken

Listen = Callable[[Any, str, Callable[..., None]], None]
LEVELS = ["class", "factory", "instance"]
BEFORE = ["before_commit", "before_flush", "after_flush", "after_flush_postexec"]


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Listen until the test ends."""
    added: list[tuple[Any, str, Callable[..., None]]] = []

    def add(target: Any, name: str, hook: Callable[..., None]) -> None:
        event.listen(target, name, hook)
        added.append((target, name, hook))

    yield add
    for target, name, hook in added:
        event.remove(target, name, hook)


def _hook(*names: str) -> Callable[..., None]:
    """A hook that enqueues to these channels, in this order, when it is called for the first time."""
    todo = list(names)

    def hook(session: Session, *_: object) -> None:
        while todo:
            QUEUE.enqueue(session, channel=todo.pop(0), payload=1)

    return hook


def _target(level: str, factory: sessionmaker[Session], session: Session) -> object:
    return {"class": Session, "factory": factory, "instance": session}[level]


def test_hooks_before_the_commit(session_factory: sessionmaker[Session], database: Database, listen: Listen) -> None:
    """Hooks that run before the COMMIT may enqueue in any order, wherever they listen and whenever they were
    registered; it is sent, sorted.
    """
    for name, level, registered in product(BEFORE, LEVELS, ("first", "after an enqueue", "after a query")):
        if name == "after_flush_postexec" and registered != "first":
            continue
        with session_factory() as session:
            if registered == "after an enqueue":
                QUEUE.enqueue(session, channel="e", payload=1)
            if registered == "after a query":
                session.execute(text("select 1"))
            listen(_target(level, session_factory, session), name, _hook("c", "b", "d"))
            session.add(Upload(name="a"))
            session.commit()
        found, _ = taken(database)
        assert sorted(found) == ["b", "c", "d", *("e" if registered == "after an enqueue" else "")], (name, level)


def test_hook_of_the_hook(session_factory: sessionmaker[Session], database: Database, listen: Listen) -> None:
    """A hook that a commit hook registers is heard too: it comes after the sending, so that it is sent at once. An
    after_commit hook finds the receipts filled in.
    """
    seen = []

    def register(session: Session) -> None:
        event.listen(session, "before_commit", _hook("z"), once=True)

    listen(session_factory, "before_commit", register)
    with session_factory() as session:
        receipt = QUEUE.enqueue(session, channel="a", payload=1)
        listen(session, "after_commit", lambda _: seen.append(receipt.message_id))
        session.commit()
    assert channels(database) == ["a", "z"]
    assert seen == [receipt.message_id] != [None]


def test_flush_that_dirties_again(session_factory: sessionmaker[Session], database: Database, listen: Listen) -> None:
    """Flushes go on until nothing is dirty, before the work is sent: every flush hook's messages arrive."""
    uploads = iter("bcd")

    def chain(session: Session, *_: object) -> None:
        if (name := next(uploads, None)) is not None:
            session.add(Upload(name=name))
            QUEUE.enqueue(session, channel=name, payload=1)

    listen(session_factory, "after_flush_postexec", chain)
    with session_factory() as session:
        session.add(Upload(name="a"))
        session.commit()
    assert channels(database) == ["b", "c", "d"]


def test_savepoint_in_a_flush_hook(session_factory: sessionmaker[Session], database: Database) -> None:
    """A savepoint inside a flush hook decides over what it recorded."""

    def nested(session: Session, *_: object) -> None:
        savepoint = session.begin_nested()
        QUEUE.enqueue(session, channel="nested", payload=1)
        savepoint.commit() if session.info["released"] else savepoint.rollback()

    for name, released in product(BEFORE[1:], (True, False)):
        with session_factory(info={"released": released}) as session:
            event.listen(session, name, nested)
            session.add(Upload(name="a"))
            session.commit()
        assert taken(database)[0] == (["nested"] if released else []), name


def test_after_begin(session_factory: sessionmaker[Session], database: Database, listen: Listen) -> None:
    """A hook on the begin of a connection may enqueue, also when it is the sending that begins it."""
    listen(session_factory, "after_begin", _hook("a"))
    with session_factory() as session:
        QUEUE.enqueue(session, channel="b", payload=1)
        session.commit()
    assert sorted(channels(database)) == ["a", "b"]


def test_after_commit(session_factory: sessionmaker[Session], database: Database, listen: Listen) -> None:
    """After the COMMIT it is too late: an enqueue in after_commit is refused aloud, and the session usable after it."""
    for level, enqueued_before in zip(LEVELS, (True, False, True), strict=True):
        with session_factory() as session:
            listen(_target(level, session_factory, session), "after_commit", _hook("late"))
            if enqueued_before:
                QUEUE.enqueue(session, channel="kept", payload=1)
            session.add(Upload(name="a"))
            with pytest.raises(UnsentWork, match="committed or prepared already"):
                session.commit()
            # SQLAlchemy leaves a session whose after_commit hook failed to be closed.
            session.close()
            QUEUE.enqueue(session, channel="next", payload=1)
            session.commit()
        assert taken(database)[0] == [*(["kept"] if enqueued_before else []), "next"]


def test_after_commit_of_a_savepoint(
    session_factory: sessionmaker[Session], database: Database, listen: Listen
) -> None:
    """What an after_commit hook enqueues when a savepoint is released belongs to the transaction around it."""
    for level in LEVELS:
        with session_factory() as session:
            listen(_target(level, session_factory, session), "after_commit", _hook("a"))
            with session.begin_nested():
                pass
            assert channels(database) == []
            session.commit()
        assert taken(database)[0] == ["a"]


def test_after_rollback(session_factory: sessionmaker[Session], database: Database, listen: Listen) -> None:
    """An enqueue in after_rollback is refused aloud, for there is no transaction that it could join."""
    for level, nested in product(LEVELS, (True, False)):
        with session_factory() as session:
            listen(_target(level, session_factory, session), "after_rollback", _hook("refused"))
            session.add(Upload(name="a"))
            session.flush()
            transaction = session.begin_nested() if nested else session
            with pytest.raises(UnsentWork, match="was rolled back"):
                transaction.rollback()
            session.rollback()
            QUEUE.enqueue(session, channel="next", payload=1)
            session.commit()
        assert taken(database)[0] == ["next"]


def test_after_soft_rollback(session_factory: sessionmaker[Session], database: Database, listen: Listen) -> None:
    """In after_soft_rollback the session is active again, so that an enqueue joins the next transaction."""
    listen(session_factory, "after_soft_rollback", _hook("next"))
    with session_factory() as session:
        session.add(Upload(name="a"))
        session.flush()
        session.rollback()
        session.commit()
    assert channels(database) == ["next"]


def test_commit_that_a_later_hook_refused(
    session_factory: sessionmaker[Session], database: Database, listen: Listen
) -> None:
    """When a hook fails the commit after the work was sent, the next commit sends what was recorded since."""
    objections = ["not yet"]

    def register(session: Session) -> None:
        def object_once(_: Session) -> None:
            if objections:
                raise RuntimeError(objections.pop())

        event.listen(session, "before_commit", object_once, once=True)

    listen(session_factory, "before_commit", register)
    with session_factory() as session:
        receipt = QUEUE.enqueue(session, channel="a", payload=1)
        with pytest.raises(RuntimeError, match="not yet"):
            session.commit()
        QUEUE.enqueue(session, channel="b", payload=1)
        session.commit()
    assert channels(database) == ["a", "b"]
    assert receipt.message_id is not None


def test_hooks_registered_before_the_import(database: Database) -> None:
    """A hook that listened on the Session class before the library was imported is collected too."""
    program = f"""
from sqlalchemy import create_engine, event
from sqlalchemy.orm import Session
for name in {BEFORE!r}:
    todo = ["c", "b", "d"]
    def hook(session, *_, todo=todo, name=name):
        while todo:
            queue.enqueue(session, channel=f"{{todo.pop(0)}} {{name}}", payload=1)
    event.listen(Session, name, hook)
from sqlalchemy_fairqueue import Queue
from tests.unit_of_work.business import Upload
queue = Queue("documents")
engine = create_engine({database.url.render_as_string(hide_password=False)!r})
with Session(engine) as session:
    session.add(Upload(name="a"))
    session.commit()
engine.dispose()
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    assert sorted(channels(database)) == sorted(f"{channel} {name}" for channel in "bcd" for name in BEFORE)
