"""Outcome of a run, read from the business tables: how long each customer waited, and whether every file is done.

A wait is the time from the transaction that uploads a file to the result of its parsing, both by the database's clock.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue.demo.app.models import Customer, SourceStats, Upload
from sqlalchemy_fairqueue.demo.errors import DemoError
from sqlalchemy_fairqueue.demo.services import SERVICES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Engine

    from sqlalchemy_fairqueue.demo.scenario import Scenario
    from sqlalchemy_fairqueue.demo.takeover import Takeover


@dataclass(frozen=True, slots=True)
class Served:
    """One file; seconds since the first upload of the run.

    Attributes:
        customer: Whose.
        uploaded: When it came.
        parsed: When its result was there.
    """

    customer: str
    uploaded: float
    parsed: float

    @property
    def wait(self) -> float:
        """Seconds from upload to result."""
        return self.parsed - self.uploaded


@dataclass(frozen=True, slots=True)
class Findings:
    """The contents of all files together."""

    lines: int
    functions: int
    classes: int
    errors: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run.

    Attributes:
        service: Its name.
        served: All files, in the order in which they were parsed.
        findings: What they hold.
        killed_at: When a worker was killed, in seconds since the first upload.
        takeover: What became of its work.
    """

    service: str
    served: tuple[Served, ...]
    findings: Findings
    killed_at: float | None = None
    takeover: Takeover | None = None

    @property
    def seconds(self) -> float:
        """From the first upload to the last result."""
        return self.served[-1].parsed

    def of(self, *customers: str) -> Waits:
        """The waits of these customers."""
        return Waits.of([served for served in self.served if served.customer in customers])


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits of some customers, in seconds.

    Attributes:
        files: How many files they are of.
        median: Half of them waited no longer.
        p95: 95 of 100 waited no longer (nearest rank).
        last_parsed: When the last was parsed, in seconds since the start.
    """

    files: int
    median: float
    p95: float
    last_parsed: float

    @classmethod
    def of(cls, served: Iterable[Served]) -> Waits:
        """Sum up."""
        served = list(served)
        waits = sorted(one.wait for one in served)
        p95 = waits[math.ceil(0.95 * len(waits)) - 1]
        return cls(len(waits), median(waits), p95, max(one.parsed for one in served))


def measure(service: str, engine: Engine, scenario: Scenario, takeover: Takeover | None) -> Outcome:
    """Read the outcome of a run, and check that each upload has one result and nothing is left in the queue.

    Args:
        service: Its name.
        engine: Its database.
        scenario: What was played.
        takeover: What became of the work of a killed worker.

    Raises:
        DemoError: That is not so.
    """
    files = (
        select(Upload.key, Customer.name, Upload.uploaded_at, SourceStats.parsed_at)
        .select_from(Upload)
        .join(Customer, Customer.id == Upload.customer_id)
        .join(SourceStats, SourceStats.upload_key == Upload.key)
        .order_by(SourceStats.parsed_at)
    )
    totals = select(
        func.sum(SourceStats.lines),
        func.sum(SourceStats.functions),
        func.sum(SourceStats.classes),
        func.count(SourceStats.error),
    )
    with Session(engine) as session:
        rows = session.execute(files).all()
        uploads = set(session.scalars(select(Upload.key)))
        findings = Findings(*session.execute(totals).one())
        left = SERVICES[service].waiting(session)
    _verify(service, scenario, uploads, Counter(row.key for row in rows), left)
    start = min(row.uploaded_at for row in rows)
    served = tuple(
        Served(row.name, (row.uploaded_at - start).total_seconds(), (row.parsed_at - start).total_seconds())
        for row in rows
    )
    killed_at = (takeover.accident.killed_at - start).total_seconds() if takeover else None
    return Outcome(service, served, findings, killed_at, takeover)


def _verify(service: str, scenario: Scenario, uploads: set[str], results: Counter[str], left: int) -> None:
    expected = {key for visit in scenario.visits for key in visit.files}
    missing, twice = uploads - results.keys(), [key for key, count in results.items() if count > 1]
    if uploads != expected or missing or twice or left:
        problem = (
            f"{service}: of {len(expected)} files {len(uploads)} were uploaded; {len(missing)} of these have no result"
            f"{sorted(missing)[:3] or ''} and {len(twice)} more than one{twice[:3] or ''}; {left} are left in the queue"
        )
        raise DemoError(problem)
