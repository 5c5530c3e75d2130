"""Bounds of values that the tables themselves keep, also from an insert by their owner, which no function checks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest
from psycopg.errors import CheckViolation

from tests.sql.client import Kernel

pytestmark = pytest.mark.installed

_LAST = 253402300799999999
_LONG = "repeat('x', 513)"
_LARGE = "jsonb_build_object('a', repeat('x', 65536))"
# 1e131071 takes 8 bytes in jsonb, and 131,072 as text
_ENDLESS = "jsonb_build_object('a', (select jsonb_agg(cast('1e131071' as numeric)) from generate_series(1, 1)))"
_BAD = {
    "names": ("''", _LONG),
    "times": ("-1", str(_LAST + 1)),
    "counts": ("-1",),
    "ids": ("0",),
    "periods": ("0", "3153600000000001"),
}


@dataclass(frozen=True)
class Table:
    """A row that a table takes, its columns by what they hold, and further values that the table refuses."""

    plain: dict[str, str]
    names: str = ""
    times: str = ""
    counts: str = ""
    ids: str = ""
    periods: str = ""
    more: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def bad(self) -> Iterator[tuple[str, str]]:
        """The columns and their values."""
        for kind, values in _BAD.items():
            yield from ((column, value) for column in getattr(self, kind).split() for value in values)
        yield from ((column, value) for column, values in self.more.items() for value in values)


_POLICY = {"max_concurrency": ("0",), "rate_interval": ("-1", "31536000000001"), "rate_burst": ("0", "1000000001")}
_LOADED = "messages created replaced duplicates dropped rejected"
_TABLES = {
    "fq_audit": Table(
        {"at": "0", "queue": "'q'", "who": "'me'", "what": "'pause'"},
        names="queue channel who what", times="at", ids="message_id", more={"details": (_LARGE,)},
    ),
    "fq_channel": Table({"queue": "'q'", "name": "'a'"}, names="queue name"),
    "fq_channel_plan": Table(
        {"channel_id": "7", "queue": "'q'"},
        names="queue plan", counts="revision", more={"overridden": ("array_fill('x'::text, array[101])",)},
    ),
    "fq_dead_letter": Table(
        {
            "message_id": "1", "queue": "'q'", "channel_id": "1", "kind": "'k'", "content": "''", "enqueued_at": "1",
            "attempts": "1", "max_attempts": "1", "deliveries": "1", "reason": "'r'", "died_at": "1",
        },
        names="kind key", times="enqueued_at", counts="attempts deliveries", ids="message_id max_attempts",
        more={"died_at": (str(_LAST + 1),), "headers": (_LARGE, _ENDLESS)}
        | dict.fromkeys(("error", "reason"), ("repeat('e', 1048577)",)),
    ),
    "fq_limit": Table({"name": "'shared'"}, names="name", more=_POLICY),
    "fq_load": Table(
        {"queue": "'q'", "job_id": "'j'", "committed_at": "0"} | dict.fromkeys(_LOADED.split(), "0"),
        names="queue job_id", times="committed_at", counts=f"batch_id {_LOADED}",
    ),
    "fq_plan": Table(
        {"queue": "'q'", "name": "'pro'", "policy": "'{}'", "revision": "1"},
        names="queue name", times="spread_at", counts="revision spread_after", more={"policy": ("'[]'", _LARGE)},
    ),
    "fq_pruned_history": Table(
        {"finished_from": "0", "finished_until": "1", "recorded_xid": "'1'", "history_id": "1", "pruned_at": "0"},
        times="pruned_at", ids="finished_until history_id",
    ),
    "fq_queue": Table(
        {"name": "'q'"},
        names="name default_plan", times="paused_at",
        periods="history_retention forget_channels_after dead_letter_retention result_retention",
        more=_POLICY
        | {"defaults": ("'[]'", _LARGE), "fair_by": ("'x'",), "limits": ("'{}'",)}
        | {"dead_letter_retention_by_kind": ("'[]'",)},
    ),
    "fq_round": Table({"duty": "'fold'"}, more={"duty": ("''", "'other'")}),
    "fq_sample": Table(
        {"queue": "'q'", "at": "0", "channel": "''", "ready": "0", "oldest_wait": "0"},
        names="queue", times="at", counts="ready oldest_wait served failed took", more={"channel": (_LONG,)},
    ),
    "fq_schedule_slot": Table(
        {"schedule_id": "1", "slot_at": "0", "ran_at": "0"}, times="slot_at ran_at", ids="message_id"
    ),
    "fq_size": Table(
        {"at": "0", "name": "'fq_message'", "bytes": "0"},
        times="at", counts="bytes", more={"name": ("''", "repeat('x', 64)")},
    ),
    "fq_stop_request": Table(
        {"queue": "'q'", "consumer": "'w'", "requested_by": "'me'", "requested_at": "0"},
        names="queue consumer requested_by", times="requested_at",
    ),
}  # fmt: skip


def _refuse(kernel: Kernel, table: str, values: Mapping[str, str]) -> None:
    with pytest.raises(CheckViolation), kernel.connection.transaction():
        _insert(kernel, table, values)


def _insert(kernel: Kernel, table: str, values: Mapping[str, str]) -> None:
    columns, given = ", ".join(values), ", ".join(values.values())
    kernel.rows(f"insert into {table} ({columns}) overriding system value values ({given})")


def test_a_table_refuses(kernel: Kernel) -> None:
    """Each value out of its bounds is refused by itself; the row without it is taken."""
    for table, case in _TABLES.items():
        with kernel.connection.transaction(force_rollback=True):
            for column, value in case.bad():
                _refuse(kernel, table, case.plain | {column: value})
            _insert(kernel, table, case.plain)


@pytest.mark.whole
def test_a_letter_whose_content_nobody_could_read(kernel: Kernel) -> None:
    """A content that a reader could not return is refused."""
    letter = _TABLES["fq_dead_letter"].plain
    _refuse(kernel, "fq_dead_letter", letter | {"content": "cast(repeat('x', 268435457) as bytea)"})
