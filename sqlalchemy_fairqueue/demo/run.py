"""A run of the app on one service, the fair queue or the job table: customers upload, workers parse, one is killed.

A wait is the time from the transaction of the upload to the result, both by the database's clock.
"""

from __future__ import annotations

import contextlib
import os
import sysconfig
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from sqlalchemy import URL, ColumnElement, Engine, Float, cast, extract, func, select
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import install_fairqueue
from sqlalchemy_fairqueue.demo import fair, fifo
from sqlalchemy_fairqueue.demo.business import Base, SourceStats, Upload
from sqlalchemy_fairqueue.demo.endings import DemoError, end_if_asked
from sqlalchemy_fairqueue.demo.workers import SERVICES, Workers
from sqlalchemy_fairqueue.embedded import scratch_database
from sqlalchemy_fairqueue.embedded.server import disposed_engine
from sqlalchemy_fairqueue.models import DeadLetter, History, Message

BOB = "Bob"
LIBRARY = Path(sysconfig.get_path("stdlib"))
OTHERS = ("Alice", "Carol", "Dave", "Erin", "Frank", "Grace", "Heidi", "Ivan", "Judy", "Kim")
_ACCIDENT = 0.14
"""A worker is killed when the parsed files reach this share of Bob's number: early, so its lease ends in the run."""
_NOT_OURS = {"site-packages", "dist-packages", "__pycache__"}

# Seconds between two looks at the files. Each file adds about ten times as much to the pause as a look at it takes.
_PAUSE, _PAUSE_PER_FILE = 0.02, 100e-6
_PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Visit:
    """A customer who comes once, when the number of parsed files reaches *after*; *files* are paths by upload key."""

    customer: str
    files: dict[str, str]
    after: int = 0


def make_visits(seed: int, limit: int | None) -> list[Visit]:
    """Return Bob's visit, of at most *limit* files of the standard library, then ten others of up to five files each.

    The others come while Bob's files are parsed: the first at about 5 percent of them, the last at about 60 percent.
    """
    random = Random(seed)  # noqa: S311 - a repeatable scenario, no secret
    found = (path for path in LIBRARY.rglob("*.py") if _NOT_OURS.isdisjoint(path.relative_to(LIBRARY).parts))
    sources = sorted(path for path in found if os.access(path, os.R_OK))

    def visit(customer: str, files: list[Path], after: int = 0) -> Visit:
        return Visit(customer, {f"{customer}/{path.relative_to(LIBRARY)}": str(path) for path in files}, after)

    bobs = sorted(random.sample(sources, min(limit or len(sources), len(sources))))
    visits = [visit(BOB, bobs)]
    for number, customer in enumerate(OTHERS):
        share = 0.05 + 0.55 * (number + random.uniform(-0.3, 0.3)) / (len(OTHERS) - 1)
        files = random.sample(sources, min(random.randint(1, 5), len(sources)))
        visits.append(visit(customer, files, after=max(1, int(share * len(bobs)))))
    return visits


@dataclass(frozen=True, slots=True)
class File:
    """An upload. Times are seconds since the first upload of the run; without a result, *parsed* is the time now."""

    customer: str
    uploaded: float
    parsed: float
    key: str = ""
    done: bool = True

    @property
    def wait(self) -> float:
        return self.parsed - self.uploaded


@dataclass(frozen=True, slots=True)
class Accident:
    """The kill of a worker, its time in seconds after the first upload, and the keys of uploads that it had leased."""

    worker: str
    at: float
    keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class Run:
    """The present state of a run. *files* are its uploads, in the order of their parsing; unparsed files come last."""

    service: str
    files: list[File]
    accident: Accident | None = None

    @property
    def done(self) -> int:
        return sum(file.done for file in self.files)

    @property
    def orphans(self) -> list[File]:
        """The files that the killed worker had leased and did not complete; empty if no worker was killed."""
        if (accident := self.accident) is None:
            return []
        held = [file for file in self.files if file.key in accident.keys]
        return [file for file in held if file.parsed > accident.at or not file.done]

    @property
    def takeover(self) -> list[float]:
        """Seconds from the kill to the result of each orphan that has one."""
        return [file.parsed - self.accident.at for file in self.orphans if self.accident and file.done]

    def of(self, *customers: str) -> list[File]:
        return [file for file in self.files if file.customer in customers]

    def median(self, *customers: str) -> float:
        return median(file.wait for file in self.of(*customers))


@contextlib.contextmanager
def app_database(server: URL) -> Iterator[Engine]:
    with scratch_database(server) as url, disposed_engine(url) as engine:
        Base.metadata.create_all(engine)
        install_fairqueue(engine)
        fair.queue.configure(engine, history=True)
        yield engine


def play(service: str, engine: Engine, visits: list[Visit], workers: Workers) -> Iterator[Run]:
    """Let the customers visit a service, and yield the state of the run repeatedly, until all files are parsed.

    Once some files are parsed, a worker that has leased files is killed.

    Raises:
        DemoError: A worker failed, or nothing was parsed for a minute.
        AskedToEnd: A signal of the system asked the demo to end.
    """
    run, coming, moved_at = Run(service, []), list(visits), time.monotonic()
    total = sum(len(visit.files) for visit in visits)
    while run.done < total:
        while coming and coming[0].after <= run.done:
            upload(service, engine, coming.pop(0))
        end_if_asked()
        workers.watch(max(_PAUSE, _PAUSE_PER_FILE * len(run.files)))
        before, run = run.done, replace(run, files=files_of(engine))
        if run.accident is None and run.done >= max(1, _ACCIDENT * len(visits[0].files)):
            accident = _kill_one(service, engine, workers)
            run = replace(run, files=files_of(engine), accident=accident)
        # If the last commits of the killed worker completed all of its files, nobody takes over a file. So another
        # worker is killed.
        if run.accident and not run.orphans:
            run = replace(run, accident=None)
        yield run
        if run.done != before:
            moved_at = time.monotonic()
        elif time.monotonic() - moved_at > _PATIENCE:
            with Session(engine) as session:
                error = session.scalars(select(History.error).where(History.error.is_not(None)).limit(1)).first()
            problem = f"{run.done} of {total} files are parsed, and none was for {_PATIENCE:.0f} seconds"
            raise DemoError("\n".join(filter(None, [f"{service}: {problem}", error])))


def upload(service: str, engine: Engine, visit: Visit) -> None:
    with Session(engine) as session, session.begin():
        for key, path in visit.files.items():
            session.add(one := Upload(key=key, customer=visit.customer, path=path))
            SERVICES[service].line_up(session, one)


def _since_start(instant: Any) -> ColumnElement[float]:
    return cast(extract("epoch", instant - select(func.min(Upload.uploaded_at)).scalar_subquery()), Float)


def files_of(engine: Engine) -> list[File]:
    parsed = _since_start(func.coalesce(SourceStats.parsed_at, func.clock_timestamp()))
    columns = Upload.customer, _since_start(Upload.uploaded_at), parsed, Upload.key, SourceStats.id.is_not(None)
    with Session(engine) as session:
        rows = session.execute(select(*columns).outerjoin_from(Upload, SourceStats).order_by(parsed))
        return [File(*row) for row in rows]


def now(session: Session) -> float:
    return session.scalars(select(_since_start(func.clock_timestamp()))).one()


def _kill_one(service: str, engine: Engine, workers: Workers) -> Accident | None:
    with Session(engine) as session:
        for name in workers.members:
            held = SERVICES[service].held(name)
            if session.scalars(held.limit(1)).first() is not None:
                workers.replace(name)
                return Accident(name, now(session), frozenset(session.scalars(held)))
    return None


def left(session: Session) -> int:
    counts = (select(func.count()).select_from(model) for model in (Message, DeadLetter, fifo.Job))
    return sum(session.scalars(count).one() for count in counts)


def check(run: Run, engine: Engine, visits: list[Visit]) -> dict[str, int]:
    """Return totals by key, such as "lines". Raise DemoError unless each file has one result and no work is left."""
    results = Counter({key: 0 for visit in visits for key in visit.files})
    results.update(file.key for file in run.files if file.done)
    wrong = [f"{key} has {count}" for key, count in results.items() if count != 1]
    counts: dict[str, Any] = {name: func.sum(getattr(SourceStats, name)) for name in ("lines", "functions", "classes")}
    counts["errors"] = func.count(SourceStats.error)
    with Session(engine) as session:
        remaining = left(session)
        totals = session.execute(select(*counts.values())).one()
    if wrong or remaining:
        raise DemoError(
            f"{run.service}: of {len(results)} files {len(wrong)} have not exactly one result: {', '.join(wrong[:3])}; "
            f"{remaining} are left in the queue"
        )
    return dict(zip(counts, totals, strict=True))
