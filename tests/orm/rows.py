"""Rows to read."""

from sqlalchemy import Connection, Engine

from sqlalchemy_fairqueue import BytesCodec, JsonCodec, Queue


def enqueue(where: Engine | Connection, payload: object, *, schema: str | None = None, **fields: str | int) -> int:
    """Enqueue one message of kind ``parse`` to ``alice`` in queue ``documents``, and return its id."""
    codec = BytesCodec() if isinstance(payload, bytes) else JsonCodec()
    queue = Queue("documents", schema=schema, codec=codec)
    words: dict[str, object] = {"channel": "alice", "kind": "parse", **fields}
    return queue.enqueue(where, payload=payload, **words).message_id or 0  # type: ignore[call-overload]
