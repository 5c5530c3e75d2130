import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import Flaky
from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue import FairQueueError
from sqlalchemy_fairqueue.sql.files import NEEDED_VERSION, functions
from sqlalchemy_fairqueue.sql.schema import in_schema
from tests.model.groups import GroupsMachine
from tests.model.limits import LimitsMachine
from tests.model.machine import FairQueueMachine
from tests.model.mutations import MUTATIONS, Mutation
from tests.model.ordering import OrderingMachine
from tests.model.runner import run
from tests.model.world import World

# The first program stumbles over them; `nox -s whole` makes the others.
_QUICK = {"a cost moves no tag", "a backlog never grows"}
_ALL = os.environ.get("FAIRQUEUE_MODEL_MUTATIONS") == "all"


def test_each_mistake_changes_its_function() -> None:
    """A mutation whose text the function does not have any more would prove nothing, also if it seldom runs."""
    texts = functions(NEEDED_VERSION)
    assert [one.name for one in MUTATIONS if one.right not in texts[one.function] or one.right == one.wrong] == []
    assert len({one.name for one in MUTATIONS}) == len(MUTATIONS)


@pytest.mark.timeout(3600 if _ALL else 300)
@pytest.mark.parametrize(
    "mutation",
    [
        pytest.param(one, id=str(one), marks=() if one.name in _QUICK else pytest.mark.whole)
        for one in MUTATIONS
        if _ALL or not one.slow
    ],
)
def test_the_machine_notices_a_mistake_in_the_sql(world: World, mutation: Mutation) -> None:
    """A checker that passes whatever the functions do would be worthless: it finds each of these mistakes."""
    text = functions(NEEDED_VERSION)[mutation.function]
    assert mutation.right in text, f"{mutation.function} has no text {mutation.right!r}"
    broken = text.replace(mutation.right, mutation.wrong).replace("create function", "create or replace function")
    world.install(in_schema(broken, "public"))

    # An error of the library that the model did not predict is a difference too. Some mistakes show only while other
    # transactions of the server are open, those of other tests: the same program then fails once and once it does not.
    with pytest.raises((AssertionError, DBAPIError, FairQueueError, pytest.fail.Exception, Flaky)) as noticed:
        run(
            world,
            settings(
                max_examples=800,
                stateful_step_count=50,
                deadline=None,
                database=None,
                derandomize=True,
                report_multiple_bugs=False,
                phases=(Phase.generate,),
                suppress_health_check=list(HealthCheck),
            ),
            _machine_of(mutation),
        )
    # Running out of time is no noticing.
    assert "pytest-timeout" not in str(noticed.value)


def _machine_of(mutation: Mutation) -> type[FairQueueMachine]:
    if mutation.groups:
        return GroupsMachine
    if mutation.ordering:
        return OrderingMachine
    return LimitsMachine if mutation.limits else FairQueueMachine
