"""The library beside published designs and peers, workload by workload."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import pytest

from tests.bench.field.environments import PEERS
from tests.bench.field.speaker import Failed
from tests.bench.field.telling import Outcome
from tests.bench.field.workloads import QUICK, WORKLOADS
from tests.bench.figures import Figure

if TYPE_CHECKING:
    from tests.bench.field.conftest import Field
    from tests.bench.figures import Report

_US = "fairqueue"


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_workload(workload: str, field: Field, rounds: range, *, full: bool) -> None:
    """Everybody does the workload in turn, and the library delivers each message once."""
    if workload not in QUICK and not full:
        pytest.skip("only with --full")
    work = WORKLOADS[workload]
    field.report.workloads[workload] = " ".join((work.__doc__ or "").split())
    for number in rounds if full else rounds[:1]:
        names = list(field.ready)
        for name in names if number % 2 == 0 else names[::-1]:
            try:
                with field.arena(name) as arena:
                    outcome = Outcome(workload, name, number, work(arena, full=full))
            except Failed as error:
                outcome = Outcome(workload, name, number, {}, str(error))
            field.report.outcomes.append(outcome)
    failures = [one.failure for one in field.report.outcomes if (one.workload, one.contestant) == (workload, _US)]
    assert not any(failures), failures


def test_what_is_reached(field: Field, report: Report) -> None:
    """The figures that were asked for are put beside what was reached."""
    told = field.report
    alone, beside = (told.values(workload, _US, "wait p99, ms") for workload in ("minnows_alone", "whale"))
    if alone and beside:
        others = {
            name: f"{median(there) / median(here):,.1f}"
            for name in field.ready
            if name != _US
            and (here := told.values("minnows_alone", name, "wait p99, ms"))
            and (there := told.values("whale", name, "wait p99, ms"))
        }
        what = "a minnow's wait beside a whale, 99th percentile"
        report.add(Figure(what, "ms", beside, alone, "on an empty system", 2.0, "less", others))
    if fair := told.values("zipf", _US, "jain, least"):
        others = {
            name: f"{median(found):.3f}"
            for name in field.ready
            if name != _US and (found := told.values("zipf", name, "jain, least"))
        }
        what = "Jain's index of Zipf tenants, the least of the seconds"
        report.add(Figure(what, "", fair, [1.0] * len(fair), "all get their max-min fair share", 0.99, "more", others))
    for workload, figure, better, reach in (
        ("drain", "messages/s", "more", 2.0),
        ("steady", "messages/s", "more", 1.0),
        ("enqueue", "one by one, messages/s", "more", 1.0),
        ("drain", "log bytes/message", "less", 1.25),
    ):
        ours = told.values(workload, _US, figure)
        peers = {peer.name: found for peer in PEERS if (found := told.values(workload, peer.name, figure))}
        if ours and peers:
            best = (max if better == "more" else min)(peers, key=lambda name: median(peers[name]))
            what = f"{workload} beside the best peer"
            report.add(Figure(what, figure, ours, peers[best], best, reach, "less" if better == "less" else "more"))
