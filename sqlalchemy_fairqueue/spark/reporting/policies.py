"""Policies of channels, joined with their attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.reporting.figures import Policy
from sqlalchemy_fairqueue.times import duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sqlalchemy_fairqueue.spark.reporting.attempts import Attempts
    from sqlalchemy_fairqueue.spark.reporting.queries import SparkQueries

_COLUMNS = ("queue", "channel", "max_concurrency", "rate_interval", "rate_burst", "weight")
_KNOWN = """
select queue, channel, cast(max_concurrency as bigint) as max_concurrency, {interval} as rate_interval,
  coalesce(cast(rate_burst as bigint), 1) as rate_burst, coalesce(cast(weight as bigint), 1) as weight
from {{policies}}
"""


def policies_of(
    policies: DataFrame | None, attempts: Attempts, queries: SparkQueries
) -> tuple[DataFrame, dict[Any, Policy]]:
    """Policies by the keys of the attempts.

    Args:
        policies: What ``table=channels`` reads: queue, channel, max_concurrency, rate_interval (an interval, or
            whole microseconds), rate_burst, weight. Channels that it does not have count as without limits.
        attempts: The attempts of the channels.
        queries: Runs the queries.

    Returns:
        A row a channel, with its mean service; and the policies that are known.

    Raises:
        InvalidArgument: A column is missing.
    """
    found = {} if policies is None else known_policies(policies, queries)
    known: dict[Any, Policy] = {}
    rows = []
    for total in attempts.totals:
        row = found.get((attempts.queues[total.queue - 1], total.name))
        if row is not None:
            interval = row.rate_interval or 0
            rows.append(
                (total.queue, total.channel, row.weight, interval, row.rate_burst, row.max_concurrency,
                 total.services / total.attempts)
            )  # fmt: skip
            known[total.queue, total.channel] = Policy(
                row.max_concurrency, duration(interval) if interval else None, row.rate_burst, row.weight
            )
    columns = (
        "queue int, channel long, weight long, rate_interval long, rate_burst long, max_concurrency long, "
        "mean_service double"
    )
    return queries.frame(rows, columns), known


def known_policies(policies: DataFrame, queries: SparkQueries) -> dict[tuple[str, str], Any]:
    """Rows of policies by queue and channel: max_concurrency, rate_interval in microseconds, rate_burst, weight.

    Raises:
        InvalidArgument: A column is missing.
    """
    return {(row.queue, row.channel): row for row in _read(policies, queries).collect()}


def _read(policies: DataFrame, queries: SparkQueries) -> DataFrame:
    missing = [name for name in _COLUMNS if name not in policies.columns]
    if missing:
        raise InvalidArgument(
            f"the policies lack {', '.join(missing)}: they have {', '.join(policies.columns)}; "
            'read them by format("fairqueue").option("table", "channels")'
        )
    kind = policies.schema["rate_interval"].dataType.typeName()
    whole = "cast(rate_interval as bigint)"
    # An interval in whole microseconds is the distance by which it moves an instant.
    interval = "unix_micros(timestamp_micros(0) + rate_interval)" if "interval" in kind else whole
    return queries.sql(_KNOWN.format(interval=interval), policies=policies)
