"""fq_make_stage, fq_job_stages: each load has a table of its own, and what loads that died left behind goes."""

from datetime import timedelta
from typing import Any

import pytest
from psycopg import errors

from tests.fixtures.clock import Clock
from tests.fixtures.waits import Waits
from tests.sql.client import HOUR, Kernel, OpenKernel, on
from tests.sql.load.loads import copy, make_stage


def stages(kernel: Kernel) -> set[str]:
    """The names of the tables that are there."""
    rows = kernel.rows("select relname from pg_class where relkind = 'r' and relname like 'fq\\_stage\\_%%'", x=1)
    return {row["relname"] for row in rows}


def test_what_is_old_enough_is_dropped(kernel: Kernel, clock: Clock) -> None:
    """Older than the time to live: gone; younger ones and tables of the user's stay."""
    kernel.rows("create table fq_stage_1_mine (id bigint)")
    old = make_stage(kernel)
    clock.advance(timedelta(hours=2))
    young = make_stage(kernel, 3 * HOUR)
    assert stages(kernel) == {old, young, "fq_stage_1_mine"}
    newest = make_stage(kernel, HOUR)
    assert stages(kernel) == {young, newest, "fq_stage_1_mine"}


def test_a_stage_in_use_stays(kernel: Kernel, open_kernel: OpenKernel, clock: Clock, waits: Waits) -> None:
    """A copy that goes on for longer than anybody expected is not disturbed, and nobody waits for it for long."""
    old = make_stage(kernel)
    copying = open_kernel()
    copy(copying, old, "a")
    clock.advance(timedelta(hours=2))
    newest = waits.start(on(lambda rival: make_stage(rival, HOUR))).result()
    assert stages(kernel) == {old, newest}
    copying.commit()
    newest = make_stage(kernel, HOUR)
    assert old not in stages(kernel)
    assert newest in stages(kernel)


def test_stages_of_a_job(kernel: Kernel, clock: Clock) -> None:
    """The job finds those that its runs made, the oldest first; a load without a name has none."""

    def make(queue: str | None, job: str | None) -> str:
        clock.advance(timedelta(seconds=1))
        name: str = kernel.value("select fq_make_stage(%(ttl)s, %(queue)s, %(job)s)", ttl=HOUR, queue=queue, job=job)
        return name

    def found(queue: str | None, job: str | None) -> list[str]:
        rows = kernel.rows("select s from fq_job_stages(%(queue)s, %(job)s) s", queue=queue, job=job)
        return [row["s"] for row in rows]

    first = make("q", "job")
    for others in (("q", "job 2"), ("q2", "job"), ("q", None), (None, None)):
        make(*others)
    second = make("q", "job")
    assert found("q", "job") == [first, second]
    assert found("q", None) == found(None, None) == found("q", "job 3") == []
    assert kernel.value("select fq_drop_stage(%(stage)s)", stage=first) is True
    assert found("q", "job") == [second]


def test_a_crash_empties_it_and_costs_no_log(kernel: Kernel) -> None:
    """The table is unlogged, in the schema of the queues."""
    stage = make_stage(kernel)
    assert kernel.value("select relpersistence::text from pg_class where relname = %(name)s", name=stage) == "u"


_BAD: list[tuple[dict[str, Any], str]] = [
    ({"headers": ['{"a": "' + "x" * 65_536 + '"}']}, "headers_check"),
    ({"headers": ['{"a": [' + ", ".join(["1e5000"] * 20) + "]}"]}, "headers_check"),
    ({"headers": ['{"a": [' + ", ".join(["9" * 5000] * 3) + "]}"]}, "headers_check"),
    ({"kind": [""]}, "names_check"),
    ({"key": ["k" * 513]}, "names_check"),
    ({"at": [253402300800000000]}, "times_check"),
    ({"delay": [-1]}, "times_check"),
    ({"priority": [0]}, "times_check"),
    ({"delay": [1], "at": [1]}, "times_check"),
    ({"max_attempts": [0]}, "attempts_check"),
    ({"cost": [0]}, "cost_check"),
    ({"cost": [1_000_000_001]}, "cost_check"),
]


def test_values_are_bounded(kernel: Kernel) -> None:
    """A row that could not be enqueued one by one is refused by the stage."""
    stage = make_stage(kernel)
    for columns, constraint in _BAD:
        with pytest.raises(errors.CheckViolation, match=constraint):
            copy(kernel, stage, "a", **columns)
    with pytest.raises(errors.CheckViolation, match="names_check"):
        copy(kernel, stage, "x" * 513)
