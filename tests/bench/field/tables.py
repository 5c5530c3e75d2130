"""The tables of docs/benchmarks.md: ``python -m tests.bench.field.tables build/bench/field.json``, one or several.

Workloads that were run apart are told together, in ``field.html`` too, which is written where this runs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from tests.bench.field.charts import told
from tests.bench.field.environments import LIBRARY
from tests.bench.field.outcome import FieldReport
from tests.bench.field.targets import rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    Columns = tuple[tuple[str, str, str], ...]

_COLUMNS: Final = {
    "Fairness": (
        ("whale", "p99 to alone", "minnow beside a whale, p99 to alone"),
        ("whale", "wait p99, ms", "the same, ms"),
        ("newcomers", "wait p99, ms", "newcomers' wait p99, ms"),
        ("newcomers", "whale to alone", "whale's time with newcomers to without"),
        ("zipf", "jain, least", "Jain's index, Zipf, least"),
        ("zipf", "longest starvation, ms", "longest starvation, ms"),
        ("costs", "costly to cheap", "costs 10 and 1, costly tenants' time to cheap ones'"),
        ("costs", "jain by cost, least", "Jain's index by cost, least"),
    ),
    "Throughput, messages/s": (
        ("drain", "messages/s", "drain in batches"),
        ("one_by_one", "messages/s", "drain one by one"),
        ("steady", "messages/s", "in and out"),
        ("enqueue", "one by one, messages/s", "enqueue one by one"),
        ("enqueue", "in bulk, messages/s", "enqueue in bulk"),
        ("business_5ms", "to without", "5 ms transactions with enqueue to without"),
        ("business_2s", "to without", "2 s transactions"),
    ),
    "Cost of a message in the drain": (
        ("drain", "commits/message", "commits"),
        ("drain", "log bytes/message", "log, bytes"),
        ("drain", "dead rows/message", "dead rows"),
        ("drain", "server us/message", "server, us"),
        ("drain", "client us/message", "workers, us"),
    ),
}
_DEPTH: Final = (
    ("backlog_100k", "sessions us, to before", "backlog 100,000"),
    ("backlog_1m", "sessions us, to before", "backlog 1,000,000"),
    ("channels_100k", "sessions us, to before", "many tenants"),
    ("backlog_10m", "sessions us, to before", "10,000,000, 100,000 tenants"),
    ("future", "sessions us, to before", "for tomorrow"),
    ("idle", "sessions us, to before", "idle tenants"),
    ("limited", "sessions us, to before", "limits"),
    ("snapshot", "last to first", "snapshot"),
)
_DEPTH_TITLE: Final = (
    "CPU time of the sessions, the library, to before; under `snapshot` the throughput of the last fifth to the first:"
)


def tables(told_of: FieldReport) -> str:
    """What was asked for, and the figures that matter most, as Markdown."""
    form = "Full" if told_of.full else "Quick"
    server = ", ".join(f"{name} {value}" for name, value in told_of.server.items())
    loads = [*told_of.loads.values(), told_of.load_before]
    parts = [f"{form} form, {told_of.machine}, {server}; load {min(loads):.1f} to {max(loads):.1f}.", ""]
    measured = rows(told_of)
    reached = []
    for line in measured:
        reach = "" if line.reach is None else f"{'>=' if line.better == 'more' else '<='} {line.reach}"
        ratio = f"**{told(line.ratios)}**" if line.ratios else ""
        reached.append([line.what, line.against, reach, ratio, line.verdict])
    parts += [*_table(["what", "against", "reach", "ratio", "verdict"], reached), ""]
    compared = [line for line in measured if line.others]
    if compared:
        heads = ["contestant", *(f"{line.what}, to {line.against}" for line in compared)]
        cells = {
            name: [told([median(line.others[name])]) if name in line.others else "" for line in compared]
            for name in told_of.contestants
        }
        parts += ["The same ratios of the others:", "", *_table(heads, _filled(cells)), ""]
    for title, columns in _COLUMNS.items():
        parts += _columns(title, columns, told_of, list(told_of.contestants))
    fair, unfair = told_of.by_cost()
    if fair or unfair:
        sides = (("Fair by cost", fair), ("Unfair by cost", unfair))
        parts += [f"{verdict}: {_named(found) if found else 'nobody'}." for verdict, found in sides] + [""]
    depth = _columns("", _DEPTH, told_of, [LIBRARY.name])
    return "\n".join([*parts, *([_DEPTH_TITLE, "", *depth] if depth else [])])


def _columns(title: str, columns: Columns, told_of: FieldReport, contestants: Sequence[str]) -> list[str]:
    """A table of figures, a contestant a row, without empty columns; without a title, the only row is unnamed."""
    values = {
        name: [told(told_of.values(workload, name, figure)) for workload, figure, _ in columns] for name in contestants
    }
    shown = [index for index in range(len(columns)) if any(cells[index] for cells in values.values())]
    rows = _filled({name: [cells[index] for index in shown] for name, cells in values.items()})
    if not rows:
        return []
    heads = [title, *(columns[index][2] for index in shown)]
    return [*(_table(heads, rows) if title else _table(heads[1:], [row[1:] for row in rows])), ""]


def _named(found: dict[str, float]) -> str:
    return ", ".join(f"{name} ({told([ratio])})" for name, ratio in found.items())


def _filled(cells: dict[str, list[str]]) -> list[list[str]]:
    """Rows of contestants that have a figure."""
    return [[name, *found] for name, found in cells.items() if any(found)]


def _table(heads: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)]


def main() -> None:
    """Print the tables of the runs that the arguments name, as if they were one, and write one page of them."""
    found = FieldReport.read(map(Path, sys.argv[1:]))
    Path("field.html").write_text(found.page(), encoding="utf-8")
    print(tables(found))  # noqa: T201 - that is what it is for


if __name__ == "__main__":
    main()
