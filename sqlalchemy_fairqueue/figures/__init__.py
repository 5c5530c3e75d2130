"""Figures of queues, channels and tenants, computed in one place for ``top``, the metrics and the dashboard.

They are read in one snapshot and know the time by the database's clock. Nothing here changes or locks anything.
"""

from sqlalchemy_fairqueue.figures.channels import Sample, messages_of, take_sample
from sqlalchemy_fairqueue.figures.queues import Figures, QueueFigures, read_figures
from sqlalchemy_fairqueue.figures.shared import DUTY, PATIENCE_SECONDS, SharedFigures
from sqlalchemy_fairqueue.figures.times import age
from sqlalchemy_fairqueue.figures.waits import channel_waits, figures_now

__all__ = [
    "DUTY",
    "PATIENCE_SECONDS",
    "Figures",
    "QueueFigures",
    "Sample",
    "SharedFigures",
    "age",
    "channel_waits",
    "figures_now",
    "messages_of",
    "read_figures",
    "take_sample",
]
