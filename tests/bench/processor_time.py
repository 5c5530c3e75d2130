"""Processor time of this process and of the backends of a database."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine


def server_seconds(engine: Engine) -> float:
    """The processor time of the backends of the database, to the nanosecond."""
    with engine.connect() as connection:
        pids = connection.execute(text("select pid from pg_stat_activity where datname = current_database()"))
        return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids.scalars()) / 1e9


def seconds_of_both(engine: Engine, work: Callable[[], object]) -> float:
    """The processor seconds that some work takes of this process and of the server."""
    gc.collect()
    before, began = server_seconds(engine), time.process_time()
    work()
    took = time.process_time() - began
    return took + server_seconds(engine) - before
