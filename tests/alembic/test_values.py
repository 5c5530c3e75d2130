"""The operations as values, and how Alembic prints them."""

import pytest

from alembic_ext import (
    CreateFairqueueOp,
    DowngradeFairqueueOp,
    DropFairqueueOp,
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
