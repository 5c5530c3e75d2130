"""The server of the benchmarks, durable; rounds of sides in turn; and the report at the end."""

import contextlib
from collections.abc import Iterator

import pytest

from sqlalchemy_fairqueue.embedded import embedded_server, named_server
from tests.bench.figures import Alternate, Report
from tests.bench.stage import Stage, connected
from tests.fixtures.server import programs

_SETTINGS = {"shared_buffers": "2GB", "max_wal_size": "16GB", "checkpoint_timeout": "30min", "max_connections": "100"}
_TOLD = ("server_version", "shared_buffers", "fsync", "synchronous_commit", "full_page_writes", "wal_sync_method")
_report = pytest.StashKey[Report]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options that only benchmarks have."""
    parser.addoption("--bench-field", default="", help="benchmarks: who takes part, such as fairqueue,oban")
    parser.addoption("--bench-rounds", type=int, help="benchmarks: interleaved rounds; default 3, quick field 1")


def pytest_configure(config: pytest.Config) -> None:
    """Begin a report."""
    config.stash[_report] = Report()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the report."""
    report = config.stash[_report]
    if report.figures or report.tables:
        terminalreporter.section("benchmarks")
        terminalreporter.write_line(report.text())


@pytest.fixture(scope="session")
def report(pytestconfig: pytest.Config, *, full: bool) -> Report:
    """Where figures are kept until the end of the run."""
    pytestconfig.stash[_report].full = full
    return pytestconfig.stash[_report]


@pytest.fixture(scope="session")
def server(report: Report, run_name: str) -> Iterator[Stage]:
    """A server that is as durable as in production: one of our own unless the environment names one."""
    with contextlib.ExitStack() as stack:
        url = named_server() or stack.enter_context(embedded_server(programs(), settings=_SETTINGS)).url()
        stage = Stage(url, run_name)
        with connected(stage.conninfo()) as wire:
            report.server |= {name: wire.value(f"show {name}") for name in _TOLD}
        durable = {report.server[name] for name in ("fsync", "synchronous_commit", "full_page_writes")}
        assert durable == {"on"}, f"benchmarks need a durable server, not {report.server}"
        yield stage


@pytest.fixture
def stage(server: Stage) -> Iterator[Stage]:
    """The server; what a benchmark fills on it is gone at its end."""
    yield server
    server.tidy()


@pytest.fixture(scope="session")
def rounds(pytestconfig: pytest.Config) -> range:
    """The rounds to measure."""
    return range(pytestconfig.getoption("--bench-rounds") or 3)


@pytest.fixture
def alternate(rounds: range) -> Alternate:
    """Interleaves the rounds of several sides."""
    return Alternate(rounds)
