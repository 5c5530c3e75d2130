"""The worker's logger: nothing a message at INFO or above but what failed."""

from __future__ import annotations

import logging
import sys
import traceback
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.errors import clean

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from sqlalchemy_fairqueue.values import Delivery


class _Log(logging.LoggerAdapter[logging.Logger]):
    """Filters and handlers are the application's: one that raises must end no thread of a worker."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Leave the caller's extra fields as they are."""
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log, or say on stderr why it cannot be done, as logging itself does.

        Names and words of others are in the arguments: none of them makes a line that looks like one of ours.
        """
        try:
            shown = (clean(one) if isinstance(one, str) else one for one in args)
            super().log(level, msg, *shown, **{"stacklevel": 2, **kwargs})
        except Exception:  # noqa: BLE001 - see above
            if logging.raiseExceptions and sys.stderr:
                traceback.print_exc(file=sys.stderr)


log = _Log(logging.getLogger("sqlalchemy_fairqueue.worker"))


def log_message(level: int, name: str, delivery: Delivery, what: str) -> None:
    """Log what became of a message that the worker of that name holds."""
    log.log(
        level,
        "worker %s: message %d of queue %s, channel %s, kind %s %s",
        name,
        delivery.message_id,
        delivery.queue,
        delivery.channel,
        delivery.kind,
        what,
        extra={
            "worker": name,
            "queue": delivery.queue,
            "channel": delivery.channel,
            "kind": delivery.kind,
            "message_id": delivery.message_id,
            "attempt": delivery.attempt,
        },
    )
