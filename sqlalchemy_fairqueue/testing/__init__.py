"""Helpers for tests of applications that enqueue, and of their handlers.

``enqueued`` asserts what a session has enqueued. ``performing`` creates deliveries without a database and calls
handlers. ``sessions`` rolls back, runs handlers at commits, and moves the time of a test's database. ``plugin`` is the
pytest plugin, with its parts in ``databases`` and ``workers``; ``factories`` needs factory-boy. These are not imported
here. The documentation's page on testing is the tour.
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
