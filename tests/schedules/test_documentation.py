"""The page about schedules."""

from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Queue, Recurrence, Worker
from tests.docs.pages import DOCS, blocks
from tests.fixtures.clock import Clock
from tests.worker.helpers import LONG_LEASE, retimed, until

_EXAMPLES = [block.text for block in blocks(DOCS / "schedules.md") if block.language == "python"]


def test_the_example_runs(engine: Engine, clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """The page's application signs a tenant up and off; its report and its own schedule run."""
    module: Any = ModuleType("shop")
    exec(compile(_EXAMPLES[0], "schedules.md", "exec"), module.__dict__)  # noqa: S102 - our own page
    queue: Queue = module.queue
    with Session(engine) as session, session.begin():
        module.sign_up(session, "customer-7", "Europe/Berlin")
    printed = [""]

    def says(words: str) -> bool:
        printed[0] += capsys.readouterr().out
        return words in printed[0]

    with retimed(Worker(engine, queue, lease=LONG_LEASE), schedules_every=0.05):
        until(lambda: len(queue.schedules.list(engine)) == 2, "both are there")
        clock.advance(timedelta(days=1))
        until(lambda: says("report for customer-7 of 20"), "the report is sent")
        until(lambda: says("tidying up"), "it tidies up")
    with Session(engine) as session, session.begin():
        module.sign_off(session, "customer-7")
    assert [one.name for one in queue.schedules.list(engine)] == ["tidy_up"]


def test_the_job_example_runs(engine: Engine) -> None:
    """The page's call makes a schedule of a typed job."""
    queue = Queue("shop")

    @queue.job
    def parse(*, upload: str) -> None:
        raise AssertionError(upload)

    with Session(engine) as session, session.begin():
        exec(_EXAMPLES[1], {"parse": parse, "session": session, "Recurrence": Recurrence})  # noqa: S102 - our own page
    assert [(one.name, one.kind) for one in queue.schedules.list(engine)] == [("nightly", "parse")]
