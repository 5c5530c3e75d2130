"""Mapped classes for queries and relationships over fairqueue's tables, as ``op.create_fairqueue`` installs them.

The classes are for reading: a flush that would write a row is refused, and the error says what writes it instead. The
classes here have a MetaData of their own, :data:`metadata`; they are mapped when it or a class is first accessed. To
map the tables in the MetaData of your Base, call :func:`make_models`; to write the classes yourself, use the mixins.
"""

# ruff: noqa: F403 - __all__ names what the stars import
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.models import classes
from sqlalchemy_fairqueue.models.applications import *
from sqlalchemy_fairqueue.models.classes import Models
from sqlalchemy_fairqueue.models.factory import DefaultBase, declare_grants, default_models, make_models
from sqlalchemy_fairqueue.models.tables import FairqueueMixin, ReadOnlyModel
from sqlalchemy_fairqueue.models.types import Duration, Instant, RoleName, Xid8, interval, timestamp
from sqlalchemy_fairqueue.sql.grants import RoleGrant

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.models.classes import *

    metadata = DefaultBase.metadata

__all__ = [
    "Duration", "FairqueueMixin", "Instant", "Models", "ReadOnlyModel", "RoleGrant", "RoleName", "Xid8",
    "declare_grants", "interval", "make_models", "metadata", "timestamp",
]  # fmt: skip
__all__ += classes.__all__


def __getattr__(name: str) -> Any:
    if name != "metadata" and name not in classes.MIXINS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    models = default_models()
    return DefaultBase.metadata if name == "metadata" else getattr(models, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *classes.MIXINS, "metadata"})
