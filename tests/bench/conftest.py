"""The server of the benchmarks, durable, and the report at the end."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from sqlalchemy_fairqueue.embedded import embedded_server, named_server
from tests.bench.figures import Report
from tests.bench.stage import Stage
from tests.bench.wire import Wire
from tests.fixtures.server import programs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_SETTINGS = {
    "shared_buffers": "2GB",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "30min",
    "max_connections": "100",
}
_TOLD = ("server_version", "shared_buffers", "fsync", "synchronous_commit", "full_page_writes", "wal_sync_method")
_report = pytest.StashKey[Report]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options that only benchmarks have."""
    parser.addoption("--bench-json", type=Path, help="benchmarks: write the figures to this file")
    folder = Path("build/bench")
    parser.addoption("--bench-folder", type=Path, default=folder, help=f"benchmarks: field.html; default {folder}")
    parser.addoption(
        "--bench-field", default="", help="benchmarks: who takes part, such as fairqueue,oban; default all"
    )
    parser.addoption(
        "--bench-rounds", type=int, help="benchmarks: interleaved rounds; default 3, of the field's quick form 1"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Begin a report."""
    config.stash[_report] = Report()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the report, and write it where it was asked for."""
    report = config.stash[_report]
    if not report.figures:
        return
    terminalreporter.section("benchmarks")
    terminalreporter.write_line(report.text())
    if path := config.getoption("--bench-json"):
        report.write(path)


@pytest.fixture(scope="session")
def report(pytestconfig: pytest.Config, *, full: bool) -> Report:
    """Where figures are kept until the end of the run."""
    pytestconfig.stash[_report].full = full
    return pytestconfig.stash[_report]


@pytest.fixture(scope="session")
def rounds(pytestconfig: pytest.Config) -> range:
    """The rounds to measure; every other one runs the two sides in the other order."""
    return range(pytestconfig.getoption("--bench-rounds") or 3)


@pytest.fixture(scope="session")
def stage(report: Report, run_name: str) -> Iterator[Stage]:
    """A server that is as durable as in production: one of our own unless the environment names one."""
    with contextlib.ExitStack() as stack:
        url = named_server() or stack.enter_context(embedded_server(programs(), settings=_SETTINGS)).url()
        stage = Stage(url, run_name)
        wire = Wire(stage.conninfo())
        report.server |= {name: wire.value(f"show {name}") for name in _TOLD}
        wire.close()
        if {report.server[name] for name in ("fsync", "synchronous_commit", "full_page_writes")} != {"on"}:
            message = f"benchmarks need a durable server, not {report.server}"
            raise AssertionError(message)
        yield stage


class Alternate(Protocol):
    """Measures sides in turn, round by round, first to last in one round and last to first in the next."""

    def __call__(self, measure: Callable[[str], None], sides: Sequence[str]) -> None:
        """Call *measure* with each side once a round."""


@pytest.fixture
def alternate(rounds: range) -> Alternate:
    """Interleave the rounds of several sides."""

    def run(measure: Callable[[str], None], sides: Sequence[str]) -> None:
        for number in rounds:
            for side in sides if number % 2 == 0 else sides[::-1]:
                measure(side)

    return run
