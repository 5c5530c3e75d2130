"""Helpers for tests of applications that enqueue, and of their handlers. The documentation's page on testing shows all.

``plugin``, which needs pytest, and ``factories``, which needs factory-boy, are not imported here.
"""

from sqlalchemy_fairqueue.testing.enqueued import Enqueued, all_enqueued, assert_enqueued, refute_enqueued
from sqlalchemy_fairqueue.testing.performing import Performed, aperform, drain, make_context, make_delivery, perform
from sqlalchemy_fairqueue.testing.sessions import DatabaseClock, inline, rolled_back

__all__ = [
    "DatabaseClock",
    "Enqueued",
    "Performed",
    "all_enqueued",
    "aperform",
    "assert_enqueued",
    "drain",
    "inline",
    "make_context",
    "make_delivery",
    "perform",
    "refute_enqueued",
    "rolled_back",
]
