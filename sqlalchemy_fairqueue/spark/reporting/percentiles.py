"""Percentiles of any number of groups of any size, exact, by nearest rank, without sorting a group.

Values are counted in cells on a logarithmic scale; the cell that holds the wanted rank is found, and only its values
are counted in finer cells, then by value. No step holds more of a group at once than its cells.

Nearest rank is the first definition in R. J. Hyndman, Y. Fan, "Sample quantiles in statistical packages", 1996.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sqlalchemy_fairqueue.spark.reporting.queries import SparkQueries

PERCENTILES = (500, 950, 990)
"""In thousandths."""

# A rounded logarithm never falls where the value grows: a cell holds neighbours, and its fine cells lie within it.
_COARSE, _FINE = "floor(log2(value + 1) * 64)", "floor(log2(value + 1) * 1048576)"
_BROADCAST_GROUPS = 200_000

_FIRST = """
with cells as (
  select subject, queue, key, {coarse} as cell, count(*) as number
  from {{values}}
  group by subject, queue, key, {coarse}
),
ranks as (
  select *, sum(number) over (partition by subject, queue, key order by cell) as until_here,
    sum(number) over (partition by subject, queue, key) as total
  from cells
)
select subject, queue, key, cell, percentile, rank - (until_here - number) as rank
from (
  select *, (total * percentile + 999) div 1000 as rank
  from ranks
  lateral view explode(:percentiles) as percentile
)
where rank between until_here - number + 1 and until_here
"""
_INSIDE = """
select /*+ {hint} */ v.subject, v.queue, v.key, v.value
from (
  select *, {coarse} as cell
  from {{values}}
) v
join (
  select distinct subject, queue, key, cell
  from {{targets}}
) t on t.subject = v.subject and t.queue = v.queue and t.key = v.key and t.cell = v.cell
"""
_NEXT = """
with cells as (
  select subject, queue, key, {outer} as outer_cell, {inner} as inner_cell, count(*) as number
  from {{values}}
  group by subject, queue, key, {outer}, {inner}
),
ranks as (
  select *, sum(number) over (partition by subject, queue, key, outer_cell order by inner_cell) as until_here
  from cells
)
select t.subject, t.queue, t.key, r.inner_cell as cell, t.percentile, t.rank - (r.until_here - r.number) as rank
from {{targets}} t
join ranks r on r.subject = t.subject and r.queue = t.queue and r.key = t.key and r.outer_cell = t.cell
where t.rank between r.until_here - r.number + 1 and r.until_here
"""


def percentiles(values: DataFrame, groups: int, queries: SparkQueries) -> DataFrame:
    """The percentiles of every group.

    Args:
        values: A row a value: subject, queue, key (together the group), value (a whole number from zero).
        groups: About how many groups there are.
        queries: Runs the queries, and persists frames that are used twice.

    Returns:
        A row a group and percentile: subject, queue, key, percentile (in thousandths), cell (the value).
    """
    coarse = queries.persist(queries.sql(_FIRST.format(coarse=_COARSE), values=values, percentiles=list(PERCENTILES)))
    hint = "broadcast(t)" if groups <= _BROADCAST_GROUPS else "merge(t)"
    inside = queries.persist(queries.sql(_INSIDE.format(hint=hint, coarse=_COARSE), values=values, targets=coarse))
    fine = queries.sql(_NEXT.format(outer=_COARSE, inner=_FINE), values=inside, targets=coarse)
    return queries.sql(_NEXT.format(outer=_FINE, inner="value"), values=inside, targets=fine)
