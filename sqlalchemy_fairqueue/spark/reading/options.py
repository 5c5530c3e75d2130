"""Options of reading, once or as a stream."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from sqlalchemy_fairqueue.spark.errors import BadOption
from sqlalchemy_fairqueue.spark.options import TargetOptions
from sqlalchemy_fairqueue.spark.reading.offsets import EARLIEST, LATEST, read_offset
from sqlalchemy_fairqueue.spark.reading.slot import check_slot_name
from sqlalchemy_fairqueue.times import instant_microseconds

MOST_PARTITIONS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReadOptions(TargetOptions):
    """Options of a read.

    Attributes:
        table: ``history``, ``messages``, ``channels`` or ``dead_letters``; streams: ``history`` or ``changes``.
        slot: Changes: the replication slot.
        queue: Rows of this queue only; None: of every queue.
        channels: Rows of the channels of these names only; empty: of every channel.
        columns: These columns, in this order; empty: all. The server does not send the others.
        num_partitions: How many tasks read at most, each on a connection of its own. None: of the history one
            for a quarter of a million rows, up to 16; of a live table 1, so that all rows are of one instant.
        since: History: attempts that finished at this instant (ISO 8601, UTC unless it says otherwise) or later.
        until: History: attempts that finished before this instant.
        starting_offsets: History: ``earliest``, ``latest`` (streams), or an offset as JSON, after which to begin.
        ending_offsets: History, read once: ``latest`` or an offset as JSON, up to which to read. If one of the
            two offsets is given, the rows are those of a stream: below the transactions that are still open.
        max_offsets_per_trigger: Streams: at most so many rows of the history, or decoded changes, a micro-batch
            (PySpark 4.2 or later).
        fail_on_data_loss: Whether rows that housekeeping pruned before they were read are an error; else a warning.
        accepted_origin: The origin, as the error wrote it, with which a stream or an archive may continue although
            its offset is of another one. See "Another database" in the documentation.
    """

    table: Literal["history", "messages", "channels", "dead_letters", "changes"] = "history"
    slot: str | None = None
    queue: str | None = None
    channels: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    num_partitions: int | None = None
    since: str | None = None
    until: str | None = None
    starting_offsets: str | None = None
    ending_offsets: str | None = None
    max_offsets_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    accepted_origin: str | None = None

    def __post_init__(self) -> None:
        """Refuse values out of range, and options of the history for other tables."""
        # super() of a dataclass with slots would be that of the class it replaced.
        TargetOptions.__post_init__(self)
        for name, value, most in (
            ("numPartitions", self.num_partitions, MOST_PARTITIONS),
            ("maxOffsetsPerTrigger", self.max_offsets_per_trigger, 2**31 - 1),
        ):
            if value is not None and not 1 <= value <= most:
                raise BadOption(f"option {name} is {value}; give a number from 1 to {most}")
        given = {
            "since": self.since,
            "until": self.until,
            "startingOffsets": self.starting_offsets,
            "endingOffsets": self.ending_offsets,
        }
        only = [name for name, value in given.items() if value is not None]
        if self.table != "history" and only:
            raise BadOption(f"option {only[0]} is for the history, and table is {self.table!r}; leave it out")
        if (self.slot is None) == self.follows_changes:
            raise BadOption(
                f"option slot is for table 'changes', which needs it, and table is {self.table!r}; "
                "give both options, or none of them"
            )
        if self.slot is not None:
            check_slot_name(self.slot)
        if self.follows_changes and self.num_partitions not in (None, 1):
            raise BadOption("option numPartitions is not for table 'changes', which one task decodes; leave it out")
        if self.finished[0] >= self.finished[1]:
            raise BadOption(f"option since {self.since!r} is not before until {self.until!r}; give an earlier instant")
        for name in ("startingOffsets", "endingOffsets"):
            text = given[name]
            if text is not None and text not in (EARLIEST, LATEST):
                read_offset(text, f"option {name}", f"{EARLIEST}, {LATEST}, or ")

    @property
    def finished(self) -> tuple[int, int]:
        """The range of ``finished_at`` in microseconds, its end excluded."""
        return _instant("since", self.since, -(2**63)), _instant("until", self.until, 2**63 - 1)

    @property
    def follows_changes(self) -> bool:
        """Whether the table is that of changes, which only streams read."""
        return self.table == "changes"

    @property
    def is_incremental(self) -> bool:
        """Whether it reads from one offset to another."""
        return self.starting_offsets is not None or self.ending_offsets is not None

    def for_batch(self) -> ReadOptions:
        """The options, if they are for reading once."""
        if self.follows_changes:
            raise BadOption("table 'changes' can only be followed as a stream; use spark.readStream")
        if self.max_offsets_per_trigger is not None:
            raise BadOption("option maxOffsetsPerTrigger is for streams; leave it out, or use spark.readStream")
        if self.starting_offsets == LATEST or self.ending_offsets == EARLIEST:
            raise BadOption("startingOffsets latest or endingOffsets earliest leave nothing to read; give offsets")
        return self

    def for_stream(self) -> ReadOptions:
        """The options, if they are for a stream."""
        if self.table not in ("history", "changes"):
            raise BadOption(f"table {self.table!r} cannot be followed as a stream; use spark.read, or the history")
        for name, value in (("endingOffsets", self.ending_offsets), ("since", self.since), ("until", self.until)):
            if value is not None:
                raise BadOption(f"option {name} is for reading once; leave it out, or use spark.read")
        return self


def _instant(name: str, text: str | None, default: int) -> int:
    if text is None:
        return default
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(f"option {name} is {text!r:.80}; give an instant like 2026-11-21T14:30:00Z") from None
    return instant_microseconds(found if found.tzinfo else found.replace(tzinfo=UTC))
