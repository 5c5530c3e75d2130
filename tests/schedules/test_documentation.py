"""The page about schedules."""

import re
from datetime import timedelta
from pathlib import Path
from types import ModuleType

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

import sqlalchemy_fairqueue
from sqlalchemy_fairqueue import Queue, Recurrence, Worker
from tests.fixtures.clock import Clock
from tests.worker.helpers import LONG_LEASE, retimed, until

_PAGE = Path(sqlalchemy_fairqueue.__file__).parents[1] / "docs" / "schedules.md"


def _examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)


def test_the_example_runs(engine: Engine, clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """The page's application signs a tenant up and off; its report and its own schedule run."""
    module = ModuleType("shop")
    exec(compile(_examples()[0], str(_PAGE), "exec"), module.__dict__)  # noqa: S102 - our own page
    queue: Queue = module.__dict__["queue"]
    with Session(engine) as session, session.begin():
        module.__dict__["sign_up"](session, "customer-7", "Europe/Berlin")
    printed = []

    def says(words: str) -> bool:
        printed.append(capsys.readouterr().out)
        return words in "".join(printed)

    with retimed(Worker(engine, queue, lease=LONG_LEASE), schedules_every=0.05):
        until(lambda: len(queue.schedules.list(engine)) == 2, "both are there")
        clock.advance(timedelta(days=1))
        until(lambda: says("report for customer-7 of 20"), "the report is sent")
        until(lambda: says("tidying up"), "it tidies up")
    with Session(engine) as session, session.begin():
        module.__dict__["sign_off"](session, "customer-7")
    assert [one.name for one in queue.schedules.list(engine)] == ["tidy_up"]


def test_the_job_example_runs(engine: Engine) -> None:
    """The page's call makes a schedule of a typed job."""
    queue = Queue("shop")

    @queue.job
    def parse(*, upload: str) -> None:
        raise AssertionError(upload)

    with Session(engine) as session, session.begin():
        exec(_examples()[1], {"parse": parse, "session": session, "Recurrence": Recurrence})  # noqa: S102 - our own page
    assert [(one.name, one.kind) for one in queue.schedules.list(engine)] == [("nightly", "parse")]
