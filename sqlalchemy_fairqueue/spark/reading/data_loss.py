"""Data loss: rows of the history that housekeeping pruned before they were read."""

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
_ANY_TIME = (-(2**63), 2**63 - 1)


class DataLoss(PipelineError):
    """Attempts were pruned from the history before they were read."""


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
    finished: tuple[int, int] = _ANY_TIME,
) -> bool:
    """Whether no rows after a position were pruned.

    It must run after the rows were read, on a new snapshot, which then has a record of everything pruned before.

    Args:
        connection: A connection to the history, in a READ COMMITTED transaction or none.
        schema: The schema as statements quote it.
        position: The position up to which rows had been read.
        pruned: The entry of ``fq_pruned_history`` up to which pruned rows are of no concern.
        fail: Whether to raise; else it warns.
        finished: The range of ``finished_at`` of attempts that are of concern.

    Raises:
        DataLoss: Rows were pruned, and *fail* is true.
    """
    rows = connection.execute(
        _LOST.format(schema=schema).encode(),
        {"pruned": pruned, "xid": str(position.xid), "id": position.id, "since": finished[0], "until": finished[1]},
    ).fetchall()
    if not rows:
        return True
    first, last, when = instant(rows[0][0]), instant(max(row[1] for row in rows)), instant(max(row[2] for row in rows))
    lost = (
        f"attempts that finished from {first:%Y-%m-%d} until {last:%Y-%m-%d} were pruned from the history at "
        f"{when:%Y-%m-%d %H:%M:%S} UTC before they were read (position {position.xid}/{position.id})"
    )
    if fail:
        raise DataLoss(
            f"{lost}; go on without them with failOnDataLoss=false (fail_on_data_loss=False), and keep the history "
            "longer with queue.configure(session, history_retention=...)"
        )
    _log.warning("%s; going on without them", lost)
    return False
