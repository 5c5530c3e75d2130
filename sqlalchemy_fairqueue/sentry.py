"""Middleware that reports errors of handlers to Sentry, with their queue, channel, kind and message.

Give it to workers: ``Worker(engine, queue, middleware=[sentry_scope])``. This module needs sentry-sdk.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import sentry_sdk

from sqlalchemy_fairqueue.values.outcomes import Outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from sqlalchemy_fairqueue.queue.contexts import Context


def sentry_scope(context: Context, proceed: Callable[[], Any]) -> Any:
    """Call a plain handler in a Sentry scope for its message; report exceptions, but no Retry, Release or Bury."""
    with _scope(context):
        return proceed()


async def async_sentry_scope(context: Context, proceed: Callable[[], Awaitable[Any]]) -> Any:
    """Call an async handler in a Sentry scope for its message; report exceptions, but no Retry, Release or Bury."""
    with _scope(context):
        return await proceed()


@contextmanager
def _scope(context: Context) -> Iterator[None]:
    delivery = context.delivery
    with sentry_sdk.isolation_scope() as scope:
        scope.set_transaction_name(f"{delivery.queue}/{delivery.kind}")
        scope.set_tag("fairqueue.queue", delivery.queue)
        scope.set_tag("fairqueue.kind", delivery.kind)
        scope.set_context(
            "fairqueue",
            {"channel": delivery.channel, "message_id": delivery.message_id, "attempt": delivery.attempt},
        )
        try:
            yield
        except Outcome:
            raise
        except Exception:
            sentry_sdk.capture_exception()
            raise
