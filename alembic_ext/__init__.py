"""Alembic operations that install fairqueue in a migration and take it away again.

Importing this package registers them: ``op.create_fairqueue()`` and ``op.drop_fairqueue()``. Import it in each
migration that uses them, or once in ``env.py``. It knows the SQL of every version and nothing of the moving parts of
the library, so that an old migration does the same for ever.
"""

from __future__ import annotations

from alembic_ext import rendering as _rendering  # noqa: F401 - registers how the operations are printed
from alembic_ext.operations import CreateFairqueueOp, DropFairqueueOp

__all__ = ["CreateFairqueueOp", "DropFairqueueOp"]
