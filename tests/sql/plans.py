"""Plans of the statements inside the functions, as the server executed them, from auto_explain."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from psycopg.errors import Diagnostic

from tests.sql.client import Kernel

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scan:
    """The scans of one table, or of one common table expression, at one place of one statement of a function."""

    statement: str
    table: str
    node: str
    index: str | None
    rows: int

    def __str__(self) -> str:
        """Return what a failed assertion shows."""
        return f"{self.node} on {self.table} by {self.index}: {self.rows} rows in {self.statement!r}"


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _rows(node: dict[str, Any]) -> int:
    removed = sum(value for name, value in node.items() if name.startswith("Rows Removed by"))
    loops: float = node["Actual Loops"]
    rows: float = node["Actual Rows"] + removed
    return round(rows * loops)


def scans_of(explained: dict[str, Any]) -> Iterator[Scan]:
    """The scans of a plan that reached tables of the queue, and those that read one list again and again."""
    statement = " ".join(explained["Query Text"].split())[:90]
    for node in _nodes(explained["Plan"]):
        if "CTE Name" in node and node["Actual Loops"] > 1:
            yield Scan(statement, node["CTE Name"], node["Node Type"], None, _rows(node))
        # A bitmap's index scan names no table, and its heap scan counts the rows again.
        reached = node["Actual Loops"] > 0
        if reached and node.get("Relation Name", "").startswith("fq_") and "Scan" in node["Node Type"]:
            yield Scan(statement, node["Relation Name"], node["Node Type"], node.get("Index Name"), _rows(node))


@contextmanager
def _told(kernel: Kernel, tell: Callable[[dict[str, Any]], None], *, nested: bool) -> Iterator[None]:
    """Tell the plan of each statement of the block, *nested*: of those inside the functions too. Needs a superuser."""

    def hear(notice: Diagnostic) -> None:
        text = notice.message_primary or ""
        if "plan:" in text:
            tell(json.loads(text.split("plan:", 1)[1]))

    kernel.rows("load 'auto_explain'")
    settings = {
        "auto_explain.log_nested_statements": "on" if nested else "off",
        "auto_explain.log_analyze": "on",
        "auto_explain.log_buffers": "on",
        "auto_explain.log_timing": "off",
        "auto_explain.log_format": "json",
        "auto_explain.log_level": "log",
        "client_min_messages": "log",
        "auto_explain.log_min_duration": "0",
    }
    for name, value in settings.items():
        kernel.rows(f"set {name} = '{value}'")
    kernel.connection.add_notice_handler(hear)
    try:
        yield
    finally:
        kernel.connection.remove_notice_handler(hear)
        kernel.rows("set auto_explain.log_min_duration = -1")


@contextmanager
def explained(kernel: Kernel) -> Iterator[list[Scan]]:
    """Collect the scans of every statement that the functions run in the block. Needs a superuser."""
    scans: list[Scan] = []
    with _told(kernel, lambda plan: scans.extend(scans_of(plan)), nested=True):
        yield scans


def buffers(kernel: Kernel, work: Callable[[], object]) -> int:
    """Return how many buffers the statements of *work* read, with all that their functions do. Needs a superuser."""
    plans: list[dict[str, Any]] = []
    with _told(kernel, plans.append, nested=False):
        work()
    return sum(plan["Plan"][f"Shared {kind} Blocks"] for plan in plans for kind in ("Hit", "Read"))


def least_buffers(kernel: Kernel, work: Callable[[], object]) -> int:
    """Return the least that three calls of *work* read: what others do to the server's catalogs makes a call read
    those, and plan, once more.
    """
    return min(buffers(kernel, work) for _ in range(3))


def assert_frugal(kernel: Kernel, bound: int, work: Callable[[], T]) -> T:
    """What work returns; fail where it reads a table of the queue in sequence, or more of its rows in one scan than the
    bound.
    """
    __tracebackhide__ = True
    with explained(kernel) as scans:
        done = work()
    wasteful = [str(scan) for scan in scans if scan.node == "Seq Scan" or scan.rows > bound]
    if wasteful or not scans:
        pytest.fail("\n".join(["read too much:", *wasteful]))
    return done
