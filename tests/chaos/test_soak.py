"""Everything at once: many channels, several processes, and a fault every second."""

import threading
from collections.abc import Callable, Iterable
from itertools import cycle
from pathlib import Path
from time import monotonic

import pytest
from sqlalchemy import NullPool, create_engine

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.embedded import Server
from tests.chaos.books import Books
from tests.chaos.conftest import prepared
from tests.chaos.soak import TOGETHER, Soak, policies
from tests.fixtures.database import Database

_FAULTS = ("kill", "terminate", "freeze", "kill", "terminate", "stop", "restart")


def _run(soak: Soak, messages: int, faults: Iterable[str], within: float) -> tuple[float, float]:
    """Send, disturb, wait for the end, and check; how many seconds it took, and how many of them faults came."""
    began = due = monotonic()
    producer = threading.Thread(target=soak.produce, args=(messages,), daemon=True)
    pause = threading.Event()
    with soak.running():
        producer.start()
        for fault in faults:
            # By the clock, not a second after the last one was done.
            due += 1
            pause.wait(max(0.0, due - monotonic()))
            if not producer.is_alive() and not soak.left():
                break
            soak.fault(fault)
            assert monotonic() - began < within, f"{soak.left()} messages are left"
        disturbed = monotonic() - began
        soak.thaw()
        producer.join()
        while soak.left():
            assert monotonic() - began < within, f"{soak.left()} messages are left"
            soak.replace_ended()
            pause.wait(0.1)
        took = monotonic() - began
    books = soak.books
    books.check()
    assert soak.unbalanced == []
    assert soak.snapshots
    assert soak.ended == []
    narrow = {name: policy.max_concurrency for name, policy in soak.limits.items() if policy.max_concurrency}
    assert books.crowded(narrow, together=TOGETHER) == []
    assert soak.rated_too_often() == []
    return took, disturbed


@pytest.fixture
def make_soak(private_server: Callable[..., Server], tmp_path: Path) -> Callable[..., Soak]:
    """A soak on a server of its own."""

    def make(channels: int, workers: int) -> Soak:
        server = private_server(settings={"autovacuum": "on"})
        database, engine = prepared(Database(server.url())), create_engine(server.url(), poolclass=NullPool)
        queue, limits = Queue("documents", max_attempts=100), policies(channels)
        queue.configure(engine, max_concurrency=TOGETHER, history=True)
        for name, policy in limits.items():
            queue.configure_channel(engine, name, policy)
        return Soak(Books(database, engine, queue), server, tmp_path, workers, limits)

    return make


def test_a_short_soak(make_soak: Callable[..., Soak]) -> None:
    """Two processes lose nothing and do nothing twice while they and the server die under them."""
    _run(make_soak(channels=10, workers=2), 1_000, ["kill", "terminate", "restart", "freeze"], within=100)


@pytest.mark.soak
def test_a_long_soak(make_soak: Callable[..., Soak]) -> None:
    """Four processes and fifty channels with mixed limits: nothing is lost, effects are counted once, no limit is
    exceeded, and every snapshot comes out, with a fault every second.
    """
    soak = make_soak(channels=50, workers=4)
    took, disturbed = _run(soak, 20_000, cycle(_FAULTS), within=1_200)
    database = soak.books.database
    attempts = database.rows("select outcome, count(*) as n from fq_history group by outcome order by outcome")
    twice = database.value("select count(*) - count(distinct number) from effect")
    often = disturbed / (soak.faults.total() - soak.faults["start in vain"])
    print(f"\n20,000 messages in {took:.0f} s; a fault every {often:.2f} s: {dict(soak.faults)}")  # noqa: T201 - measured
    print(f"snapshots that came out: {soak.snapshots}")  # noqa: T201
    print(f"attempts: { ({row.outcome: row.n for row in attempts}) }; effects counted again: {twice}")  # noqa: T201
