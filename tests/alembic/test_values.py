"""The operations as values, and how Alembic prints them."""

import pytest
from alembic.autogenerate import render_python_code
from alembic.operations import ops

from alembic_ext import (
    CreateFairqueueOp,
    DowngradeFairqueueOp,
    DropFairqueueOp,
    RepairFairqueueOp,
    UpgradeFairqueueOp,
)

pytestmark = pytest.mark.installed


@pytest.mark.parametrize("kind", [CreateFairqueueOp, DropFairqueueOp])
@pytest.mark.parametrize("schema", [None, "Apps"])
def test_inverse_of_the_inverse(kind: type[CreateFairqueueOp | DropFairqueueOp], schema: str | None) -> None:
    """Each operation is the other's inverse, with the same version and schema."""
    operation = kind(1, schema)
    inverse = operation.reverse()
    assert type(inverse) is not kind
    assert inverse.reverse().to_diff_tuple() == operation.to_diff_tuple() == (operation.verb, 1, schema)


def test_steps_are_each_others_inverse() -> None:
    """A step up is undone by the step down between the same versions, and the other way round."""
    up = UpgradeFairqueueOp(1, 2, "Apps")
    down = up.reverse()
    assert isinstance(down, DowngradeFairqueueOp)
    assert down.to_diff_tuple() == ("downgrade_fairqueue", 2, 1, "Apps")
    assert down.reverse().to_diff_tuple() == up.to_diff_tuple() == ("upgrade_fairqueue", 1, 2, "Apps")


def test_steps_and_repairs_printed() -> None:
    """Steps print their versions in order, a repair prints what it is for, and the inverse of a repair is nothing."""
    repair = RepairFairqueueOp(2, reasons=("function fq_now is missing",))
    upgrade = ops.UpgradeOps(ops=[repair, UpgradeFairqueueOp(1, 2), DowngradeFairqueueOp(2, 1, "Apps")])
    assert calls(upgrade) == [
        "# function fq_now is missing",
        "op.repair_fairqueue(version=2)",
        "op.upgrade_fairqueue(1, 2)",
        "op.downgrade_fairqueue(2, 1, schema='Apps')",
    ]
    assert calls(ops.UpgradeOps(ops=[repair]).reverse()) == ["pass"]


def calls(operations: ops.UpgradeOps | ops.DowngradeOps) -> list[str]:
    """The lines of a migration between those that Alembic always writes."""
    lines = render_python_code(operations, sqlalchemy_module_prefix="sa.").splitlines()
    return [line.strip() for line in lines[1:-1]]


def test_printed() -> None:
    """A migration that Alembic writes names the version and the schema that differs from the default."""
    printed = render_python_code(
        ops.UpgradeOps(ops=[CreateFairqueueOp(2), DropFairqueueOp(1, "it's")]), sqlalchemy_module_prefix="sa."
    )
    assert "op.create_fairqueue(version=2)\n" in printed
    assert 'op.drop_fairqueue(version=1, schema="it\'s")\n' in printed
