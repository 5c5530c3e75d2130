"""Errors between Spark and a queue, and of archives."""

from __future__ import annotations

from sqlalchemy_fairqueue.errors import FairQueueError


class PipelineError(FairQueueError):
    """Something between Spark and a queue failed. The error's text contains no secret."""


class Unreachable(PipelineError):
    """The server is unreachable, or refuses the connection."""


class BadOption(PipelineError, ValueError):
    """An option of the data source is unknown, missing, or has a value that is not allowed."""


class BadFrame(PipelineError, ValueError):
    """The columns of a frame are wrong or incomplete, or a file of messages cannot be read."""


class BadRows(PipelineError, ValueError):
    """Rows of a frame have values that no message can have; *examples* tells of up to ten. Nothing was enqueued."""

    def __init__(self, problem: str, examples: tuple[str, ...] = ()) -> None:
        super().__init__(problem, examples)
        self.examples = examples

    def __str__(self) -> str:
        return "\n  ".join((self.args[0], *self.examples))


class StageIncomplete(PipelineError, codes=("QF006",)):
    """The stage lacks rows or was changed: probably the server crashed or failed over. Nothing was enqueued."""


class KeyStands(PipelineError, codes=("QF002",)):
    """Keys of the load are taken already, or come twice in it, and ``onDuplicate`` is ``raise``."""


class ArchiveError(PipelineError):
    """An archive could not be updated. Finished days stay as they are."""


class ArchiveBusy(ArchiveError):
    """Another process is updating the archive."""


class ArchiveDamaged(ArchiveError):
    """A file of an archive is missing, unknown, there twice, unreadable, or of a later version of this library."""


class DataLoss(PipelineError):
    """Attempts of the history, or changes of messages, were removed before they were read."""
