"""The functions of a message's life, called as SQL with all of their parameters."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from psycopg.rows import class_row

from tests.sql.answers import Hand
from tests.sql.client import SECOND, Kernel, policy_json

_TOKENS = (
    "%(queue)s, %(ids)s::bigint[], %(rows)s::tid[], %(leases)s::bigint[], %(deliveries)s::integer[],"
    " %(outcome)s, %(delays)s::bigint[], %(errors)s::text[]"
)


@dataclass(frozen=True, slots=True)
class Result:
    """One row of fq_enqueue."""

    ordinal: int
    message_id: int | None
    created: bool
    outcome: str


@dataclass(frozen=True, slots=True)
class Beat:
    """One row of fq_heartbeat."""

    lease_id: int
    expires_at: int | None
    cancelled: list[int]


def enqueue(
    kernel: Kernel,
    *channels: str,
    keys: Sequence[str | None] | None = None,
    on: Sequence[str | None] | str | None = "skip",
    contents: Sequence[bytes] | None = None,
    kinds: Sequence[str] | None = None,
    delays: Sequence[int | None] | None = None,
    max_attempts: Sequence[int | None] | None = None,
    notify: bool = False,
    max_backlog: int | None = None,
    drop: bool = False,
    hold: Sequence[int] | None = None,
) -> list[Result]:
    """fq_enqueue: one message a channel named, in the order of the arguments."""
    nothing = [None] * len(channels)
    sql = """
        select * from fq_enqueue(%(queue)s, %(channels)s::text[], %(kinds)s::text[], %(contents)s::bytea[],
          %(nothing)s::jsonb[], %(delays)s::bigint[], %(nothing)s::bigint[], %(nothing)s::integer[], %(keys)s::text[],
          %(max_attempts)s::integer[], p_on_duplicates => %(on)s::text[], p_notify => %(notify)s,
          p_policy => %(policy)s, p_hold => %(hold)s::bigint[])
    """
    with kernel.connection.cursor(row_factory=class_row(Result)) as cursor:
        cursor.execute(
            sql,
            {
                "queue": kernel.queue,
                "channels": list(channels),
                "kinds": list(kinds or ["work"] * len(channels)),
                "contents": list(contents or [b"{}"] * len(channels)),
                "nothing": nothing,
                "delays": list(delays or nothing),
                "keys": list(keys or nothing),
                "max_attempts": list(max_attempts or nothing),
                "on": [on] * len(channels) if isinstance(on, str) else on and list(on),
                "notify": notify,
                "policy": policy_json(max_backlog=max_backlog, on_full="drop" if drop else "raise"),
                "hold": None if hold is None else list(hold),
            },
        )
        return sorted(cursor.fetchall(), key=lambda row: row.ordinal)


def outcomes(results: Sequence[Result]) -> list[str]:
    """The outcomes, in the order of the call."""
    return [row.outcome for row in results]


def message(kernel: Kernel, message_id: int | None) -> dict[str, Any]:
    """The row of a message."""
    (row,) = kernel.rows("select * from fq_message where id = %(id)s", id=message_id)
    return row


def retry(kernel: Kernel, *hands: Hand, delay: int | None = None, notify: bool = False) -> dict[int, str]:
    """fq_end_attempts, to be tried again."""
    return _given_back(kernel, "retried", hands, delay=delay, notify=notify)


def release(kernel: Kernel, *hands: Hand, delay: int | None = None, notify: bool = False) -> dict[int, str]:
    """fq_end_attempts, the attempt not counted."""
    return _given_back(kernel, "released", hands, delay=delay, notify=notify)


def _given_back(
    kernel: Kernel, outcome: str, hands: Sequence[Hand], *, delay: int | None, notify: bool
) -> dict[int, str]:
    rows = kernel.rows(
        f"select * from fq_end_attempts({_TOKENS}, p_notify => %(notify)s)",
        outcome=outcome,
        queue=kernel.queue,
        ids=[hand.id for hand in hands],
        rows=[hand.row for hand in hands],
        leases=[hand.lease_id for hand in hands],
        deliveries=[hand.deliveries for hand in hands],
        delays=[delay] * len(hands),
        errors=["boom"] * len(hands),
        notify=notify,
    )
    return {row["message_id"]: row["outcome"] for row in rows}


def lock_messages(kernel: Kernel, *ids: int | None) -> None:
    """fq_lock_messages."""
    kernel.rows("select fq_lock_messages(%(queue)s, %(ids)s::bigint[])", queue=kernel.queue, ids=list(ids))


def purge_channel(kernel: Kernel, channel: str) -> int:
    """fq_purge_channel: how many messages went."""
    purged: int = kernel.value("select fq_purge_channel(%(queue)s, %(channel)s)", queue=kernel.queue, channel=channel)
    return purged


def redrive(kernel: Kernel, *ids: int, notify: bool = False, **restrictions: object) -> dict[int, str]:
    """fq_redrive: what became of each; without ids, of the oldest."""
    rows = kernel.rows(
        "select * from fq_redrive(%(queue)s, %(ids)s::bigint[], p_notify => %(notify)s"
        + "".join(f", p_{name} => %({name})s" for name in restrictions)
        + ")",
        queue=kernel.queue,
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
        queue=kernel.queue,
        ids=list(ids) or None,
        **restrictions,
    )
    return purged


def dead(kernel: Kernel) -> list[int]:
    """The ids of the dead letters, the oldest death first."""
    return [row["message_id"] for row in kernel.rows("select message_id from fq_dead_letter order by died_at")]


def heartbeat(kernel: Kernel, *lease_ids: int | None, lease: int | None = 30 * SECOND) -> list[Beat]:
    """fq_heartbeat: one row a lease."""
    with kernel.connection.cursor(row_factory=class_row(Beat)) as cursor:
        cursor.execute("select * from fq_heartbeat(%s::bigint[], %s)", (list(lease_ids), lease))
        return cursor.fetchall()


def wait(kernel: Kernel, lease_id: int | None = None, wait: int | None = 50 * SECOND) -> tuple[int, str]:
    """fq_wait: the marked lease and the topic."""
    (row,) = kernel.rows(
        "select * from fq_wait(%(queue)s, %(name)s, %(lease_id)s::bigint, %(wait)s)",
        queue=kernel.queue,
        name=kernel.name,
        lease_id=lease_id,
        wait=wait,
    )
    return row["lease_id"], row["topic"]


def wake(kernel: Kernel) -> bool:
    """fq_wake: whether somebody waited."""
    woken: bool = kernel.value("select fq_wake(%(queue)s)", queue=kernel.queue)
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
