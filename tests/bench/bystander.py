"""A process that never enqueues, with the library imported or not. Must not import the library by itself."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_LIBRARY = "sqlalchemy_fairqueue"


def commit_again_and_again(pipe: Connection[Any, Any], url: str, sql: str, *, imported: bool) -> None:
    """Answer each number that comes through *pipe* with (wall, processor) seconds for so many transactions.

    A transaction is *sql* in a session of its own, and a commit.
    """
    if imported:
        __import__(_LIBRARY)
    from sqlalchemy import create_engine, text  # noqa: PLC0415 - the library, if at all, is imported first
    from sqlalchemy.orm import Session  # noqa: PLC0415 - as above

    engine = create_engine(url)
    statement = text(sql)
    while count := pipe.recv():
        began, used = time.perf_counter(), time.process_time()
        for _ in range(count):
            with Session(engine) as session, session.begin():
                session.execute(statement)
        pipe.send((time.perf_counter() - began, time.process_time() - used))
    pipe.send(_LIBRARY in sys.modules)
    engine.dispose()
