"""Writes the operations as Python code into the migrations that Alembic generates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alembic.autogenerate import renderers

from alembic_ext.grants import GrantFairqueueOp, RevokeFairqueueOp
from alembic_ext.operations import (
    CreateFairqueueOp,
    DowngradeFairqueueOp,
    DropFairqueueOp,
    FairqueueOp,
    NothingOp,
    RepairFairqueueOp,
    UpgradeFairqueueOp,
)

if TYPE_CHECKING:
    from alembic.autogenerate.api import AutogenContext


@renderers.dispatch_for(CreateFairqueueOp)
@renderers.dispatch_for(DropFairqueueOp)
@renderers.dispatch_for(UpgradeFairqueueOp)
@renderers.dispatch_for(DowngradeFairqueueOp)
@renderers.dispatch_for(GrantFairqueueOp)
@renderers.dispatch_for(RevokeFairqueueOp)
def render(context: AutogenContext, operation: FairqueueOp) -> str:
    context.imports.add("import alembic_ext")
    given = list(operation.arguments)
    if operation.schema is not None:
        given.append(f"schema={operation.schema!r}")
    return f"op.{operation.verb}({', '.join(given)})"


@renderers.dispatch_for(RepairFairqueueOp)
def render_repair(context: AutogenContext, operation: RepairFairqueueOp) -> list[str]:
    return [*(f"# {reason}" for reason in operation.reasons), render(context, operation)]


@renderers.dispatch_for(NothingOp)
def render_nothing(_context: AutogenContext, _operation: NothingOp) -> list[str]:
    return []
