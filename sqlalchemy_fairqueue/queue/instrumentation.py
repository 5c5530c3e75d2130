"""Hooks of this process on enqueues, handlers and settlements, for tracing and metrics."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from sqlalchemy_fairqueue.values.messages import Delivery, Enqueue


class Handled(Protocol):
    """What instrumentation reads of a handler's context."""

    @property
    def deliveries(self) -> Sequence[Delivery]: ...


class Instrumentation(Protocol):
    """Hooks on the work of this process. Its methods must not raise."""

    def before_enqueue(self, queue: str, messages: Sequence[Enqueue]) -> Mapping[str, str]:
        """Return headers to add to the messages of a call. A message that has one of these itself gets none of them."""
        ...

    def around(self, context: Handled, proceed: Callable[[], Any]) -> Any: ...

    def around_async(self, context: Handled, proceed: Callable[[], Awaitable[Any]]) -> Awaitable[Any]: ...

    def settling(self, queue: str, verb: str, deliveries: Sequence[Delivery]) -> AbstractContextManager[object]:
        """Return a context manager, for instance a span, to put around the statement that settles *deliveries*."""
        ...

    def settled(self, verb: str, deliveries: Sequence[Delivery]) -> None:
        """Note how deliveries of a worker ended; *verb* is complete, retry, release, bury or lost."""
        ...


@dataclass(slots=True)
class _Installed:
    instrumentation: Instrumentation | None = None


installed = _Installed()
"""Holds the instrumentation of this process; ``installed.instrumentation`` is None if there is none."""


def settling(queue: str, verb: str, deliveries: Callable[[], Sequence[Delivery]]) -> AbstractContextManager[object]:
    instrumentation = installed.instrumentation
    if instrumentation is None or not (found := deliveries()):
        return nullcontext()
    return instrumentation.settling(queue, verb, found)


def settled(verb: str, deliveries: Callable[[], Sequence[Delivery]]) -> None:
    instrumentation = installed.instrumentation
    if instrumentation is not None:
        instrumentation.settled(verb, deliveries())
