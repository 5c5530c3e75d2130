"""Fuzzer of rows: whatever a producer can send, no queue stops and nobody's message is delayed.

FAIRQUEUE_FUZZ_ROWS is the number of rows, FAIRQUEUE_FUZZ_SEED the seed.
"""

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from random import Random

import pytest

from sqlalchemy_fairqueue import Bury, Delivery, Release, Retry, RetryPolicy, Worker
from tests.queue.fuzzing import Fuzzed
from tests.roles.conftest import SCHEMA, Installation, bare_cli, jobs
from tests.worker.helpers import until

__all__ = ["bare_cli", "jobs"]

_ROWS = int(os.environ.get("FAIRQUEUE_FUZZ_ROWS", "200"))
_SEED = int(os.environ.get("FAIRQUEUE_FUZZ_SEED", "1"))
_ROUND = 20
_PREFETCH = 16
_HANDLERS = 2
_DUE = f"""
select count(*) from {SCHEMA}.fq_message
where kind = 'work' and lease_id is null and dequeue_at <= {SCHEMA}.fq_now()
"""


@pytest.fixture
def fuzzed(jobs: Installation) -> Iterator[Fuzzed]:
    """The queue, with calls of the seed."""
    found = Fuzzed(jobs, _SEED)
    yield found
    found.close()


def test_no_row_stops_a_queue(fuzzed: Fuzzed) -> None:
    """After each round of rows a message of somebody else comes within so many dequeues as its turn allows, and all
    that an operator can read is there.
    """
    for _ in range(0, _ROWS, _ROUND):
        for _ in range(_ROUND):
            fuzzed.send()
        fuzzed.serve(fuzzed.bystander())
        fuzzed.inspect()
    assert 0.2 * fuzzed.asked < fuzzed.taken < 0.9 * fuzzed.asked, "the grammar makes rows of both kinds"


def test_no_row_stops_a_worker(fuzzed: Fuzzed) -> None:
    """A worker handles messages of somebody else in their turn while such rows come, and all that is due at the end."""
    handled: list[int] = []
    outcomes: list[Callable[[], BaseException | None]] = [
        lambda: None, lambda: None, Retry, Release, lambda: Bury("no"), lambda: ValueError("\x00\ud800 %s"),
    ]  # fmt: skip
    # Threads use it: the calls of a seed must not depend on them.
    queue, random = fuzzed.queue, Random(_SEED)  # noqa: S311 - outcomes of tests

    @queue.handler("work", retry=RetryPolicy(first=timedelta(), max_attempts=2))
    def work(delivery: Delivery) -> None:
        handled.append(delivery.message_id)
        outcome = None if delivery.channel == "bystander" else random.choice(outcomes)()
        if outcome is not None:
            raise outcome

    worker = Worker(
        fuzzed.consumer, queue, concurrency=_HANDLERS, prefetch=_PREFETCH, housekeeping=False,
        poll_interval=timedelta(milliseconds=200),
    )  # fmt: skip
    with worker:
        for _ in range(0, _ROWS, _ROUND):
            for _ in range(_ROUND):
                fuzzed.send()
            before = len(handled)
            bystander = fuzzed.bystander()
            until(partial(handled.__contains__, bystander), f"the bystander is handled (seed {_SEED})")
            most = 2 * fuzzed.channels() + _PREFETCH + _HANDLERS
            assert handled.index(bystander, before) - before <= most, f"seed {_SEED}: others came first"
        fuzzed.inspect()
        fuzzed.lift_limits()
        until(lambda: not fuzzed.jobs.database.value(_DUE), "the worker has handled all that is due")
    assert worker.stats.failures == 0
    fuzzed.inspect()
