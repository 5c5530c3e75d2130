"""What can go wrong between Spark and a queue, beyond what goes wrong with queues."""

from __future__ import annotations

from sqlalchemy_fairqueue.errors import FairQueueError


class PipelineError(FairQueueError):
    """Something between Spark and a queue failed. Its message holds no secret."""


class BadOption(PipelineError, ValueError):
    """An option of the data source is unknown, missing, or has a value that it cannot have."""


class BadFrame(PipelineError, ValueError):
    """A frame's columns are not what the data source takes."""
