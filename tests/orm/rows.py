"""Rows to read: made by the queue's own functions, over SQL."""

import json

from sqlalchemy import Connection, text

from sqlalchemy_fairqueue.sql.schema import quoted


def enqueue(
    connection: Connection,
    payload: object,
    *,
    schema: str | None = None,
    channel: str = "alice",
    priority: int | None = None,
) -> int:
    """Enqueue one message in queue ``documents`` and return its id."""
    prefix = quoted(schema or "public").replace(":", r"\:")
    content = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    row = connection.execute(
        text(
            f"select message_id from {prefix}.fq_enqueue('documents', array[cast(:channel as text)], array['parse'], "
            "array[cast(:content as bytea)], array[cast(null as jsonb)], array[cast(null as bigint)], "
            "array[cast(null as bigint)], array[cast(:priority as integer)], array[cast(null as text)], array[3])"
        ),
        {"channel": channel, "content": content, "priority": priority},
    ).one()
    return int(row.message_id)


def dequeue(connection: Connection, limit: int = 1) -> list[int]:
    """Lease messages of queue ``documents`` for a minute and return their ids."""
    found = connection.execute(
        text("select message_id from fq_dequeue('documents', :limit, 60000000, 'worker')"), {"limit": limit}
    )
    return [row.message_id for row in found if row.message_id is not None]
