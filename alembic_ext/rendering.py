"""How the operations are printed into a migration that Alembic writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alembic.autogenerate import renderers

from alembic_ext.operations import CreateFairqueueOp, DropFairqueueOp, FairqueueOp

if TYPE_CHECKING:
    from alembic.autogenerate.api import AutogenContext


@renderers.dispatch_for(CreateFairqueueOp)
@renderers.dispatch_for(DropFairqueueOp)
def render(context: AutogenContext, operation: FairqueueOp) -> str:
    """The call, and the import that it needs."""
    context.imports.add("import alembic_ext")
    schema = "" if operation.schema is None else f", schema={operation.schema!r}"
    return f"op.{operation.verb}(version={operation.version}{schema})"
