"""Structured fields of the log, and a formatter that writes records as JSON.

The library logs below the logger ``sqlalchemy_fairqueue`` and configures nothing.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

FIELDS: dict[str, str] = {
    "worker": "Name of the worker.",
    "queue": "Name of the queue.",
    "channel": "Name of the channel.",
    "kind": "Kind of the message.",
    "message_id": "Id of the message.",
    "message_ids": "Ids of the messages, where a line is about several.",
    "attempt": "Which attempt of the message it is, from 1.",
    "channel_id": "Id of the channel, where its name is not known.",
    "lease_id": "Id of the lease.",
    "step": "What a thread of the worker does.",
    "failures": "How often that has failed in a row.",
    "fairqueue_user": "Who did something on the dashboard.",
    "fairqueue_action": "What they did.",
    "fairqueue_queue": "On which queue.",
    "fairqueue_subject": "On what of it: channel, message or group of dead letters.",
}
"""The fields that records of the library have besides those of ``logging``, each with its meaning."""

_TRACE = {"otelTraceID": "trace_id", "otelSpanID": "span_id"}


class JsonFormatter(logging.Formatter):
    """Writes each record as one line of JSON.

    The first keys are time (ISO 8601, UTC), level, logger and message. The fields of the library that the record has
    follow. If OpenTelemetry's logging instrumentation adds a trace to the record, trace_id and span_id follow. The last
    keys are exception (the traceback) and stack, if the record has them.

    Args:
        fields: Further attributes of records to write, such as those of the application.
    """

    def __init__(self, *fields: str) -> None:
        super().__init__()
        self._fields = (*FIELDS, *fields)

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        document |= {name: value for name in self._fields if (value := getattr(record, name, None)) is not None}
        document |= {
            name: value for of, name in _TRACE.items() if (value := getattr(record, of, None)) not in {None, "0"}
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            document["stack"] = self.formatStack(record.stack_info)
        return json.dumps(document, default=str)
