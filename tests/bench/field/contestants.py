"""Contestants, and a virtual environment for each peer. A peer that cannot run is reported with the reason."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ROOT = Path(__file__).parents[3]
_PATIENCE = 300


@dataclass(frozen=True, slots=True)
class Contestant:
    """One queue to measure.

    Attributes:
        name: what tables call it.
        script: the module that speaks for it.
        arguments: what the script wants after the URL.
        package: what to install from the package index; empty: it runs where this runs.
        python: the least version of Python that it takes.
        speed: no-op messages that it handles a second, roughly: all get work for about the same time.
        leases: whether what a dead worker held is given to another by itself.
        native: whether its engine is not Python.
        only: the workloads that it is there for; empty: all.
        full: whether it takes part in the full form alone.
    """

    name: str
    script: str
    arguments: tuple[str, ...] = ()
    package: str = ""
    python: tuple[int, int] = (3, 11)
    speed: int = 1_000
    leases: bool = False
    native: bool = False
    only: tuple[str, ...] = ()
    full: bool = False


LIBRARY: Final = Contestant("fairqueue", "with_fairqueue", speed=8_000, leases=True)
BY_COST: Final = Contestant("fairqueue_by_cost", "with_fairqueue", ("", "session", "cost"), only=("costs",))
BY_SECONDS: Final = Contestant("fairqueue_by_seconds", "with_fairqueue", ("", "session", "seconds"), only=("costs",))
_OURS: Final = [
    LIBRARY,
    Contestant("fairqueue_prefetch_0", "with_fairqueue", ("0",), only=("whale", "newcomers")),
    Contestant("fairqueue_engine", "with_fairqueue", ("", "engine"), only=("enqueue",)),
    BY_COST,
    BY_SECONDS,
]
"""The library; with nothing held that no handler is free for; with bulk enqueues on an engine; and with queues that
share by the costs that messages tell, or by the seconds that workers measure."""
_BATCH: Final = "8"
"""Messages that a thread of a published design takes at once if batches are allowed."""
_DESIGNS: Final = [
    Contestant("fifo", "with_design", ("fifo", _BATCH), speed=4_000),
    Contestant("partitioned", "with_design", ("partitioned", "1"), speed=100, full=True),
    Contestant("ranked", "with_design", ("ranked", _BATCH), speed=1_000),
    Contestant("numbered", "with_design", ("numbered", _BATCH), speed=4_000),
    Contestant("blocks", "with_design", ("blocks", _BATCH), speed=4_000),
    Contestant("channels", "with_design", ("channels", "1")),
]
_FAIRNESS: Final = ("whale", "newcomers", "zipf", "costs")
PEERS: Final = [
    Contestant("procrastinate", "with_procrastinate", package="procrastinate==3.*", speed=500),
    Contestant("pgqueuer", "with_pgqueuer", package="pgqueuer[asyncpg]==1.*", leases=True),
    Contestant("chancy", "with_chancy", package="chancy==0.*", leases=True),
    Contestant("dbos", "with_dbos", package="dbos==3.*", speed=200),
    Contestant("awa", "with_awa", package="awa-pg==0.*", leases=True, native=True),
    Contestant("oban", "with_oban", package="oban==0.*", python=(3, 12), leases=True),
]
"""Peers as their documentation sets them up."""
_FAIRER: Final = [
    Contestant("dbos_partitioned", "with_dbos", ("partitioned",), "dbos==3.*", speed=200, only=_FAIRNESS),
    Contestant("awa_partitioned", "with_awa", ("partitioned",), "awa-pg==0.*", speed=500, native=True, only=_FAIRNESS),
]
"""The same with the option that they document for many tenants; the others have none for undeclared ones."""
ALL: Final = [*_OURS, *_DESIGNS, *PEERS, *_FAIRER]


class CannotRun(Exception):
    """A contestant cannot run here; the message is the reason."""


def interpreter(contestant: Contestant, folder: Path) -> tuple[str, str]:
    """The Python to run a contestant with, and what is installed there; makes its environment where there is none.

    Args:
        contestant: who.
        folder: where environments are kept from run to run.

    Raises:
        CannotRun: no Python is new enough, or its package cannot be had.
    """
    if not contestant.package:
        return sys.executable, "of this repository"
    wanted = contestant.package.partition("==")[0].partition("[")[0]
    python = folder / wanted / "bin" / "python"
    if not python.exists() or _run(str(python), "-m", "pip", "show", "--quiet", wanted):
        if reason := _run(_python(contestant), "-m", "venv", "--clear", str(python.parents[1])):
            raise CannotRun(f"no environment: {reason}")
        if reason := _run(str(python), "-m", "pip", "install", "--quiet", contestant.package, "psycopg[binary]"):
            raise CannotRun(f"{contestant.package} cannot be installed: {reason}")
    show = [str(python), "-m", "pip", "list", "--format", "freeze"]
    told = subprocess.run(show, check=False, capture_output=True, text=True, timeout=_PATIENCE)
    return str(python), next((line for line in told.stdout.splitlines() if line.startswith(wanted + "==")), wanted)


def environment() -> dict[str, str]:
    """The environment variables of every script: this repository is found, and nothing is asked for a name."""
    return os.environ | {"PYTHONPATH": str(_ROOT), "PYTHONUNBUFFERED": "1"}


def _python(contestant: Contestant) -> str:
    if sys.version_info >= contestant.python:
        return sys.executable
    for minor in range(14, contestant.python[1] - 1, -1):
        kept = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))
        for python in filter(None, (shutil.which(f"python3.{minor}"), *map(str, kept))):
            # A shim may stand for no Python.
            if not _run(python, "--version"):
                return python
    raise CannotRun(f"needs Python {'.'.join(map(str, contestant.python))}, which is not on this machine")


def _run(*command: str) -> str:
    """Run a command; return nothing, or why it failed."""
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no reason given"])[-1]
