"""Old path of ``unit_of_work.settlement.settle``, for the worker."""

from sqlalchemy_fairqueue.unit_of_work.settlement import settle

__all__ = ["settle"]
