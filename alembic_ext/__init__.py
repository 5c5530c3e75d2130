"""Alembic operations that install, upgrade, repair and remove fairqueue, and grant and revoke its use.

Importing the package registers ``op.create_fairqueue()`` and the other operations. Import it in ``env.py``, so that
``alembic revision --autogenerate`` writes them. The migrations that it writes import the package too. An old migration
always does the same, since ``sqlalchemy_fairqueue.sql`` keeps the SQL of every version.
"""

from __future__ import annotations

from alembic_ext import autogenerate as _autogenerate  # noqa: F401 - registers what autogenerate finds
from alembic_ext import rendering as _rendering  # noqa: F401 - registers how the operations are printed
from alembic_ext.grants import GrantFairqueueOp, RevokeFairqueueOp
from alembic_ext.operations import (
    CreateFairqueueOp,
    DowngradeFairqueueOp,
    DropFairqueueOp,
    RepairFairqueueOp,
    UpgradeFairqueueOp,
)
from sqlalchemy_fairqueue.models import types as _types  # noqa: F401 - registers the types of our columns

__all__ = [
    "CreateFairqueueOp",
    "DowngradeFairqueueOp",
    "DropFairqueueOp",
    "GrantFairqueueOp",
    "RepairFairqueueOp",
    "RevokeFairqueueOp",
    "UpgradeFairqueueOp",
]
