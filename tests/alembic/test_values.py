"""The operations as values, and how Alembic prints them."""

import pytest
from alembic.autogenerate import render_python_code
from alembic.operations import ops

from alembic_ext import CreateFairqueueOp, DropFairqueueOp

pytestmark = pytest.mark.installed


@pytest.mark.parametrize("kind", [CreateFairqueueOp, DropFairqueueOp])
@pytest.mark.parametrize("schema", [None, "Apps"])
def test_inverse_of_the_inverse(kind: type[CreateFairqueueOp | DropFairqueueOp], schema: str | None) -> None:
    """Each operation is the other's inverse, with the same version and schema."""
    operation = kind(1, schema)
    inverse = operation.reverse()
    assert type(inverse) is not kind
    assert inverse.reverse().to_diff_tuple() == operation.to_diff_tuple() == (operation.verb, 1, schema)


def test_printed() -> None:
    """A migration that Alembic writes names the version and the schema that differs from the default."""
    printed = render_python_code(
        ops.UpgradeOps(ops=[CreateFairqueueOp(), DropFairqueueOp(1, "it's")]), sqlalchemy_module_prefix="sa."
    )
    assert "op.create_fairqueue(version=1)\n" in printed
    assert 'op.drop_fairqueue(version=1, schema="it\'s")\n' in printed
