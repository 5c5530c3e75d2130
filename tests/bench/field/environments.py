"""Who takes part, and a virtual environment for each peer; who cannot run is told with the reason."""

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
    """

    name: str
    script: str
    arguments: tuple[str, ...] = ()
    package: str = ""
    python: tuple[int, int] = (3, 11)


LIBRARY: Final = Contestant("fairqueue", "with_fairqueue")
WITHOUT_PREFETCH: Final = Contestant("fairqueue_prefetch_0", "with_fairqueue", ("0",))
"""The library's worker when it holds no message that no handler is free for."""
BATCH: Final = "8"
"""Messages that a thread of a published design takes at once where batches are allowed."""
DESIGNS: Final = [
    Contestant(name, "with_design", (name, BATCH if name in {"fifo", "blocks"} else "1"))
    for name in ("fifo", "partitioned", "blocks", "leased", "channels")
]
PEERS: Final = [
    Contestant("procrastinate", "with_procrastinate", package="procrastinate==3.*"),
    Contestant("pgqueuer", "with_pgqueuer", package="pgqueuer[asyncpg]==1.*"),
    Contestant("chancy", "with_chancy", package="chancy==0.*"),
    Contestant("dbos", "with_dbos", package="dbos==3.*"),
    Contestant("awa", "with_awa", package="awa-pg==0.*"),
    Contestant("oban", "with_oban", package="oban==0.*", python=(3, 12)),
]


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
    python = folder / contestant.name / "bin" / "python"
    distribution = contestant.package.partition("==")[0]
    if not python.exists() or _run(str(python), "-m", "pip", "show", "--quiet", distribution.partition("[")[0]):
        if reason := _run(_python(contestant), "-m", "venv", "--clear", str(python.parents[1])):
            raise CannotRun(f"no environment: {reason}")
        if reason := _run(str(python), "-m", "pip", "install", "--quiet", contestant.package, "psycopg[binary]"):
            raise CannotRun(f"{contestant.package} cannot be installed: {reason}")
    show = [str(python), "-m", "pip", "list", "--format", "freeze"]
    told = subprocess.run(show, check=False, capture_output=True, text=True, timeout=_PATIENCE)
    wanted = distribution.partition("[")[0]
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
