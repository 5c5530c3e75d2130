"""A server that goes back to an earlier moment: a crash that lost commits, a restore, a failover with loss."""

import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import URL, create_engine, text

from sqlalchemy_fairqueue import Delivery, LeaseLost, Queue, install_fairqueue
from sqlalchemy_fairqueue.embedded import Server
from tests.worker.helpers import until

_LEASE = timedelta(hours=1)


class _Way(ABC):
    """A server that forgets what was committed after a moment."""

    def __init__(self, private_server: Callable[..., Server]) -> None:
        self._start = private_server
        self._server = private_server(settings={"autovacuum": "off", "wal_writer_delay": "10s", "wal_level": "replica"})

    @property
    def url(self) -> URL:
        return self._server.url()

    @abstractmethod
    def remember(self) -> None:
        """What is committed up to now is kept."""

    @abstractmethod
    def go_back(self) -> None:
        """Forget the rest, and serve again."""


def _run(server: Server, *statements: str) -> list[str]:
    engine = create_engine(server.url(), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        results = [connection.execute(text(statement)) for statement in statements]
        found = [str(row[0]) for result in results if result.returns_rows for row in result]
    engine.dispose()
    return found


def _copy(source: Server, target: Path) -> None:
    """Nobody writes meanwhile."""
    subprocess.run(["/bin/cp", "-a", str(source.data_directory), str(target)], check=True)


def _stop(server: Server, mode: str) -> None:
    server._run("pg_ctl", "stop", "-w", "-m", mode)


def _begin(server: Server) -> None:
    server._run("pg_ctl", "start", "-w", "-l", str(server.log_path))


class _Crash(_Way):
    """It does not wait for the disk at a commit, and the machine fails."""

    def remember(self) -> None:
        _run(self._server, "alter system set synchronous_commit = off", "select pg_reload_conf()", "checkpoint")

    def go_back(self) -> None:
        self._server.restart("immediate")


class _Restore(_Way):
    """Its files are put back."""

    def remember(self) -> None:
        _run(self._server, "checkpoint")
        _copy(self._server, self._server.directory / "before")

    def go_back(self) -> None:
        server = self._server
        _stop(server, "immediate")
        shutil.rmtree(server.data_directory)
        (server.directory / "before").rename(server.data_directory)
        (server.data_directory / "postmaster.pid").unlink(missing_ok=True)
        _begin(server)


class _OldFiles(_Restore):
    """It was stopped in order, its files were copied, and the copy is put back: no recovery empties a table."""

    def remember(self) -> None:
        _stop(self._server, "fast")
        _copy(self._server, self._server.directory / "before")
        _begin(self._server)


class _Failover(_Way):
    """Another one that got its log takes over, without the end of it."""

    def __init__(self, private_server: Callable[..., Server]) -> None:
        super().__init__(private_server)
        standby = self._standby = private_server()
        _stop(standby, "fast")
        shutil.rmtree(standby.data_directory)
        _run(self._server, "checkpoint")
        _copy(self._server, standby.data_directory)
        (standby.data_directory / "postmaster.pid").unlink()
        (standby.data_directory / "standby.signal").touch()
        with (standby.data_directory / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"unix_socket_directories = '{standby.directory}'\n")
            settings.write(f"primary_conninfo = 'host={self._server.directory} user=postgres'\n")
        _begin(standby)

    @property
    def url(self) -> URL:
        hosts = {"host": f"{self._server.directory},{self._standby.directory}", "target_session_attrs": "read-write"}
        return super().url.update_query_dict(hosts)

    def remember(self) -> None:
        [position] = _run(self._server, "select pg_current_wal_lsn()")
        replayed = f"select pg_last_wal_replay_lsn() >= '{position}'"
        until(lambda: _run(self._standby, replayed) == ["True"], "the other server has all of the log")
        _run(self._standby, "alter system set primary_conninfo = ''", "select pg_reload_conf()")
        until(lambda: _run(self._standby, "select pid from pg_stat_wal_receiver") == [], "it gets no more")

    def go_back(self) -> None:
        _stop(self._server, "immediate")
        self._standby._run("pg_ctl", "promote", "-w")


@pytest.mark.parametrize("way", [_Crash, _Restore, _OldFiles, _Failover])
def test_a_consumer_that_does_not_notice(private_server: Callable[..., Server], way: Callable[..., _Way]) -> None:
    """It finds new messages at once, and a message that has the id of a lost one is not completed as the lost one."""
    server = way(private_server)
    engine = create_engine(server.url, pool_pre_ping=True)
    install_fairqueue(engine)
    queue = Queue("documents")

    def taken(count: int) -> dict[int, Delivery]:
        for number in range(count):
            queue.enqueue(engine, channel="a", payload=number)
        return {one.message_id: one for one in queue.dequeue(engine, limit=count, lease=_LEASE)}

    kept = taken(1)
    server.remember()
    lost = taken(50)
    queue.dequeue(engine)
    server.go_back()

    new = taken(50)
    assert len(new) == 50
    same = sorted(new.keys() & lost.keys())
    assert same
    if way is not _OldFiles:
        # The tokens differ in no other way than by the epochs of the deliveries.
        assert {one.lease.id for one in lost.values()} == {one.lease.id for one in kept.values()}
    for message_id in same:
        with pytest.raises(LeaseLost):
            queue.complete(engine, lost[message_id])
    queue.complete(engine, list(new.values()))
    queue.complete(engine, list(kept.values()))
    assert queue.stats(engine).leased == 0
    engine.dispose()
