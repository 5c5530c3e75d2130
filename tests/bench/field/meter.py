"""Server resources that a workload used: commits, WAL, dead rows, processor time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.bench.wire import Wire

_COUNTS = (
    "select xact_commit || ' ' || pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0') || ' ' ||"
    " (select coalesce(sum(n_tup_upd + n_tup_del), 0) from pg_stat_user_tables)"
    " from pg_stat_database where datname = current_database()"
)


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters at one moment, or what they grew by.

    Attributes:
        commits: transactions committed in the database.
        wal: bytes of log of the whole server.
        dead: row versions that died in the database: each update and each delete leaves one.
        cpu: seconds of processor time of all the server's processes, ended ones too; 0 where they are elsewhere.
    """

    commits: int
    wal: int
    dead: int
    cpu: float

    def since(self, other: Reading) -> Reading:
        """What grew."""
        return Reading(self.commits - other.commits, self.wal - other.wal, self.dead - other.dead, self.cpu - other.cpu)


def read_meter(wire: Wire) -> Reading:
    """Read the counters of the database that *wire* is connected to."""
    # Sessions tell what they did when they have been idle for a second, or end: the workload's have ended.
    wire.run("select pg_stat_clear_snapshot()")
    commits, wal, dead = wire.value(_COUNTS).split()
    return Reading(int(commits), int(float(wal)), int(dead), _server_cpu(int(wire.value("select pg_backend_pid()"))))


def sessions_cpu(wire: Wire) -> dict[str, float]:
    """Seconds of processor time of each other session of the database; nothing where they are elsewhere.

    Without what the server does for itself, such as autovacuum, which goes its own ways.
    """
    sessions = "select string_agg(pid::text, ' ') from pg_stat_activity where datname = current_database()"
    found = wire.value(f"{sessions} and backend_type = 'client backend' and pid <> pg_backend_pid()").split()
    try:
        # Nanoseconds, where /proc/<pid>/stat has hundredths.
        return {pid: int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9 for pid in found}
    except OSError:
        return {}


def _server_cpu(backend: int) -> float:
    """What the postmaster, its living children and its dead ones have used."""
    try:
        postmaster = int(_stat(backend)[1])
        used = sum(map(int, _stat(postmaster)[11:15]))
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                used += _child_ticks(int(folder.name), postmaster)
    except OSError:
        return 0.0
    return used / os.sysconf("SC_CLK_TCK")


def _child_ticks(process: int, parent: int) -> int:
    try:
        fields = _stat(process)
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12]) if int(fields[1]) == parent else 0


def _stat(process: int) -> list[str]:
    return Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
