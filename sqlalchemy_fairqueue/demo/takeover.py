"""Takeover of a killed worker's files: the kill in mid-work, and how soon other workers have parsed the files.

All times are the database's. The kill is SIGKILL, which leaves a process no last word: the files that it holds stay
leased to it until the lease ends.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue.demo.app.models import Customer, SourceStats, Upload
from sqlalchemy_fairqueue.demo.services import SERVICES

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Engine

    from sqlalchemy_fairqueue.demo.worker_processes import WorkerProcesses


@dataclass(frozen=True, slots=True)
class Accident:
    """A worker was killed.

    Attributes:
        worker: Its name.
        killed_at: When.
        keys: The uploads that were leased to it then.
    """

    worker: str
    killed_at: datetime
    keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class Takeover:
    """The progress of the other workers with the files that a killed worker held.

    Attributes:
        accident: What happened.
        seconds: Time since the kill.
        held: How many files had no result when the worker was killed.
        results: For each of them that has one now: seconds from the kill to its result, in ascending order.
        customers: The customers whose files it held.
    """

    accident: Accident
    seconds: float
    held: int
    results: tuple[float, ...]
    customers: frozenset[str]

    @property
    def files(self) -> str:
        """The number of files, in words."""
        return f"{self.held} file{'s' if self.held > 1 else ''}"

    @property
    def complete(self) -> bool:
        """Whether others have parsed all that it held."""
        return len(self.results) == self.held


def kill_one(processes: WorkerProcesses, engine: Engine) -> Accident | None:
    """Kill a worker process that holds files, and start another, as a supervisor does. None: no worker holds any.

    The worker is stopped while the demo reads what it holds, so that it does not finish that work meanwhile.
    """
    for member in processes.members:
        with member.stopped() as pid, Session(engine) as session:
            keys = frozenset(SERVICES[processes.service].held(session, member.name))
            now = session.scalars(select(func.clock_timestamp())).one()
            if keys:
                os.kill(pid, signal.SIGKILL)
        if keys:
            processes.remove(member)
            processes.add()
            return Accident(member.name, now, keys)
    return None


def takeover_of(accident: Accident, session: Session) -> Takeover:
    """Read from the results how far the others are."""
    files = (
        select(Customer.name, SourceStats.parsed_at)
        .select_from(Upload)
        .join(Customer, Customer.id == Upload.customer_id)
        .outerjoin(SourceStats, SourceStats.upload_key == Upload.key)
        .where(Upload.key.in_(accident.keys))
    )
    now = session.scalars(select(func.clock_timestamp())).one()
    # A result from before the kill is the dead worker's own: its last commit was on the way.
    rows = [row for row in session.execute(files) if row.parsed_at is None or row.parsed_at > accident.killed_at]
    return Takeover(
        accident=accident,
        seconds=(now - accident.killed_at).total_seconds(),
        held=len(rows),
        results=tuple(sorted((row.parsed_at - accident.killed_at).total_seconds() for row in rows if row.parsed_at)),
        customers=frozenset(row.name for row in rows),
    )
