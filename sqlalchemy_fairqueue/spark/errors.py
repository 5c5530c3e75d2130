"""What can go wrong between Spark and a queue, beyond what goes wrong with queues."""

from __future__ import annotations

from sqlalchemy_fairqueue.errors import FairQueueError


class PipelineError(FairQueueError):
    """Something between Spark and a queue failed. Its message holds no secret."""


class Unreachable(PipelineError):
    """The server cannot be reached, or refuses the connection."""


class BadOption(PipelineError, ValueError):
    """An option of the data source is unknown, missing, or has a value that it cannot have."""


class BadFrame(PipelineError, ValueError):
    """A frame's columns are not what the data source takes."""


class BadRows(PipelineError, ValueError):
    """Rows of a frame have values that no message can have; nothing was enqueued.

    Attributes:
        examples: Up to ten of them in words.
    """

    def __init__(self, problem: str, examples: tuple[str, ...] = ()) -> None:
        super().__init__(problem, examples)
        self.examples = examples

    def __str__(self) -> str:
        """The problem, and the examples, one a line."""
        return "\n  ".join((self.args[0], *self.examples))


class StageIncomplete(PipelineError, codes=("QF006",)):
    """Rows that executors staged are gone: the server crashed or failed over meanwhile. Nothing was enqueued."""


class KeyStands(PipelineError, codes=("QF002",)):
    """Keys of a load stand in their channels already, and it was to raise (``onDuplicate=raise``)."""
