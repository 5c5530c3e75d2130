"""Origin of a history: the history that a connection leads to, and the check that an offset is of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.errors import SchemaMismatch
from sqlalchemy_fairqueue.spark.errors import PipelineError
from sqlalchemy_fairqueue.spark.reading.offsets import Origin

if TYPE_CHECKING:
    import psycopg

    from sqlalchemy_fairqueue.spark.reading.offsets import Offset

# The last checkpoint of a server that was just promoted still has the previous timeline: the log itself tells it.
_HORIZON = """
select s.system_identifier::text,
  case when pg_is_in_recovery() then c.timeline_id
    else ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint end,
  (select d.oid::bigint from pg_database d where d.datname = current_database()),
  to_regclass(%(history)s)::oid::bigint,
  pg_current_snapshot()::text,
  pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
  pg_snapshot_xmax(pg_current_snapshot())::text::bigint
from pg_control_system() s, pg_control_checkpoint() c
"""


class OriginChanged(PipelineError):
    """An offset is of another history than that of the connection, or ahead of it.

    Attributes:
        offset_origin: The origin of the offset.
        found_origin: The origin of the connection's history.
    """

    def __init__(
        self, message: str, *, offset_origin: Origin | None = None, found_origin: Origin | None = None
    ) -> None:
        super().__init__(message)
        self.offset_origin = offset_origin
        self.found_origin = found_origin


@dataclass(frozen=True, slots=True)
class Horizon:
    """The state of the history in one snapshot.

    Attributes:
        origin: The history.
        snapshot: The snapshot, as ``pg_visible_in_snapshot`` takes it.
        xmin: The oldest transaction that was still open.
        xmax: The first transaction that had not begun.
    """

    origin: Origin
    snapshot: str
    xmin: int
    xmax: int


def horizon(connection: psycopg.Connection, schema: str) -> Horizon:
    """The history of the connection, and its snapshot.

    Args:
        connection: Any connection.
        schema: The schema as statements quote it.

    Raises:
        SchemaMismatch: There is no history.
    """
    name = schema.replace("%%", "%")
    row = connection.execute(_HORIZON, {"history": f"{name}.fq_history"}).fetchone()
    if row is None or row[3] is None:
        raise SchemaMismatch(f"schema {name} has no fq_history; upgrade fairqueue's schema, or name another schema")
    return Horizon(Origin(str(row[0]), *map(int, row[1:4])), str(row[4]), int(row[5]), int(row[6]))


def check_origin(offset: Offset, found: Horizon, accepted: str | None) -> None:
    """Refuse an offset of another history, unless the user accepted this history; always refuse one ahead of it.

    Raises:
        OriginChanged: The offset is refused.
    """
    refuse_origin(offset.origin, found.origin, accepted, f"{offset.position.xid}/{offset.position.id}")
    if offset.position.xid >= found.xmax:
        raise OriginChanged(
            f"the offset is at transaction {offset.position.xid}, and the database has only come to {found.xmax}: it "
            "was put back to an earlier state; begin anew (another checkpoint or archive)",
            offset_origin=offset.origin,
            found_origin=found.origin,
        )


def refuse_origin(offset: Origin, found: Origin, accepted: str | None, position: str) -> None:
    """Refuse the origin of an offset if the connection leads to another one, unless the user accepted that one.

    Raises:
        OriginChanged: The origins differ.
    """
    if offset != found and accepted != str(found):
        raise OriginChanged(
            f"{_difference(offset, found)}: rows may be missing or come twice after position {position}; begin anew "
            "(another checkpoint or archive), or, if nothing was lost, go on with "
            f".option('acceptedOrigin', '{found}')",
            offset_origin=offset,
            found_origin=found,
        )


def _difference(offset: Origin, found: Origin) -> str:
    if offset.system != found.system:
        return f"the offset is of cluster {offset.system}, and the connection leads to cluster {found.system}"
    if offset.timeline != found.timeline:
        return (
            f"the offset is of timeline {offset.timeline}, and the server is on timeline {found.timeline}: a standby "
            "was promoted, or the cluster was restored"
        )
    if offset.database != found.database:
        return f"the offset is of database {offset.database} (oid), and the connection leads to {found.database}"
    return f"the offset is of the table with oid {offset.history}, and fq_history is {found.history}: it was made anew"
