"""Policies of channels, read from a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.times import duration
from sqlalchemy_fairqueue.values.fields import Rate
from sqlalchemy_fairqueue.values.policies import ChannelPolicy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COLUMNS = ("queue", "channel", "max_concurrency", "rate_interval", "rate_burst", "weight")


class KnownPolicies(NamedTuple):
    """Policies by queue and channel, and the plans that channels follow."""

    policies: dict[tuple[str, str], ChannelPolicy]
    plans: dict[tuple[str, str], str]


def known_policies(policies: DataFrame) -> KnownPolicies:
    """The policies and the plans by queue and channel; the frame is read once.

    Args:
        policies: What ``table=channels`` reads: queue, channel, max_concurrency, rate_interval (an interval, or
            whole microseconds), rate_burst, weight; and rate_of and plan, if they are there. Of rates in cost the
            report knows nothing.

    Raises:
        InvalidArgument: A column is missing.
    """
    missing = [name for name in _COLUMNS if name not in policies.columns]
    if missing:
        raise InvalidArgument(
            f"the policies lack {', '.join(missing)}: they have {', '.join(policies.columns)}; "
            'read them by format("fairqueue").option("table", "channels")'
        )
    interval = F.col("rate_interval")
    if "interval" in policies.schema["rate_interval"].dataType.typeName():
        # An interval in whole microseconds is the distance by which it moves an instant.
        interval = F.unix_micros(F.timestamp_micros(F.lit(0)) + interval)
    rows = policies.select(
        "queue", "channel", "max_concurrency", interval.cast("long").alias("rate_interval"), "rate_burst", "weight",
        F.col("plan") if "plan" in policies.columns else F.lit(None).cast("string").alias("plan"),
        F.col("rate_of") if "rate_of" in policies.columns else F.lit("messages").alias("rate_of"),
    ).collect()  # fmt: skip
    found = {
        (row.queue, row.channel): ChannelPolicy(
            max_concurrency=row.max_concurrency,
            rate=Rate.every(duration(row.rate_interval or 0), row.rate_burst or 1) if row.rate_of != "cost" else None,
            weight=row.weight or 1,
        )
        for row in rows
    }
    return KnownPolicies(found, {(row.queue, row.channel): row.plan for row in rows if row.plan is not None})
