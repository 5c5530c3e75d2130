"""Server resources that a load used: commits, log, dead rows, processor time."""

from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path

from tests.bench.processes import stat_of, ticks
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
        commits: Transactions committed in the database.
        wal: Bytes of log of the whole server.
        dead: Row versions that died in the database: each update and each delete leaves one.
        cpu: Seconds of processor time of all the server's processes, ended ones too; 0 if it is on another machine.
    """

    commits: int = 0
    wal: int = 0
    dead: int = 0
    cpu: float = 0.0

    def since(self, other: "Reading") -> "Reading":
        """Return what grew."""
        return Reading(*(now - before for now, before in zip(astuple(self), astuple(other), strict=True)))

    def by(self, messages: int) -> dict[str, float]:
        """Return what a message took."""
        return {
            "commits/message": self.commits / messages,
            "log bytes/message": self.wal / messages,
            "dead rows/message": self.dead / messages,
            "server us/message": 1e6 * self.cpu / messages,
        }


def read_meter(wire: Wire) -> Reading:
    """Read the counters of the database that *wire* is connected to."""
    # Sessions tell what they did when they have been idle for a second, or end: the load's have ended.
    wire.run("select pg_stat_clear_snapshot()")
    commits, wal, dead = wire.value(_COUNTS).split()
    return Reading(int(commits), int(float(wal)), int(dead), _server_cpu(int(wire.value("select pg_backend_pid()"))))


def _server_cpu(backend: int) -> float:
    """Return what the postmaster, its living children and its dead ones have used."""
    try:
        postmaster = stat_of(backend)[1]
        used = sum(map(int, stat_of(postmaster)[11:15]))
    except OSError:
        return 0.0
    for folder in Path("/proc").glob("[0-9]*"):
        # Processes end while they are listed.
        with suppress(OSError):
            fields = stat_of(folder.name)
            used += int(fields[11]) + int(fields[12]) if fields[1] == postmaster else 0
    return ticks(used)
