"""The fairness report: its time beside DuckDB's on the same Parquet, and its memory."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench.figures import Figure, Report

_SAME = ("attempts", "wait_p95", "waits", "starved", "longest")
_GIB = 1 << 30
_MOST = 6
_MOST_IN_PROCESS = 4


@pytest.mark.timeout(7200)
def test_report_beside_duckdb(report: Report, tmp_path: Path, *, full: bool) -> None:
    """The report of 10 million attempts needs less than 6 GiB; its figures are DuckDB's, its time stands beside."""
    from tests.bench.reporting import histories  # noqa: PLC0415 - only here is DuckDB needed

    rows = int(os.environ.get("FAIRQUEUE_BENCH_REPORT_ROWS", "10000000" if full else "1000000"))
    path = tmp_path / "history.parquet"
    histories.write(path, rows)
    ours = _child("by_spark", path, tmp_path / "page.html")
    theirs = _child("by_duckdb", path, ours["window"], ours["width"])

    assert {name: ours[name] for name in _SAME} == {name: theirs[name] for name in _SAME}
    assert ours["fairness"] == pytest.approx(theirs["fairness"] or 0.0)
    assert ours["denied"] == pytest.approx(theirs["denied"], rel=1e-3)
    what = f"report over {rows:,} attempts of 1,000 tenants, local[2]"
    report.add(
        Figure(
            f"{what}, page included",
            "s",
            [ours["seconds"]],
            [theirs["seconds"]],
            "the same figures by DuckDB",
            reach=2.0,
            better="less",
        )
    )
    report.add(
        Figure(
            f"{what}, processor time of Java and Python, page included", "s", [ours["processor"]],
            [theirs["processor"]], "the same figures by DuckDB", reach=2.0, better="less",
        )
    )  # fmt: skip
    report.add(
        Figure(
            f"{what}, peak memory of Java and Python",
            "GiB",
            [ours["memory"] / _GIB],
            [_MOST],
            "the limit",
            reach=1.0,
            better="less",
            notes={"DuckDB": f"{theirs['memory'] / _GIB:.2f} GiB"},
        )
    )


@pytest.mark.timeout(7200)
def test_process_beside_duckdb(report: Report, tmp_path: Path, *, full: bool) -> None:
    """The figures of 10 million attempts in the process take at most 1.2 of DuckDB's processor time, and 4 GiB."""
    from tests.bench.reporting import histories  # noqa: PLC0415 - only here is DuckDB needed

    rows = int(os.environ.get("FAIRQUEUE_BENCH_REPORT_ROWS", "10000000" if full else "1000000"))
    path = tmp_path / "history.parquet"
    histories.write(path, rows)
    ours = _child("by_process", path)
    theirs = _child("by_duckdb", path, ours["window"], ours["width"])

    assert {name: ours[name] for name in _SAME} == {name: theirs[name] for name in _SAME}
    assert ours["fairness"] == pytest.approx(theirs["fairness"] or 0.0)
    assert ours["denied"] == pytest.approx(theirs["denied"], rel=1e-3)
    what = f"figures of {rows:,} attempts of 1,000 tenants, in the process"
    report.add(
        Figure(
            f"{what}, processor time", "s", [ours["processor"]], [theirs["processor"]], "the same figures by DuckDB",
            reach=1.2, better="less", notes={"wall": f"{ours['seconds']:.1f} s; DuckDB {theirs['seconds']:.1f} s"},
        )
    )  # fmt: skip
    report.add(
        Figure(
            f"{what}, peak memory", "GiB", [ours["memory"] / _GIB], [_MOST_IN_PROCESS], "the limit", reach=1.0,
            better="less", notes={"DuckDB": f"{theirs['memory'] / _GIB:.2f} GiB"},
        )
    )  # fmt: skip


def _child(module: str, *arguments: object) -> dict[str, Any]:
    command = [sys.executable, "-m", f"tests.bench.reporting.{module}", *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
