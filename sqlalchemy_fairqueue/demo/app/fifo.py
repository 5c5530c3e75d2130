"""The app on a plain job table, for comparison: first come, first served, with ``skip locked``, as many apps have it.

It makes the same writes as ``fair.py``: messages under a lease, one transaction a file. Its worker is a loop.
"""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - SQLAlchemy reads the annotations of columns
from typing import TYPE_CHECKING

from sqlalchemy import delete, func, or_, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from sqlalchemy_fairqueue.demo.app.models import LEASE, Base, Upload
from sqlalchemy_fairqueue.demo.app.parsing import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlalchemy import Engine


_IDLE = 0.02


class Job(Base):
    """A file to be parsed; gone when it is done."""

    __tablename__ = "fifo_job"

    id: Mapped[int] = mapped_column(primary_key=True)
    upload_key: Mapped[str]
    leased_to: Mapped[str | None]
    leased_until: Mapped[datetime | None]


def prepare(session: Session) -> None:
    """Nothing needs to be set up."""


def upload(engine: Engine, customer_id: int, files: Mapping[str, str]) -> None:
    """Store a customer's files, key to path, and ask for each to be parsed."""
    with Session(engine) as session, session.begin():
        for key, path in files.items():
            session.add(Upload(key=key, customer_id=customer_id, path=path))
            session.add(Job(upload_key=key))


def run(engine: Engine, name: str, ended: Callable[[float | None], bool]) -> None:
    """The work of a worker process: parse files until *ended*, which is given the seconds it may wait."""
    while not ended(0 if _work(engine, name) else _IDLE):
        pass


def _work(engine: Engine, name: str) -> int:
    jobs = _lease(engine, name, limit=5)
    for job in jobs:
        with Session(engine) as session, session.begin() as transaction:
            session.add(parse(session.get_one(Upload, job.upload_key)))
            ours = delete(Job).where(Job.id == job.id, Job.leased_until == job.leased_until).returning(Job.id)
            if session.scalars(ours).one_or_none() is None:  # the lease ended meanwhile: another worker has the job
                transaction.rollback()
    return len(jobs)


def held(session: Session, worker: str) -> Iterable[str]:
    """The keys of the uploads that are leased to a worker."""
    return session.scalars(select(Job.upload_key).where(Job.leased_to == worker))


def waiting(session: Session) -> int:
    """The number of jobs left."""
    return session.scalars(select(func.count()).select_from(Job)).one()


def _lease(engine: Engine, name: str, limit: int) -> Sequence[Job]:
    oldest = (
        select(Job.id)
        .where(or_(Job.leased_until.is_(None), Job.leased_until < func.now()))
        .order_by(Job.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    lease = {"leased_to": name, "leased_until": func.now() + LEASE}
    leased = update(Job).where(Job.id.in_(oldest)).values(lease).returning(Job)
    with Session(engine, expire_on_commit=False) as session, session.begin():
        return sorted(session.scalars(leased), key=lambda job: job.id)
