"""The commands of the group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.cli.spark.archiving import archive_history
from sqlalchemy_fairqueue.cli.spark.enqueuing import enqueue_file
from sqlalchemy_fairqueue.cli.spark.replaying import replay_history
from sqlalchemy_fairqueue.cli.spark.reporting import report_history

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.cli.frame import Command

COMMANDS: tuple[tuple[str, Command], ...] = (
    ("enqueue", enqueue_file),
    ("archive", archive_history),
    ("report", report_history),
    ("replay", replay_history),
)
