"""The app on a plain job table, for comparison: first come, first served, with ``skip locked``, as in many apps."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, Select, delete, func, or_, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from sqlalchemy_fairqueue.demo.business import LEASE, Base, Upload, parse

_IDLE = 0.02


class Job(Base):
    """The job to parse a file; the row is deleted when the file is parsed."""

    __tablename__ = "fifo_job"

    id: Mapped[int] = mapped_column(primary_key=True)
    upload_key: Mapped[str]
    leased_to: Mapped[str | None]
    leased_until: Mapped[datetime | None]


def line_up(session: Session, upload: Upload) -> None:
    session.add(Job(upload_key=upload.key))


def run(engine: Engine, name: str, ended: Callable[[float | None], bool]) -> None:
    """Parse files in this process, as a worker, until the run of the demo has ended; *ended* is as in ``fair.run``."""
    while not ended(0 if _work(engine, name) else _IDLE):
        pass


def _work(engine: Engine, name: str) -> int:
    jobs = lease(engine, name, limit=5)
    for job in jobs:
        with Session(engine) as session, session.begin() as transaction:
            session.add(parse(session.get_one(Upload, job.upload_key)))
            ours = delete(Job).where(Job.id == job.id, Job.leased_until == job.leased_until).returning(Job.id)
            if session.scalars(ours).one_or_none() is None:  # another worker took the job after the lease ended
                transaction.rollback()
    return len(jobs)


def lease(engine: Engine, name: str, limit: int) -> list[Job]:
    free = or_(Job.leased_until.is_(None), Job.leased_until < func.now())
    oldest = select(Job.id).where(free).order_by(Job.id).limit(limit).with_for_update(skip_locked=True)
    taken = {"leased_to": name, "leased_until": func.now() + LEASE}
    with Session(engine, expire_on_commit=False) as session, session.begin():
        jobs = session.scalars(update(Job).where(Job.id.in_(oldest)).values(taken).returning(Job))
        return sorted(jobs, key=lambda job: job.id)


def held(worker: str) -> Select[Any]:
    return select(Job.upload_key).where(Job.leased_to == worker)
