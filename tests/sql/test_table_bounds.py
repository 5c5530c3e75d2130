"""Bounds of values that the tables themselves keep, also from an insert by their owner, which no function checks."""

from dataclasses import dataclass

import pytest
from psycopg.errors import CheckViolation

from tests.sql.client import Kernel

pytestmark = pytest.mark.installed

_LAST = 253402300799999999
_LATER = str(_LAST + 1)
_MANY = "4611686018427387904"
_YEARS = "3153600000000001"
_LONG = "repeat('x', 513)"
_LARGE = "jsonb_build_object('a', repeat('x', 65536))"


@dataclass(frozen=True)
class Table:
    """A row that a table takes, and values of its columns that the table refuses."""

    plain: dict[str, str]
    bad: dict[str, tuple[str, ...]]


_POLICY = {
    "max_concurrency": ("0",),
    "rate_interval": ("-1", "31536000000001"),
    "rate_burst": ("0", "1000000001"),
}  # fmt: skip
_TABLES = {
    "fq_channel": Table({"queue": "'q'", "name": "'a'"}, {"queue": ("''", _LONG), "name": ("''", _LONG)}),
    "fq_queue_state": Table(
        {"queue": "'q'"},
        _POLICY
        | {"row_version": ("-1", _MANY), "current_concurrency": ("2000000000",), "rate_at": ("-1", _LATER)},
    ),
    "fq_channel_plan": Table(
        {"channel_id": "7", "queue": "'q'"},
        {
            "queue": ("''", _LONG), "plan": ("''", _LONG), "revision": ("-1",),
            "overridden": ("array_fill('x'::text, array[101])",),
        },
    ),
    "fq_limit": Table({"name": "'shared'"}, _POLICY | {"name": ("''", _LONG)}),
    "fq_limit_share": Table(
        {"limit_name": "'shared'", "queue": "'q'"},
        {
            "row_version": ("-1", _MANY), "tag": ("-1", _MANY), "rate_at": ("-1", _LATER),
            "contends_until": ("-1", _LATER),
        },
    ),
    "fq_load": Table(
        {"queue": "'q'", "job_id": "'j'", "committed_at": "0"}
        | dict.fromkeys(("messages", "created", "replaced", "duplicates", "dropped", "rejected"), "0"),
        {"queue": ("''", _LONG), "job_id": ("''", _LONG), "batch_id": ("-1",), "committed_at": ("-1", _LATER)}
        | dict.fromkeys(("messages", "created", "replaced", "duplicates", "dropped", "rejected"), ("-1",)),
    ),
    "fq_plan": Table(
        {"queue": "'q'", "name": "'pro'", "policy": "'{}'", "revision": "1"},
        {
            "queue": ("''", _LONG), "name": ("''", _LONG), "policy": ("'[]'", _LARGE), "revision": ("-1",),
            "spread_after": ("-1",), "spread_at": ("-1", _LATER),
        },
    ),
    "fq_pruned_history": Table(
        {"finished_from": "0", "finished_until": "1", "recorded_xid": "'1'", "history_id": "1", "pruned_at": "0"},
        {"finished_until": ("0",), "history_id": ("0",), "pruned_at": ("-1", _LATER)},
    ),
    "fq_queue": Table(
        {"name": "'q'"},
        _POLICY
        | dict.fromkeys(
            ("history_retention", "forget_channels_after", "dead_letter_retention", "result_retention"), ("0", _YEARS)
        )
        | {
            "name": ("''", _LONG), "default_plan": ("''", _LONG), "defaults": ("'[]'", _LARGE),
            "paused_at": ("-1", _LATER), "fair_by": ("'x'",), "limits": ("'{}'",),
            "dead_letter_retention_by_kind": ("'[]'",),
        },
    ),
    "fq_round": Table({"duty": "'fold'"}, {"duty": ("''", "'other'")}),
    "fq_schedule_slot": Table(
        {"schedule_id": "1", "slot_at": "0", "ran_at": "0"},
        {"message_id": ("0",), "slot_at": ("-1", _LATER), "ran_at": ("-1", _LATER)},
    ),
    "fq_audit": Table(
        {"at": "0", "queue": "'q'", "who": "'me'", "what": "'pause'"},
        {
            "queue": ("''", _LONG), "channel": ("''", _LONG), "who": ("''", _LONG), "what": ("''", _LONG),
            "message_id": ("0",), "details": (_LARGE,), "at": ("-1", _LATER),
        },
    ),
    "fq_sample": Table(
        {"queue": "'q'", "at": "0", "channel": "''", "ready": "0", "oldest_wait": "0"},
        {
            "queue": ("''", _LONG), "channel": (_LONG,), "at": ("-1", _LATER), "ready": ("-1",),
            "oldest_wait": ("-1",), "served": ("-1",), "failed": ("-1",), "took": ("-1",),
        },
    ),
    "fq_size": Table(
        {"at": "0", "name": "'fq_message'", "bytes": "0"},
        {"at": ("-1", _LATER), "name": ("''", "repeat('x', 64)"), "bytes": ("-1",)},
    ),
    "fq_stop_request": Table(
        {"queue": "'q'", "consumer": "'w'", "requested_by": "'me'", "requested_at": "0"},
        {
            "queue": ("''", _LONG), "consumer": ("''", _LONG), "requested_by": ("''", _LONG),
            "requested_at": ("-1", _LATER),
        },
    ),
}  # fmt: skip


def _insert(kernel: Kernel, table: str, values: dict[str, str]) -> None:
    kernel.rows(f"insert into {table} ({', '.join(values)}) values ({', '.join(values.values())})")


def test_a_table_refuses(kernel: Kernel) -> None:
    """Each value out of its bounds is refused by itself; the row without it is taken."""
    for table, case in _TABLES.items():
        with kernel.connection.transaction(force_rollback=True):
            for column, value in ((column, value) for column, values in case.bad.items() for value in values):
                with pytest.raises(CheckViolation), kernel.connection.transaction():
                    _insert(kernel, table, case.plain | {column: value})
            _insert(kernel, table, case.plain)
