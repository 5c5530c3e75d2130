"""One run of the scenario on one service: customers upload, workers parse, until every file is done."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from sqlalchemy import Interval, cast, func, select
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue.demo.app.models import Customer, SourceStats, Upload
from sqlalchemy_fairqueue.demo.errors import DemoError
from sqlalchemy_fairqueue.demo.services import SERVICES
from sqlalchemy_fairqueue.demo.signals import end_if_asked
from sqlalchemy_fairqueue.demo.takeover import kill_one, takeover_of
from sqlalchemy_fairqueue.demo.worker_processes import running_workers
from sqlalchemy_fairqueue.models import History

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from sqlalchemy_fairqueue.demo.scenario import Scenario, Visit
    from sqlalchemy_fairqueue.demo.takeover import Accident, Takeover
    from sqlalchemy_fairqueue.demo.worker_processes import WorkerProcesses

_TICK = 0.1
_ATTENTIVE = 0.02
_PATIENCE = 60.0
_FILES_A_TRANSACTION = 200


@dataclass(frozen=True, slots=True)
class Standing:
    """The progress of a customer.

    Attributes:
        uploaded: Files uploaded so far.
        parsed: How many of them are parsed.
        longest_wait: Seconds from upload to result, or until now; the longest of any file.
    """

    uploaded: int
    parsed: int
    longest_wait: float


Standings = dict[str, Standing]


class Audience(Protocol):
    """The observer of a run."""

    def tell(self, stage: str) -> None:
        """Hear what is going on now."""

    def show(self, service: str, standings: Standings) -> None:
        """Hear where the customers stand."""

    def show_takeover(self, service: str, takeover: Takeover) -> None:
        """Hear how far the others are with the work of a worker that was killed."""


def perform(name: str, engine: Engine, scenario: Scenario, workers: int, audience: Audience) -> Takeover | None:
    """Play the scenario on a service, and tell the audience how it goes ten times a second.

    One worker is killed in mid-work; what became of its work is returned. None: no worker held a file at that time.

    Raises:
        DemoError: A worker failed, or nothing was parsed for a minute.
        AskedToEndError: A signal asked for it.
    """
    with Session(engine) as session, session.begin():
        customers = [Customer(name=visit.customer) for visit in scenario.visits]
        session.add_all(customers)
        session.flush()
        ids = {customer.name: customer.id for customer in customers}
        SERVICES[name].prepare(session)

    with running_workers(name, engine.url, workers) as running:
        running.wait_until_ready()
        audience.tell(f"{name}: at work")
        coming = list(scenario.visits)
        run = _Run(name, engine, scenario, running, audience)
        for parsed in run.progress():
            while coming and coming[0].after <= parsed:
                visit = coming.pop(0)
                _upload(name, engine, ids[visit.customer], visit)
    return run.takeover


def _upload(name: str, engine: Engine, customer_id: int, visit: Visit) -> None:
    files = iter(visit.files.items())
    while some := dict(islice(files, _FILES_A_TRANSACTION)):
        SERVICES[name].upload(engine, customer_id, some)


class _Run:
    """A run under way: what is seen of it, and the accident."""

    def __init__(
        self, name: str, engine: Engine, scenario: Scenario, running: WorkerProcesses, audience: Audience
    ) -> None:
        self._name = name
        self._engine = engine
        self._scenario = scenario
        self._processes = running
        self._audience = audience
        self._accident: Accident | None = None
        self.takeover: Takeover | None = None

    def progress(self) -> Iterator[int]:
        """Yield how many files are parsed, again and again until all are."""
        parsed, moved_at = 0, time.monotonic()
        while parsed < self._scenario.files:
            yield parsed
            end_if_asked()
            to_come = self._accident is None
            self._processes.watch(_ATTENTIVE if to_come else _TICK)
            standings = standings_of(self._engine)
            self._audience.show(self._name, standings)
            before, parsed = parsed, sum(standing.parsed for standing in standings.values())
            if to_come and parsed >= self._scenario.accident_after:
                self._accident = kill_one(self._processes, self._engine)
            self._look_at_takeover()
            if parsed != before:
                moved_at = time.monotonic()
            elif time.monotonic() - moved_at > _PATIENCE:
                raise DemoError(self._stuck(parsed))

    def _look_at_takeover(self) -> None:
        if self._accident is None or (self.takeover is not None and self.takeover.complete):
            return
        with Session(self._engine) as session:
            self.takeover = takeover_of(self._accident, session)
        if self.takeover.held:
            self._audience.show_takeover(self._name, self.takeover)
        else:  # its last commits were on their way when it died: that is no accident, so another one follows
            self._accident = self.takeover = None

    def _stuck(self, parsed: int) -> str:
        with Session(self._engine) as session:
            failures = session.scalars(select(History.error).where(History.error.is_not(None)).limit(1)).all()
        problem = f"{parsed} of {self._scenario.files} files are parsed, and none was for {_PATIENCE:.0f} seconds"
        return "\n".join([f"{self._name}: {problem}", *filter(None, failures)])


def standings_of(engine: Engine) -> Standings:
    """The progress of each customer who has uploaded something."""
    until = func.coalesce(SourceStats.parsed_at, func.clock_timestamp())
    longest = func.extract("epoch", func.max(cast(until - Upload.uploaded_at, Interval)))
    counts = (
        select(Customer.name, func.count(), func.count(SourceStats.id), longest)
        .select_from(Customer)
        .join(Upload, Upload.customer_id == Customer.id)
        .outerjoin(SourceStats, SourceStats.upload_key == Upload.key)
        .group_by(Customer.name)
    )
    with Session(engine) as session:
        rows = session.execute(counts).all()
    return {name: Standing(uploaded, parsed, float(wait)) for name, uploaded, parsed, wait in rows}
