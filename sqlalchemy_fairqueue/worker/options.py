"""What a worker was asked to be."""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.asynchronous import AsyncEngine
from sqlalchemy_fairqueue.engines import check_driver
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.queue import Queue
from sqlalchemy_fairqueue.values import RetryPolicy, check_count, check_duration, check_name
from sqlalchemy_fairqueue.worker.prefetch import MOST

if TYPE_CHECKING:
    from sqlalchemy import Engine


LEASE = timedelta(seconds=30)
GRACE = timedelta(seconds=30)
POLL_WOKEN = timedelta(seconds=5)
POLL_ALONE = timedelta(seconds=1)
_LEAST_LEASE = timedelta(milliseconds=100)
_LEAST_POLL = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The arguments of a worker, checked. See :class:`sqlalchemy_fairqueue.Worker`."""

    engine: Engine | AsyncEngine
    queues: tuple[Queue, ...]
    concurrency: int
    lease: timedelta
    poll_interval: timedelta | None
    notify: bool
    grace: timedelta
    retry: RetryPolicy
    prefetch: int
    name: str
    housekeeping: bool

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        check_driver(self.engine.sync_engine if isinstance(self.engine, AsyncEngine) else self.engine)
        if not self.queues:
            raise InvalidArgument("a worker got no queue; give it one or several")
        for queue in self.queues:
            if not isinstance(queue, Queue):
                raise InvalidArgument(f"queues has {queue!r:.80} where a Queue is needed")
        places = [(queue.schema, queue.name) for queue in self.queues]
        if len(set(places)) < len(places):
            raise InvalidArgument(f"queues names one queue twice: {places!r:.200}; give each once")
        check_count("concurrency", self.concurrency, 1, 10_000)
        check_count("prefetch", self.prefetch, 0, MOST)
        check_duration("lease", self.lease, _LEAST_LEASE)
        check_duration("grace", self.grace)
        if self.poll_interval is not None:
            check_duration("poll_interval", self.poll_interval, _LEAST_POLL)
        if not isinstance(self.retry, RetryPolicy):
            raise InvalidArgument(f"retry is {self.retry!r:.80}; give a RetryPolicy")
        check_name("name", self.name)

    @property
    def ask(self) -> timedelta:
        """What a dequeue asks for: less than the heartbeat gives, so that the lease that is there can be used."""
        return self.lease / 2

    @property
    def woken_interval(self) -> float:
        """Seconds between two looks of a worker that can be woken, at most."""
        return (self.poll_interval or POLL_WOKEN).total_seconds()

    @property
    def alone_interval(self) -> float:
        """Seconds between two looks of a worker that cannot."""
        asked = self.poll_interval or POLL_ALONE
        return (min(asked, POLL_ALONE) if self.notify else asked).total_seconds()


def worker_name(given: str | None) -> str:
    """A name for a worker: shown beside its leases and in the log."""
    return given if given is not None else f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
