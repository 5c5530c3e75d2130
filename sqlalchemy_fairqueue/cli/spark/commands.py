"""Commands of the group ``spark``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.cli.spark.archive import archive_history
from sqlalchemy_fairqueue.cli.spark.compact import compact_files
from sqlalchemy_fairqueue.cli.spark.enqueue import enqueue_file
from sqlalchemy_fairqueue.cli.spark.replay import replay_history
from sqlalchemy_fairqueue.cli.spark.report import report_history

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.cli.runner import Command

COMMANDS: tuple[tuple[str, Command], ...] = (
    ("enqueue", enqueue_file),
    ("archive", archive_history),
    ("compact", compact_files),
    ("report", report_history),
    ("replay", replay_history),
)
