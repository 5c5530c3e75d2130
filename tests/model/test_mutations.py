import os

import pytest
from hypothesis import settings
from hypothesis.errors import Flaky
from sqlalchemy.exc import DBAPIError

from sqlalchemy_fairqueue import FairQueueError
from tests.model.machine import FairQueueMachine
from tests.model.mutations import MUTATIONS, Mutation
from tests.model.runner import SAMPLE, run
from tests.model.world import World

# The first program stumbles over them; `nox -s whole` makes the others.
_QUICK = {"a cost moves no tag", "a backlog never grows"}
_ALL = os.environ.get("FAIRQUEUE_MODEL_MUTATIONS") == "all"


def test_each_mistake_changes_its_function() -> None:
    """Also those that seldom run, which the functions may have outgrown."""
    assert all(one.sql() for mutations in MUTATIONS.values() for one in mutations.values())


@pytest.mark.timeout(3600 if _ALL else 300)
@pytest.mark.parametrize(
    ("machine", "mutation"),
    [
        pytest.param(machine, one, id=name, marks=() if name in _QUICK else pytest.mark.whole)
        for machine, mutations in MUTATIONS.items()
        for name, one in mutations.items()
        if _ALL or not one.slow
    ],
)
def test_the_machine_notices_a_mistake_in_the_sql(
    world: World, machine: type[FairQueueMachine], mutation: Mutation
) -> None:
    """A checker that passes whatever the functions do would be worthless: it finds each of these mistakes."""
    world.rows(mutation.sql())

    # An error of the library that the model did not predict is a difference too. Some mistakes show only while other
    # transactions of the server are open, those of other tests: the same program then fails once and once it does not.
    with pytest.raises((AssertionError, DBAPIError, FairQueueError, pytest.fail.Exception, Flaky)) as noticed:
        run(world, machine, settings(SAMPLE, derandomize=True), 800, 50)
    # Running out of time is no noticing.
    assert "pytest-timeout" not in str(noticed.value)
