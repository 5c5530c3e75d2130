"""Helpers for tests of applications that enqueue, and of their handlers.

``deliveries`` makes deliveries without a database, ``enqueued`` asserts what a session has enqueued, ``performing``
calls handlers. docs/testing.md has the tour.
"""

from sqlalchemy_fairqueue.testing.deliveries import make_context, make_delivery
from sqlalchemy_fairqueue.testing.enqueued import (
    Enqueued,
    aall_enqueued,
    aassert_enqueued,
    all_enqueued,
    arefute_enqueued,
    assert_enqueued,
    refute_enqueued,
)
from sqlalchemy_fairqueue.testing.performing import Performed, adrain, aperform, drain, perform

__all__ = [
    "Enqueued",
    "Performed",
    "aall_enqueued",
    "aassert_enqueued",
    "adrain",
    "all_enqueued",
    "aperform",
    "arefute_enqueued",
    "assert_enqueued",
    "drain",
    "make_context",
    "make_delivery",
    "perform",
    "refute_enqueued",
]
