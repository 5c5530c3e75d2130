"""The functions of a message's life, called as SQL with all of their parameters."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from psycopg.rows import class_row

from tests.sql.answers import Added
from tests.sql.client import SECOND, Kernel


@dataclass(frozen=True, slots=True)
class Beat:
    """One row of fq_heartbeat."""

    lease_id: int
    expires_at: int | None
    cancelled: list[int]


def outcomes(results: Sequence[Added]) -> list[str]:
    """The outcomes, in the order of the call."""
    return [row.outcome for row in results]


def lock_messages(kernel: Kernel, *ids: int | None) -> None:
    """fq_lock_messages."""
    kernel.rows("select fq_lock_messages(%(queue)s, %(ids)s::bigint[])", ids=list(ids))


def purge_channel(kernel: Kernel, channel: str) -> int:
    """fq_purge_channel: how many messages went."""
    purged: int = kernel.value("select fq_purge_channel(%(queue)s, %(channel)s)", channel=channel)
    return purged


def redrive(kernel: Kernel, *ids: int, notify: bool = False, **restrictions: object) -> dict[int, str]:
    """fq_redrive: what became of each; without ids, of the oldest."""
    rows = kernel.rows(
        "select * from fq_redrive(%(queue)s, %(ids)s::bigint[], p_notify => %(notify)s"
        + "".join(f", p_{name} => %({name})s" for name in restrictions)
        + ")",
        ids=list(ids) or None,
        notify=notify,
        **restrictions,
    )
    return {row["message_id"]: row["outcome"] for row in rows}


def purge_dead(kernel: Kernel, *ids: int, **restrictions: object) -> int:
    """fq_purge_dead: how many dead letters went."""
    named = "".join(f", p_{name} => %({name})s" for name in restrictions)
    purged: int = kernel.value(
        f"select fq_purge_dead(%(queue)s, %(ids)s::bigint[]{named})",
        ids=list(ids) or None,
        **restrictions,
    )
    return purged


def heartbeat(kernel: Kernel, *lease_ids: int | None, lease: int | None = 30 * SECOND) -> list[Beat]:
    """fq_heartbeat: one row a lease."""
    with kernel.connection.cursor(row_factory=class_row(Beat)) as cursor:
        cursor.execute("select * from fq_heartbeat(%s::bigint[], %s)", (list(lease_ids), lease))
        return cursor.fetchall()


def wait(kernel: Kernel, lease_id: int | None = None, wait: int | None = 50 * SECOND) -> tuple[int, str]:
    """fq_wait: the marked lease and the topic."""
    (row,) = kernel.rows(
        "select * from fq_wait(%(queue)s, %(name)s, %(lease_id)s::bigint, %(wait)s)",
        name=kernel.name,
        lease_id=lease_id,
        wait=wait,
    )
    return row["lease_id"], row["topic"]


def wake(kernel: Kernel) -> bool:
    """fq_wake: whether somebody waited."""
    woken: bool = kernel.value("select fq_wake(%(queue)s)")
    return woken


def end_wait(kernel: Kernel, lease_id: int | None) -> None:
    """fq_wait with 0."""
    wait(kernel, lease_id, 0)


def keep_history(kernel: Kernel, ahead: int | None = 2) -> dict[str, str]:
    """fq_keep_history: what was done to which partition."""
    rows = kernel.rows("select * from fq_keep_history(%(ahead)s)", ahead=ahead)
    return {row["partition"]: row["action"] for row in rows}


def history(kernel: Kernel) -> list[dict[str, Any]]:
    """The history, in the order in which it was written."""
    return kernel.rows("select * from fq_history order by id")


@contextmanager
def listening(kernel: Kernel) -> Iterator[list[str]]:
    """The payloads that were notified by the transactions that committed in the block."""
    heard: list[str] = []
    kernel.rows("listen fairqueue")
    yield heard
    # Notifications come in the order of commits: whatever was sent before is here when this one is.
    kernel.rows("notify fairqueue, 'end'")
    for notice in kernel.connection.notifies():
        if notice.payload == "end":
            break
        heard.append(notice.payload)
    kernel.rows("unlisten fairqueue")
