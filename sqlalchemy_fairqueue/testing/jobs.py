"""Typed jobs in the arguments of the testing kit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.queue import Job, Queue
from sqlalchemy_fairqueue.values.policies import UNSET

if TYPE_CHECKING:
    from collections.abc import Mapping

    AnyJob = Job[..., ..., Any]


def queue_of(job: AnyJob) -> Queue:
    """The queue of a job."""
    if not isinstance(job.queue, Queue):
        raise InvalidArgument(f"{job!r} has no queue; make it with @queue.job")
    return job.queue


def split_arguments(job: AnyJob, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The payload that has these arguments of a job, UNSET without any, and the other arguments."""
    names = job.schema.signature.parameters
    payload = {name: job.schema.plain(name, value) for name, value in given.items() if name in names}
    others = {name: value for name, value in given.items() if name not in names}
    return job.schema.joined(payload) if payload else UNSET, others
