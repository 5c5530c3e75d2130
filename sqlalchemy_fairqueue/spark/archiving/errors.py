"""Errors of archives."""

from __future__ import annotations

from sqlalchemy_fairqueue.spark.errors import PipelineError


class ArchiveError(PipelineError):
    """An archive could not be brought up to date. Finished days stay as they are."""


class ArchiveBusy(ArchiveError):
    """Another process is bringing the archive up to date."""


class ArchiveDamaged(ArchiveError):
    """A folder holds files that no run leaves there."""
