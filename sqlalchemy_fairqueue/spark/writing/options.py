"""Options of a write, and checks of their values, with the messages that follow the groups of a load.

This module must not open connections.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from sqlalchemy_fairqueue.codecs import JsonCodec
from sqlalchemy_fairqueue.errors import InvalidArgument, PayloadError
from sqlalchemy_fairqueue.spark.errors import BadOption
from sqlalchemy_fairqueue.spark.options import TargetOptions, option_name, read_fields
from sqlalchemy_fairqueue.times import instant_microseconds, microseconds
from sqlalchemy_fairqueue.values.checks import check_count, check_name
from sqlalchemy_fairqueue.values.messages import AFTER_GROUP_HEADER, Enqueue
from sqlalchemy_fairqueue.values.policies import POLICY, ChannelPolicy, PolicyFields

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
    for name_of_field, plain in (("on_duplicate", "skip"), ("cost", 1), ("unique_for", None), ("coalesce", False)):
        if getattr(message, name_of_field) != plain:
            raise BadOption(f"option {option} has {name_of_field}, which no group keeps; leave it out")
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


_MOST = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(PolicyFields, TargetOptions):
    """Options of a write.

    Fields of a :class:`~sqlalchemy_fairqueue.ChannelPolicy` make the policy of channels that the load is the first to
    use, unless the queue has one: the same as in your ``Queue(defaults=...)``.

    Attributes:
        queue: The queue.
        job_id: The id of the load: the same job again enqueues nothing. None: a random one, so that a retry enqueues
            again. A stream needs one.
        kind: The kind of messages whose row has none.
        max_attempts: The limit of attempts of messages whose row has none.
        payload_format: The meaning of a string payload: ``value``, a payload that is a string; ``json``, a JSON
            document, which is checked.
        on_duplicate: The action for a row whose key a message of its channel has: ``skip``, ``raise`` (the load fails)
            or ``replace``.
        bad_rows: The action for rows with bad values: ``fail``, the load fails and shows up to ten; ``reject``, they
            are written to rejects_path and counted.
        rejects_path: A folder or URI that driver and executors can write to; Parquet files by
            schema, queue, job and batch.
        staging_rows: The number of rows that an executor encodes at once.
        staging_ttl: If a driver died, a later load drops its staging tables when they are this old.
        then: The message that follows each group of the frame's column ``group``, when its last member has ended. As
            text, JSON with the fields of an Enqueue: ``{"channel": "a", "payload": 1, "kind": "report"}``.
        on_failure: The message that follows instead if a member failed or was cancelled.
    """

    queue: str
    job_id: str | None = None
    kind: str = "default"
    max_attempts: int | None = None
    payload_format: Literal["value", "json"] = "value"
    on_duplicate: Literal["skip", "raise", "replace"] = "skip"
    bad_rows: Literal["fail", "reject"] = "fail"
    rejects_path: str | None = None
    staging_rows: int = 10_000
    staging_ttl: timedelta = timedelta(days=1)
    then: Enqueue | None = field(default=None, repr=False)
    on_failure: Enqueue | None = field(default=None, repr=False)

    @property
    def policy(self) -> ChannelPolicy:
        """The policy of channels that the load is the first to use, from the options of its fields."""
        values: Any = {name: getattr(self, name) for name in POLICY}
        return ChannelPolicy(**values)

    def __post_init__(self) -> None:
        """Refuse invalid values before anything is staged."""
        read_fields(self)
        # slots make super() without arguments fail in a dataclass
        TargetOptions.__post_init__(self)
        try:
            for name in ("queue", "kind", "job_id"):
                if getattr(self, name) is not None:
                    check_name(name, getattr(self, name))
            if self.max_attempts is not None:
                check_count("max_attempts", self.max_attempts, 1, _MOST)
            check_count("staging_rows", self.staging_rows, 1, _MOST)
            _ = self.policy
            for name in ("then", "on_failure"):
                check_followup(name, getattr(self, name))
        except InvalidArgument as error:
            name, _, problem = str(error).partition(" ")
            raise BadOption(f"option {option_name(name)} {problem}") from None
        if self.staging_ttl < timedelta():
            raise BadOption(f"option stagingTtl is {self.staging_ttl}; give a duration from 0 on")
        if (self.bad_rows == "reject") != (self.rejects_path is not None):
            raise BadOption("badRows=reject and rejectsPath go together: give both, or neither")
