"""Contestants, and a virtual environment for each peer. A peer that cannot run is reported with the reason."""

from __future__ import annotations

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
        bulk: most messages that its own bulk call adds in bearable time; 0: its tables are filled in SQL.
        later: whether a message can be enqueued for later.
        limits: whether each tenant can be given a limit without having been declared.
        leases: whether what a dead worker held is given to another by itself.
        native: whether its engine is not Python.
        only: the workloads that it is there for; empty: all.
    """

    name: str
    script: str
    arguments: tuple[str, ...] = ()
    package: str = ""
    python: tuple[int, int] = (3, 11)
    speed: int = 1_000
    bulk: int = 0
    later: bool = True
    limits: bool = False
    leases: bool = False
    native: bool = False
    only: tuple[str, ...] = ()

    @property
    def tables(self) -> str:
        """Whose tables it has: a design's, or the library's."""
        return self.arguments[0] if self.script == "with_design" else "fairqueue"

    @property
    def environment(self) -> str:
        """What its virtual environment is called: that of its package."""
        return self.package.partition("==")[0].partition("[")[0]


LIBRARY: Final = Contestant("fairqueue", "with_fairqueue", speed=8_000, limits=True, leases=True)
WITHOUT_PREFETCH: Final = Contestant("fairqueue_prefetch_0", "with_fairqueue", ("0",), only=("whale", "newcomers"))
"""The library's worker when it holds no message that no handler is free for."""
ON_ENGINE: Final = Contestant("fairqueue_engine", "with_fairqueue", ("", "1", "engine"), only=("enqueue",))
"""The library with bulk enqueues on an engine, for producers that have no session."""
LONG_TURNS: Final = Contestant("fairqueue_turns_4", "with_fairqueue", ("", "4"), only=("whale", "newcomers", "zipf"))
"""The library with turns of four messages: every tenant has a weight of 4."""
BY_COST: Final = Contestant(
    "fairqueue_by_cost", "with_fairqueue", ("", "1", "session", "cost"), speed=8_000, only=("costs",)
)
"""The library when the queue shares by the costs that messages tell."""
BY_SECONDS: Final = Contestant(
    "fairqueue_by_seconds", "with_fairqueue", ("", "1", "session", "seconds"), speed=8_000, only=("costs",)
)
"""The library when the queue shares by the seconds that its workers measure, and messages tell nothing."""
BATCH: Final = "8"
"""Messages that a thread of a published design takes at once where batches are allowed."""
DESIGNS: Final = [
    Contestant("fifo", "with_design", ("fifo", BATCH), speed=4_000, later=False),
    Contestant("partitioned", "with_design", ("partitioned", "1"), speed=100, bulk=2_000, later=False),
    Contestant("blocks", "with_design", ("blocks", BATCH), speed=4_000, later=False),
    Contestant("leased", "with_design", ("leased", "1"), later=False),
    Contestant("priority", "with_design", ("priority", "1")),
    Contestant("channels", "with_design", ("channels", "1"), limits=True),
]
_FAIRNESS: Final = ("whale", "newcomers", "zipf", "costs", "limited")
PEERS: Final = [
    Contestant("procrastinate", "with_procrastinate", package="procrastinate==3.*", speed=500, bulk=100_000),
    Contestant("pgqueuer", "with_pgqueuer", package="pgqueuer[asyncpg]==1.*", bulk=400_000, leases=True),
    Contestant("chancy", "with_chancy", package="chancy==0.*", bulk=40_000, leases=True),
    Contestant("dbos", "with_dbos", package="dbos==3.*", speed=200, bulk=5_000),
    Contestant("awa", "with_awa", package="awa-pg==0.*", bulk=200_000, leases=True, native=True),
    Contestant("oban", "with_oban", package="oban==0.*", python=(3, 12), bulk=40_000, leases=True),
]
"""Peers as their documentation sets them up."""
FAIRER: Final = [
    Contestant(
        "dbos_partitioned",
        "with_dbos",
        ("partitioned",),
        "dbos==3.*",
        speed=200,
        bulk=5_000,
        limits=True,
        only=_FAIRNESS,
    ),
    Contestant(
        "awa_partitioned",
        "with_awa",
        ("partitioned",),
        "awa-pg==0.*",
        speed=500,
        bulk=200_000,
        native=True,
        only=_FAIRNESS,
    ),
]
"""The same with the option that they document for many tenants; the others have none for undeclared ones."""


class CannotRun(Exception):
    """A contestant cannot run here; the message is the reason."""


class NotForIt(Exception):
    """A workload is not for a contestant; the message is the reason."""


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
    wanted = contestant.environment
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
        found = shutil.which(f"python3.{minor}")
        kept = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))
        for python in filter(None, (found, *map(str, kept))):
            if not _run(python, "--version"):
                return python
    wanted = ".".join(map(str, contestant.python))
    raise CannotRun(f"needs Python {wanted}, which is not on this machine")


def _run(*command: str) -> str:
    """Run a command; return nothing, or why it failed."""
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no reason given"])[-1]
