"""Errors of the access to an installation: it is missing or too old, or the role may not make the call."""

from __future__ import annotations

from sqlalchemy_fairqueue.errors.base import FairQueueError


class SchemaMismatch(FairQueueError, codes=("QF004", "42883", "42P01", "3F000", "42703")):
    """The queue is not installed in the schema that was named, or in a version that this library cannot use.

    Example:
        >>> try:
        ...     Queue("documents", schema="elsewhere").stats(engine)
        ... except SchemaMismatch as error:
        ...     print(error)
        fairqueue is not installed in schema 'elsewhere'; put op.create_fairqueue(version=1, schema='elsewhere') ...
    """


class NotGranted(FairQueueError, codes=("QF007",)):
    """A call is outside of the queues or channels that the role's grants are bound to. Nothing was changed."""
