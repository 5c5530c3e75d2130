"""What importing the library costs sessions that never enqueue."""

from __future__ import annotations

import multiprocessing
from statistics import median
from typing import TYPE_CHECKING

from tests.bench.bystander import commit_again_and_again
from tests.bench.figures import Figure

if TYPE_CHECKING:
    from tests.bench.figures import Report
    from tests.bench.stage import Stage

_SLICE = 200


def test_commit_of_a_session_that_never_enqueues(stage: Stage, report: Report, *, full: bool) -> None:
    """A session with nothing to send commits as fast as without the library."""
    slices = 200 if full else 60
    context = multiprocessing.get_context("spawn")
    pipes, crew = {}, []
    url = stage.server.render_as_string(hide_password=False)
    for imported in (True, False):
        pipes[imported], theirs = context.Pipe()
        process = context.Process(
            target=commit_again_and_again, args=(theirs, url), kwargs={"imported": imported}, daemon=True
        )
        process.start()
        crew.append(process)
    wall: dict[bool, list[float]] = {True: [], False: []}
    processor: dict[bool, list[float]] = {True: [], False: []}
    for number in range(slices + 1):
        for imported in (True, False) if number % 2 else (False, True):
            pipes[imported].send(_SLICE)
            taken, used = pipes[imported].recv()
            if number:  # the first slice warms up
                wall[imported].append(1e6 * taken / _SLICE)
                processor[imported].append(1e6 * used / _SLICE)
    for imported, pipe in pipes.items():
        pipe.send(0)
        assert pipe.recv() is imported
    for process in crew:
        process.join(10)
    ratio = median(one / other for one, other in zip(processor[True], processor[False], strict=True))
    report.add(
        Figure(
            f"a session that never enqueues: one read and a commit, {slices} alternating slices of {_SLICE}",
            "us",
            wall[True],
            wall[False],
            "library not imported",
            reach=1.02,
            better="less",
            notes={"ratio of the client's processor time": f"{ratio:.3f}"},
        )
    )
