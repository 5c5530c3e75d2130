"""The options of a write, checked beyond what their types say."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.spark.errors import BadOption
from sqlalchemy_fairqueue.spark.options import PlaceOptions, camel, read_fields
from sqlalchemy_fairqueue.values.checks import check_count, check_name
from sqlalchemy_fairqueue.values.policies import ChannelPolicy

_MOST = 2**31 - 1
_POLICY = ("max_concurrency", "release_interval", "release_burst", "weight", "max_backlog")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(PlaceOptions):
    """How a frame is enqueued.

    Attributes:
        queue: The queue.
        job_id: What the load is known by: the same job again enqueues nothing. None: a random one, so that trying again
            enqueues again. A stream needs one.
        kind: The kind of messages whose row says none.
        max_attempts: How often messages whose row does not say are tried.
        payload_format: What a string payload is: ``value``, a payload that happens to be a string; ``json``, a document
            in JSON, checked.
        on_duplicate: What becomes of a row whose key stands in its channel: ``skip``, ``raise`` (the load fails) or
            ``replace``.
        bad_rows: What becomes of rows with bad values: ``fail``, the load fails and shows up to ten; ``reject``, they
            are written to rejects_path and counted.
        rejects_path: A folder or URI that driver and executors can write to; Parquet files by
            schema, queue, job and batch.
        staging_rows: How many rows an executor encodes at once.
        staging_ttl: After how long the staging tables of drivers that died are dropped, by the next load.
        max_concurrency, release_interval, release_burst, weight, max_backlog, drop_when_full: The policy of channels
            that the load is the first to use, unless the queue has one: give what your ``Queue(defaults=...)`` says.
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
    max_concurrency: int | None = None
    release_interval: timedelta | None = None
    release_burst: int | None = None
    weight: int | None = None
    max_backlog: int | None = None
    drop_when_full: bool | None = None

    def __post_init__(self) -> None:
        """Refuse what no load could be made with, before anything is staged."""
        read_fields(self)
        # slots make super() without arguments fail in a dataclass
        PlaceOptions.__post_init__(self)
        policy = {name: getattr(self, name) for name in _POLICY if getattr(self, name) is not None}
        try:
            for name in ("queue", "kind", "job_id"):
                if getattr(self, name) is not None:
                    check_name(name, getattr(self, name))
            if self.max_attempts is not None:
                check_count("max_attempts", self.max_attempts, 1, _MOST)
            check_count("staging_rows", self.staging_rows, 1, _MOST)
            ChannelPolicy(**policy)
        except InvalidArgument as error:
            name, _, said = str(error).partition(" ")
            raise BadOption(f"option {camel(name)} {said}") from None
        if self.staging_ttl < timedelta():
            raise BadOption(f"option stagingTtl is {self.staging_ttl}; give a duration from 0 on")
        if (self.bad_rows == "reject") != (self.rejects_path is not None):
            raise BadOption("badRows=reject and rejectsPath go together: give both, or neither")
