"""Groups of a history's rows, each handled by a function in a Python worker: one shuffle, and one result a group."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.spark.executors import shipped

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import GroupedData

R = TypeVar("R")


def results_of(groups: GroupedData, function: Callable[[pa.Table], R]) -> list[R]:
    """The results of a function for each group.

    Raises:
        InvalidArgument: The function raised it. Any other error fails the job.
    """
    rows = groups.applyInArrow(shipped(_pickled(function)), "made binary").collect()
    found = [pickle.loads(row.made) for row in rows]  # noqa: S301 - of our own executors
    for one in found:
        if isinstance(one, InvalidArgument):
            raise one
    return found


def _pickled(function: Callable[[pa.Table], R]) -> Callable[[pa.Table], pa.Table]:
    def handle(rows: pa.Table) -> pa.Table:
        made: R | InvalidArgument
        try:
            made = function(rows)
        except InvalidArgument as error:
            made = error
        return pa.table({"made": pa.array([pickle.dumps(made)], pa.binary())})

    return handle
