"""Handlers that run in child processes, for test_workers. A child imports this module by its name."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from sqlalchemy_fairqueue import Batch, Delivery, Queue

queue = Queue("isolated")


@dataclass
class Page:
    """A page."""

    number: int


@queue.handler("value", isolation="process")
def value(delivery: Delivery) -> Any:
    """Return the payload."""
    return delivery.payload


@queue.handler("lock", isolation="process")
def lock(_: Delivery) -> Any:
    """Return what no process can send."""
    return threading.Lock()


@queue.job(isolation="process")
def page(number: int) -> Page:
    """Return a dataclass."""
    return Page(number)


@queue.job(isolation="process", batch=Batch(max_messages=5))
def pages(numbers: list[int]) -> list[Page]:
    """Return a dataclass for each number."""
    return [Page(number) for number in numbers]
