"""What housekeeping took away from the history before it was read."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.spark.errors import PipelineError
from sqlalchemy_fairqueue.times import instant

if TYPE_CHECKING:
    import psycopg

    from sqlalchemy_fairqueue.spark.reading.offsets import Position

_log = logging.getLogger(__name__)

_LAST = "select coalesce(max(p.id), 0) from {schema}.fq_pruned_history p"
_LOST = """
select p.finished_from, p.finished_until, p.pruned_at
from {schema}.fq_pruned_history p
where p.id > %(pruned)s
  and (p.recorded_xid, p.history_id) > (%(xid)s::text::xid8, %(id)s)
  and p.finished_until > %(since)s
  and p.finished_from < %(until)s
order by p.finished_from, p.id
"""
_ALWAYS = (-(2**63), 2**63 - 1)


class DataLoss(PipelineError):
    """Attempts were taken away from the history before they were read."""


def last_pruned(connection: psycopg.Connection, schema: str) -> int:
    """The newest entry of ``fq_pruned_history``, 0 without any."""
    row = connection.execute(_LAST.format(schema=schema).encode(), {}).fetchone()
    return int(row[0]) if row else 0


def check_losses(
    connection: psycopg.Connection,
    schema: str,
    *,
    position: Position,
    pruned: int,
    fail: bool,
    finished: tuple[int, int] = _ALWAYS,
) -> bool:
    """Whether nothing behind a position was taken away.

    To be asked after the rows were read, on a fresh snapshot: what was taken away before they were is noted by then.

    Args:
        connection: Where the history is, in a READ COMMITTED transaction or none.
        schema: The schema as it stands in statements.
        position: How far had been read.
        pruned: The entry of ``fq_pruned_history`` up to which it is of no concern.
        fail: Whether to raise, or only to warn.
        finished: From when to when attempts are of concern, by the time at which they finished.

    Raises:
        DataLoss: Something was, and *fail* is true.
    """
    rows = connection.execute(
        _LOST.format(schema=schema).encode(),
        {"pruned": pruned, "xid": str(position.xid), "id": position.id, "since": finished[0], "until": finished[1]},
    ).fetchall()
    if not rows:
        return True
    first, last, when = instant(rows[0][0]), instant(max(row[1] for row in rows)), instant(max(row[2] for row in rows))
    lost = (
        f"attempts that finished from {first:%Y-%m-%d} until {last:%Y-%m-%d} were taken away from the history at "
        f"{when:%Y-%m-%d %H:%M:%S} UTC before they were read (position {position.xid}/{position.id})"
    )
    if fail:
        raise DataLoss(
            f"{lost}; go on without them with failOnDataLoss=false (fail_on_data_loss=False), and keep the history "
            "longer with queue.configure(session, history_retention=...)"
        )
    _log.warning("%s; going on without them", lost)
    return False
