"""Cost of importing the library for sessions that never enqueue."""

from __future__ import annotations

import multiprocessing
from itertools import product
from statistics import median
from typing import TYPE_CHECKING

import pytest

from tests.bench.bystander import commit_again_and_again
from tests.bench.figures import Figure

if TYPE_CHECKING:
    from tests.bench.figures import Report
    from tests.bench.stage import Stage

_WORK = {
    "one insert": ("insert into business (payload) values ('x')", 25),
    # Writes nothing, so that no wait for the disk hides the difference.
    "one read": ("select 1", 100),
}
# Two processes that do the same differ by a few per cent for all their life, as memory falls: each kind has several.
_PAIRS = 4


@pytest.mark.parametrize("work", _WORK)
def test_commit_of_a_session_that_never_enqueues(stage: Stage, report: Report, work: str, *, full: bool) -> None:
    """A session with nothing to send commits as fast as without the library."""
    slices = 400 if full else 120
    sql, count = _WORK[work]
    filled = stage.fill("plain", channels=1, messages=0)
    url = stage.server.set(database=filled.name).render_as_string(hide_password=False)
    context = multiprocessing.get_context("spawn")
    pipes, processes = {}, []
    for imported, pair in product((True, False), range(_PAIRS)):
        pipes[imported, pair], theirs = context.Pipe()
        process = context.Process(
            target=commit_again_and_again, args=(theirs, url, sql), kwargs={"imported": imported}, daemon=True
        )
        process.start()
        processes.append(process)
    wall: dict[bool, list[float]] = {True: [], False: []}
    processor: dict[bool, list[float]] = {True: [], False: []}
    for number in range(slices + _PAIRS):
        for imported in (True, False) if number // _PAIRS % 2 else (False, True):
            pipe = pipes[imported, number % _PAIRS]
            pipe.send(count)
            taken, used = pipe.recv()
            if number >= _PAIRS:  # the first slices warm up
                wall[imported].append(1e6 * taken / count)
                processor[imported].append(1e6 * used / count)
    for (imported, _), pipe in pipes.items():
        pipe.send(0)
        assert pipe.recv() is imported
    for process in processes:
        process.join(10)
    stage.drop(filled)
    ours, theirs_used = median(processor[True]), median(processor[False])
    report.add(
        Figure(
            f"a session that never enqueues: {work} and a commit, {slices} alternating slices of {count}",
            "us",
            wall[True],
            wall[False],
            "library not imported",
            reach=1.02,
            better="less",
            notes={"client's processor time, us": f"{ours:.0f} to {theirs_used:.0f}, ratio {ours / theirs_used:.3f}"},
        )
    )
