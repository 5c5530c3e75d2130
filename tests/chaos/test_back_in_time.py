"""A server that goes back to an earlier moment: a failover with loss, or a recovery to a point in time."""

import shutil
import subprocess
from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import create_engine, text

from sqlalchemy_fairqueue import Delivery, LeaseLost, Queue, install_fairqueue
from sqlalchemy_fairqueue.embedded import Server

_LEASE = timedelta(hours=1)


@pytest.mark.soak
def test_a_consumer_that_does_not_notice(private_server: Callable[..., Server]) -> None:
    """It finds new messages at once, and a message that has the id of a lost one is not completed as the lost one."""
    server = private_server(settings={"autovacuum": "off"})
    engine = create_engine(server.url(), pool_pre_ping=True)
    install_fairqueue(engine)
    queue = Queue("documents")

    def taken(count: int) -> dict[int, Delivery]:
        for number in range(count):
            queue.enqueue_now(engine, channel="a", payload=number)
        return {one.message_id: one for one in queue.dequeue(engine, limit=count, lease=_LEASE)}

    kept = taken(1)
    before = server.directory / "before"
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("checkpoint"))
        # Nobody writes.
        subprocess.run(["/bin/cp", "-a", str(server.data_directory), str(before)], check=True)
    lost = taken(50)
    queue.dequeue(engine)
    server._supervisor.run("pg_ctl", "stop", "-w", "-m", "immediate")
    shutil.rmtree(server.data_directory)
    before.rename(server.data_directory)
    (server.data_directory / "postmaster.pid").unlink()
    server._supervisor.run("pg_ctl", "start", "-w", "-l", str(server.log_path))

    new = taken(50)
    assert len(new) == 50
    same = sorted(new.keys() & lost.keys())
    assert same
    assert {one.lease.id for one in lost.values()} == {one.lease.id for one in kept.values()}
    for message_id in same:
        with pytest.raises(LeaseLost):
            queue.complete(engine, lost[message_id])
    queue.complete(engine, list(new.values()))
    queue.complete(engine, list(kept.values()))
    assert queue.stats(engine).leased == 0
    engine.dispose()
