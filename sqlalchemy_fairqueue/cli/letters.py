"""Dead letters in words, and for programs."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue import PayloadError

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.values import DeadLetterInfo

_WIDTH = 60


def payload_words(letter: DeadLetterInfo) -> str:
    """The payload in words; its bytes where the codec cannot read them."""
    try:
        return json.dumps(letter.payload, ensure_ascii=False, default=repr)
    except PayloadError as error:
        return f"{letter.content!r} ({error})"


def letter_document(letter: DeadLetterInfo) -> dict[str, Any]:
    """A dead letter for programs."""
    try:
        payload = json.loads(json.dumps(letter.payload, default=repr))
    except PayloadError:
        payload = None
    return {
        "message_id": letter.message_id,
        "queue": letter.queue,
        "channel": letter.channel,
        "kind": letter.kind,
        "key": letter.key,
        "enqueued_at": letter.enqueued_at,
        "died_at": letter.died_at,
        "attempts": letter.attempts,
        "max_attempts": letter.max_attempts,
        "deliveries": letter.deliveries,
        "reason": letter.reason,
        "error": letter.error,
        "headers": letter.headers,
        "payload": payload,
        "content_base64": base64.b64encode(letter.content).decode(),
    }


def error_line(error: str | None) -> str | None:
    """The last line of a traceback says what happened; of anything else the first does."""
    lines = [line for line in (error or "").splitlines() if line.strip()]
    if not lines:
        return None
    line = lines[-1] if lines[0].startswith("Traceback") else lines[0]
    return line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"
