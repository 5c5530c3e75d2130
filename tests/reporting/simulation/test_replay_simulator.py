"""Properties of every replay, for any work and any scenario."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlalchemy_fairqueue import ChannelPolicy
from sqlalchemy_fairqueue.reporting.simulation.replay import Trace, simulated_attempts, trace_of
from sqlalchemy_fairqueue.reporting.simulation.scenarios import Discipline, Scenario
from sqlalchemy_fairqueue.reporting.simulation.simulator import simulate
from sqlalchemy_fairqueue.reporting.simulation.state import compiled
from sqlalchemy_fairqueue.times import microseconds
from sqlalchemy_fairqueue.values.messages import FairBy
from tests.reporting.simulation.replay_programs import Program, name_of, programs

_disciplines: st.SearchStrategy[Discipline] = st.sampled_from(("fair", "fifo"))
_by_cost: st.SearchStrategy[FairBy] = st.sampled_from(("messages", "cost", "seconds"))


def most_out(attempts: Any) -> int:
    """The most of these attempts that were out at once."""
    events = [*((int(one["finished"]), -1) for one in attempts), *((int(one["started"]), 1) for one in attempts)]
    return max(np.cumsum([change for _, change in sorted(events)]).tolist(), default=0)


def channels_of(trace: Trace) -> Any:
    """The channel of each attempt."""
    return np.repeat(trace.messages["channel"], trace.messages["stop"] - trace.messages["attempt"])


@given(_by_cost.flatmap(lambda fair_by: programs(fair_by=fair_by)), st.booleans())
def test_limits(program: Program, in_line: bool) -> None:  # noqa: FBT001 - of hypothesis
    """All attempts are made, and never more are out than workers, queue and channels allow."""
    trace = trace_of(program.history())
    scenario = replace(program.scenario, discipline="fifo", fair_by="messages") if in_line else program.scenario
    attempts = simulated_attempts(trace, scenario)

    assert sorted(attempts["order"]) == list(range(len(trace.attempts)))
    assert most_out(attempts) <= min(program.workers * program.batch, program.max_concurrency or len(attempts))
    for number, name in enumerate(trace.channels):
        policy = program.scenario.policies[name]
        assert most_out(attempts[channels_of(trace) == number]) <= (policy.max_concurrency or len(attempts))


@given(programs(batch=1), _disciplines)
def test_rates(program: Program, discipline: Discipline) -> None:
    """In any stretch a channel begins no more than its burst and what its interval allows in it."""
    trace = trace_of(program.history())
    attempts = simulated_attempts(trace, replace(program.scenario, discipline=discipline))

    for number, name in enumerate(trace.channels):
        policy = program.scenario.policies[name]
        if policy.rate is None:
            continue
        began = np.sort(attempts["started"][channels_of(trace) == number]).tolist()
        for first, begin in enumerate(began):
            for last, end in enumerate(began[first:], start=1):
                assert last <= policy.rate.burst + (end - begin) // microseconds(policy.rate.interval)


@given(programs(batch=1), st.integers(1, 4))
def test_first_come_first_served(program: Program, workers: int) -> None:
    """In one line nobody is passed by who was due before, but for the limit of his channel."""
    limits = [policy.max_concurrency for policy in program.policies]
    policies = {name_of(number): ChannelPolicy(max_concurrency=limit) for number, limit in enumerate(limits)}
    trace = trace_of(program.history())
    attempts = simulated_attempts(trace, Scenario(name="line", discipline="fifo", workers=workers, policies=policies))

    out: Counter[str] = Counter()
    line: set[tuple[int, int]] = set()
    events = [(int(message["arrives_at"]), 1, -1, number) for number, message in enumerate(trace.messages)]
    for number, message in enumerate(trace.messages):
        for attempt in attempts[int(message["attempt"]) : int(message["stop"])]:
            # What ends at once ends after it began, and before others come and begin.
            order = int(attempt["order"])
            events.append((int(attempt["started"]), 2, order, number))
            events.append((int(attempt["finished"]), 0 if attempt["service"] else 2, order, number))
    due = {number: int(message["sort_key"]) for number, message in enumerate(trace.messages)}
    done = Counter[int]()
    for now, _, order, number in sorted(events):
        channel = trace.channels[int(trace.messages[number]["channel"])]
        if order < 0:
            line.add((due[number], number))
        elif (due[number], number) in line:
            for other_due, other in line:
                if other_due <= now and (other_due, other) < (due[number], number):
                    name = trace.channels[int(trace.messages[other]["channel"])]
                    limit = policies[name].max_concurrency
                    assert limit is not None
                    assert out[name] >= limit
            line.remove((due[number], number))
            out[channel] += 1
        else:
            out[channel] -= 1
            message, attempt = trace.messages[number], int(trace.messages[number]["attempt"]) + done[number]
            done[number] += 1
            if attempt + 1 < message["stop"]:
                due[number] = now + int(attempts[attempt]["delay"]) if attempts[attempt]["delay"] else due[number]
                line.add((due[number], number))


# The compiler alone takes most of a minute on a busy machine.
@pytest.mark.whole
@pytest.mark.timeout(600)
def test_compiled() -> None:
    """The compiled simulator does what the interpreted one does."""
    if compiled(simulate) is None:
        pytest.skip("numba is not installed")

    @given(_by_cost.flatmap(lambda fair_by: programs(fair_by=fair_by)), st.booleans())
    def check(program: Program, in_line: bool) -> None:  # noqa: FBT001 - of hypothesis
        trace, scenario = trace_of(program.history()), program.scenario
        if in_line:
            scenario = replace(scenario, discipline="fifo", fair_by="messages")
        both = [simulated_attempts(trace, scenario, compile_=one) for one in (False, True)]
        assert (both[0] == both[1]).all()

    check()
