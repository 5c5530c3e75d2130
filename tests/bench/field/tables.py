"""The tables of docs/benchmarks.md: ``python -m tests.bench.field.tables build/bench/field.json``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from tests.bench.field.charts import told

_COLUMNS: Final = {
    "Fairness": (
        ("whale", "p99 to alone", "minnow beside a whale, p99 to alone"),
        ("whale", "wait p99, ms", "the same, ms"),
        ("newcomers", "wait p99, ms", "newcomers' wait p99, ms"),
        ("newcomers", "whale to alone", "whale's time with newcomers to without"),
        ("zipf", "jain, least", "Jain's index, Zipf, least"),
        ("zipf", "longest starvation, ms", "longest starvation, ms"),
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
    "Depth: processor time of the sessions, to before": (
        ("backlog_100k", "sessions us, to before", "backlog 100,000"),
        ("backlog_1m", "sessions us, to before", "backlog 1,000,000"),
        ("channels_100k", "sessions us, to before", "many tenants"),
        ("backlog_10m", "sessions us, to before", "10,000,000, 100,000 tenants"),
        ("future", "sessions us, to before", "for tomorrow"),
        ("idle", "sessions us, to before", "idle tenants"),
        ("limited", "sessions us, to before", "limits"),
        ("snapshot", "last to first", "snapshot, last to first"),
    ),
}


def tables(run: dict[str, Any]) -> str:
    """What was asked for, and the figures that matter most, as Markdown."""
    form = "full" if run["full"] else "quick"
    server = ", ".join(f"{name} {value}" for name, value in run["server"].items())
    loads = [*run["loads"].values(), run["load_before"]]
    parts = [f"{form.capitalize()} form, {run['machine']}, {server}; load {min(loads):.1f} to {max(loads):.1f}.", ""]
    rows = []
    for line in run["reached"]:
        reach = "" if line["reach"] is None else f"{'>=' if line['better'] == 'more' else '<='} {line['reach']}"
        others = "; ".join(f"{name} {told([ratio])}" for name, ratio in line["beside"].items())
        rows.append(
            [
                line["what"],
                line["against"],
                reach,
                f"**{told(line['ratios'])}**" if line["ratios"] else "",
                line["verdict"],
                others,
            ]
        )
    parts += [*_table(["what", "against", "reach", "ratio", "verdict", "beside it"], rows), ""]
    for title, columns in _COLUMNS.items():
        shown = [column for column in columns if any(_values(run, name, *column[:2]) for name in run["contestants"])]
        rows = [
            [name, *(told(_values(run, name, workload, figure)) for workload, figure, _ in shown)]
            for name in run["contestants"]
        ]
        if rows := [row for row in rows if any(row[1:])]:
            parts += [*_table([title, *(heading for _, _, heading in shown)], rows), ""]
    return "\n".join(parts)


def _values(run: dict[str, Any], contestant: str, workload: str, figure: str) -> list[float]:
    return [
        outcome["figures"][figure]
        for outcome in run["outcomes"]
        if (outcome["workload"], outcome["contestant"]) == (workload, contestant) and figure in outcome["figures"]
    ]


def _table(heads: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)]


if __name__ == "__main__":
    print(tables(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))  # noqa: T201 - that is what it is for
