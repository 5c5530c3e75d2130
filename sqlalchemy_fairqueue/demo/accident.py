"""The accident: a worker process is killed in mid-work, and the history tells who did its work instead, and how soon.

All times are the database's. The kill is SIGKILL, which leaves a process no last word: whatever it held stays leased to
it until the lease ends.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session, aliased

from sqlalchemy_fairqueue.demo.app.models import Customer
from sqlalchemy_fairqueue.models import History, Lease, Message

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Engine, ScalarSelect

    from sqlalchemy_fairqueue.demo.crew import Crew


@dataclass(frozen=True, slots=True)
class Accident:
    """A worker was killed.

    Attributes:
        worker: Its name.
        killed_at: When.
    """

    worker: str
    killed_at: datetime


@dataclass(frozen=True, slots=True)
class Takeover:
    """How far the others are with what a killed worker held. Seconds count from the kill.

    Attributes:
        accident: What happened.
        seconds: How long ago that is.
        leased: Files that are still leased to it.
        begun: When another worker began with each of those that it has completed since.
        open: Files that were taken back from it and are not completed yet.
        customers: Whose files it held.
    """

    accident: Accident
    seconds: float
    leased: int
    begun: tuple[float, ...]
    open: int
    customers: frozenset[str]

    @property
    def held(self) -> int:
        """How many files it held when it was killed."""
        return self.leased + self.open + len(self.begun)

    @property
    def files(self) -> str:
        """How many these are, in words."""
        return f"{self.held} file{'s' if self.held > 1 else ''}"

    @property
    def complete(self) -> bool:
        """Whether others have completed all that it held."""
        return not self.leased and not self.open


def kill_one(crew: Crew, engine: Engine) -> Accident | None:
    """Kill a worker process that holds messages, and start another, as a supervisor does. None: no worker holds any.

    It stands still while it is looked up what it holds, so that it does not end that work meanwhile.
    """
    for member in crew.members:
        with member.stopped() as pid, Session(engine) as session:
            held, now = session.execute(select(_leased_to(member.name), func.clock_timestamp())).one()
            if held:
                os.kill(pid, signal.SIGKILL)
        if held:
            crew.remove(member)
            crew.hire()
            return Accident(member.name, now)
    return None


def takeover_of(accident: Accident, session: Session) -> Takeover:
    """Read from the history how far it is."""
    again = aliased(History)
    taken_back = (
        select(Customer.name, func.min(again.started_at).label("begun_at"))
        .select_from(History)
        .join(Customer, History.channel == func.concat("customer-", Customer.id))
        .outerjoin(again, and_(again.message_id == History.message_id, again.outcome == "completed"))
        .where(
            History.consumer == accident.worker,
            History.outcome == "expired",
            History.finished_at >= accident.killed_at,
        )
        .group_by(History.message_id, Customer.name)
    )
    # One statement after the other would count a file twice that is taken back between them: one snapshot for all.
    session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
    leased, now = session.execute(select(_leased_to(accident.worker), func.clock_timestamp())).one()
    rows = session.execute(taken_back).all()
    begun = sorted((row.begun_at - accident.killed_at).total_seconds() for row in rows if row.begun_at)
    return Takeover(
        accident=accident,
        seconds=(now - accident.killed_at).total_seconds(),
        leased=leased,
        begun=tuple(begun),
        open=len(rows) - len(begun),
        customers=frozenset(row.name for row in rows),
    )


def _leased_to(worker: str) -> ScalarSelect[int]:
    leased = select(func.count()).select_from(Message).join(Lease, Lease.id == Message.lease_id)
    return leased.where(Lease.consumer == worker).scalar_subquery()
