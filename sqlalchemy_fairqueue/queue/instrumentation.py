"""Instrumentation of this process: hooks on enqueues, handlers and settlements, if anything is installed.

If nothing is installed, each hook costs the read of one attribute.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy_fairqueue.values.messages import Delivery, Enqueue


class Handled(Protocol):
    """What the context of a handler shows of it here."""

    @property
    def delivery(self) -> Delivery:
        """The delivery that it handles."""
        ...


class Instrumentation(Protocol):
    """Hooks on the work of this process. Its methods must not raise."""

    def before_enqueue(self, queue: str, messages: Sequence[Enqueue]) -> Mapping[str, str]:
        """Return headers for all messages of a call. A message that has one of them itself gets none of them."""
        ...

    def around(self, context: Handled, proceed: Callable[[], Any]) -> Any:
        """Call a plain handler, and return what it returned."""
        ...

    def around_async(self, context: Handled, proceed: Callable[[], Awaitable[Any]]) -> Awaitable[Any]: ...

    def settling(self, queue: str, verb: str, deliveries: Sequence[Delivery]) -> AbstractContextManager[object]:
        """Return a block in which a worker settles deliveries by one statement."""
        ...

    def settled(self, verb: str, deliveries: Sequence[Delivery]) -> None:
        """Note that a worker's deliveries were settled; *verb* is complete, retry, release or bury."""
        ...


@dataclass(slots=True)
class _Installed:
    """Holder of the instrumentation of this process."""

    instrumentation: Instrumentation | None = None


installed = _Installed()
"""The instrumentation of this process, or None in it."""


def settling(queue: str, verb: str, deliveries: Callable[[], Sequence[Delivery]]) -> AbstractContextManager[object]:
    """Return a block in which deliveries are settled; instrumentation hears of it if there is at least one."""
    instrumentation = installed.instrumentation
    if instrumentation is None or not (found := deliveries()):
        return nullcontext()
    return instrumentation.settling(queue, verb, found)


def settled(verb: str, deliveries: Callable[[], Sequence[Delivery]]) -> None:
    """Tell of deliveries that were settled."""
    instrumentation = installed.instrumentation
    if instrumentation is not None:
        instrumentation.settled(verb, deliveries())
