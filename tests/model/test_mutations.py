from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, Phase, settings
from sqlalchemy.exc import OperationalError

from sqlalchemy_fairqueue.sql import LATEST_VERSION, functions, in_schema
from tests.model.running import run
from tests.model.world import World


@dataclass(frozen=True, slots=True)
class Mutation:
    """A small mistake in a function of the kernel."""

    name: str
    function: str
    right: str
    wrong: str

    def __str__(self) -> str:
        return self.name


MUTATIONS = [
    Mutation("a message is taken before it is due", "fq_dequeue", "        and x.dequeue_at <= v_now\n", ""),
    Mutation(
        "the head goes past a locked message",
        "fq_dequeue",
        "        limit 1\n      ) h on true",
        "        limit 1\n        for no key update skip locked\n      ) h on true",
    ),
    Mutation(
        "a returned message lowers no head",
        "fq_hear",
        "(t.dequeue_at, t.message_id) <",
        "(t.dequeue_at, t.message_id) >",
    ),
    Mutation("the limit is not looked at", "fq_dequeue", "  s.max_concurrency - s.current_concurrency,", ""),
    Mutation("an old hand-out completes", "fq_complete", "and m.deliveries = u.deliveries", ""),
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_the_machine_notices_a_mistake_in_the_sql(world: World, mutation: Mutation) -> None:
    """A checker that passes whatever the kernel does would be worthless: it finds each of these mistakes."""
    text = functions(LATEST_VERSION)[mutation.function]
    assert mutation.right in text
    broken = text.replace(mutation.right, mutation.wrong).replace("create function", "create or replace function")
    world.install(in_schema(broken, "public"))

    with pytest.raises((AssertionError, OperationalError, pytest.fail.Exception)):
        run(
            world,
            settings(
                max_examples=100,
                stateful_step_count=40,
                deadline=None,
                database=None,
                derandomize=True,
                report_multiple_bugs=False,
                phases=(Phase.generate,),
                suppress_health_check=list(HealthCheck),
            ),
        )
