from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, Phase, settings
from sqlalchemy.exc import OperationalError

from sqlalchemy_fairqueue.sql import functions, in_schema
from tests.fixtures.database import SCHEMA_VERSION
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
    Mutation(
        "a message is taken before it is due",
        "fq_dequeue",
        "t.rank <= t.quota and t.dequeue_at <= v_now as taken",
        "t.rank <= t.quota and t.dequeue_at is not null as taken",
    ),
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
OF_VERSION_2 = [
    Mutation(
        "a limit does not close the gate",
        "fq_limit_queue",
        "perform pg_advisory_xact_lock(fairqueue.fq_gate_key(p_queue));",
        "",
    ),
    Mutation("the queue's limit is not looked at", "fq_dequeue", ", s.max_concurrency - s.current_concurrency))", "))"),
    Mutation("what is out is not marked", "fq_limit_queue", "set slots = m.slots | 2", "set slots = m.slots"),
    Mutation(
        "the queue's slots are not freed", "fq_hear", "q.current_concurrency - v_queue_freed", "q.current_concurrency"
    ),
    Mutation("a paused channel is scheduled", "fq_hear", "n.lower and s.paused_at is null", "n.lower"),
    Mutation(
        "a resumed channel has no place", "fq_resume", "when s.head_dequeue_at is not null then", "when false then"
    ),
    Mutation("a backlog never grows", "fq_hear", "backlog = s.backlog + t.added", "backlog = s.backlog"),
    Mutation("a withdrawn message stays", "fq_return_messages", "      and h.cancelled\n", "      and false\n"),
]
if SCHEMA_VERSION > 1:
    MUTATIONS += OF_VERSION_2


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_the_machine_notices_a_mistake_in_the_sql(world: World, mutation: Mutation) -> None:
    """A checker that passes whatever the kernel does would be worthless: it finds each of these mistakes."""
    text = functions(SCHEMA_VERSION)[mutation.function]
    assert mutation.right in text
    broken = text.replace(mutation.right, mutation.wrong).replace("create function", "create or replace function")
    world.install(in_schema(broken, "public"))

    with pytest.raises((AssertionError, OperationalError, pytest.fail.Exception)) as noticed:
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
        )
    # Running out of time is no noticing.
    assert "pytest-timeout" not in str(noticed.value)
