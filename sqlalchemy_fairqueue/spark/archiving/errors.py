"""What can go wrong with an archive, beyond what goes wrong with reading."""

from __future__ import annotations

from sqlalchemy_fairqueue.spark.errors import PipelineError


class ArchiveError(PipelineError):
    """An archive could not be brought up to date; what was finished of it stays as it is."""


class ArchiveBusy(ArchiveError):
    """Another process is bringing the archive up to date."""


class ArchiveDamaged(ArchiveError):
    """A folder holds what no run leaves there."""
