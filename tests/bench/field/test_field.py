"""The library beside published designs and peers, workload by workload."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.bench.field.environments import LIBRARY, NotForIt
from tests.bench.field.outcome import Outcome
from tests.bench.field.script import Failed
from tests.bench.field.targets import rows
from tests.bench.field.workloads import WORKLOADS

if TYPE_CHECKING:
    from tests.bench.field.conftest import Field
    from tests.bench.figures import Report


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_workload(workload: str, field: Field, pytestconfig: pytest.Config, rounds: range, *, full: bool) -> None:
    """Everybody does the workload in turn, and the library delivers each message once."""
    work = WORKLOADS[workload]
    names = field.who(workload, full=full)
    if not names:
        pytest.skip("only with --full, or with others")
    told = field.report
    told.workloads[workload] = work.text
    told.loads[workload] = os.getloadavg()[0]
    for number in rounds[: work.rounds if full or pytestconfig.getoption("--bench-rounds") else 1]:
        for name in names if number % 2 == 0 else names[::-1]:
            began = time.monotonic()
            try:
                with field.arena(name) as arena:
                    outcome = Outcome(workload, name, number, work.run(arena, full=full))
            except NotForIt as reason:
                names = [other for other in names if other != name]
                outcome = Outcome(workload, name, number, {}, not_for_it=str(reason))
            except Failed as error:
                outcome = Outcome(workload, name, number, {}, str(error))
            told.outcomes.append(replace(outcome, seconds=time.monotonic() - began))
    told.write(pytestconfig.getoption("--bench-folder"), page=False)
    mine = [one for one in told.outcomes if (one.workload, one.contestant) == (workload, LIBRARY.name)]
    failures = [one.failure or one.not_for_it for one in mine if not one.figures]
    assert not failures, failures


def test_what_is_reached(field: Field, report: Report) -> None:
    """The figures that were asked for are put beside what was reached."""
    for line in rows(field.report):
        if line.ratios:
            report.add(line.figure())
