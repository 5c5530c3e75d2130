"""Messages that follow the groups of a load.

This module must not open connections.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.codecs import JsonCodec
from sqlalchemy_fairqueue.errors import PayloadError
from sqlalchemy_fairqueue.spark.errors import BadOption
from sqlalchemy_fairqueue.spark.options import option_name
from sqlalchemy_fairqueue.times import instant_microseconds, microseconds
from sqlalchemy_fairqueue.values.messages import AFTER_GROUP_HEADER

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.values.messages import Enqueue

_ATTEMPTS = 20
_TYPES = (
    "boolean[]", "text[]", "text[]", "bytea[]", "jsonb[]", "bigint[]", "bigint[]", "integer[]", "text[]", "integer[]",
    "text[]",
)  # fmt: skip
PLACES = ", ".join(f"%s::{kind}" for kind in _TYPES)
"""The parameters of ``fq_make_load_groups`` for the messages, as text of the statement."""


def check_followup(name: str, message: Enqueue | None) -> None:
    """Refuse a message that no group keeps, or that cannot be encoded.

    Raises:
        BadOption: As ``queue.group`` refuses it.
    """
    if message is None:
        return
    option = option_name(name)
    for field, plain in (("on_duplicate", "skip"), ("cost", 1), ("unique_for", None), ("coalesce", False)):
        if getattr(message, field) != plain:
            raise BadOption(f"option {option} has {field}, which no group keeps; leave it out")
    if AFTER_GROUP_HEADER in (message.headers or {}):
        raise BadOption(f"option {option} has a header {AFTER_GROUP_HEADER!r}, which the group sets; rename it")
    try:
        JsonCodec().encode(message.payload)
    except PayloadError as error:
        raise BadOption(f"option {option}: {error}") from None


def followup_parameters(then: Enqueue | None, on_failure: Enqueue | None, max_attempts: int | None) -> list[Any]:
    """The values for :data:`PLACES`: an array each, with an element a message."""
    chosen = [(failed, one) for failed, one in ((False, then), (True, on_failure)) if one is not None]
    rows = [
        (
            failed,
            one.channel,
            one.kind,
            JsonCodec().encode(one.payload),
            None if one.headers is None else json.dumps(dict(one.headers)),
            None if one.delay is None else microseconds(one.delay),
            None if one.at is None else instant_microseconds(one.at),
            one.priority,
            one.key,
            one.max_attempts or max_attempts or _ATTEMPTS,
            one.ordering_key,
        )
        for failed, one in chosen
    ]
    return [list(column) for column in zip(*rows, strict=True)] if rows else [None] * len(_TYPES)
