"""The figures of the benchmarks that are not read from a clock: shares, Jain's index, starvation, percentiles."""

from __future__ import annotations

import pytest

from tests.bench.field.fairness import Service, fair_shares, jain, percentile, starvation, waits


def _round_robin(tenants: int, each: int) -> list[Service]:
    return [Service(f"t{number % tenants}", 0.0, 0.01 * number) for number in range(tenants * each)]


def test_nobody_is_given_more_than_wanted_and_the_rest_is_shared() -> None:
    """Max-min: the small get all, the others the same."""
    assert fair_shares({"a": 1, "b": 10, "c": 100}, 21) == {"a": 1.0, "b": 10.0, "c": 10.0}
    assert fair_shares({"a": 100, "b": 100}, 3) == {"a": 1.5, "b": 1.5}


def test_turns_are_fair() -> None:
    """Who serves 25 tenants in turn has an index of one, but for the windows' edges."""
    assert min(jain(_round_robin(25, 40))) > 0.98


def test_one_after_the_other_is_not() -> None:
    """Who serves one of 25 tenants after the other has an index of the share that is served at a time."""
    services = sorted(_round_robin(25, 40), key=lambda service: service.tenant)
    served = [Service(service.tenant, 0.0, 0.01 * number) for number, service in enumerate(services)]
    assert max(jain(served)) < 0.2


def test_who_wants_less_than_the_share_is_no_victim() -> None:
    """A tenant with one message, which it gets at once, does not lower the index."""
    services = [Service("small", 0.0, 0.0), *_round_robin(25, 40)]
    assert min(jain(services)) > 0.98


def test_windows_with_few_backlogged_do_not_count() -> None:
    """Among fewer than twenty there is nothing to compare."""
    assert jain(_round_robin(19, 40)) == []


def test_starvation_counts_from_the_last_service_or_the_first_message() -> None:
    """A tenant that has nothing to do does not starve."""
    idle = [Service("a", 0.0, 0.1), Service("a", 50.0, 50.2)]
    assert starvation(idle) == pytest.approx(200)
    assert starvation([*idle, Service("a", 50.0, 53.2)]) == pytest.approx(3000)


def test_percentiles_are_values_that_were_seen() -> None:
    """The nearest rank, not something between two."""
    assert [percentile(range(1, 101), share) for share in (50, 95, 99, 100)] == [50, 95, 99, 100]
    assert percentile([7.0], 99) == 7.0
    assert waits([Service("a", 1.0, 0.9)])["max"] == 0.0


def test_shares_are_shares_of_cost() -> None:
    """A tenant whose messages cost ten gets a tenth of the messages of one whose messages cost one."""
    cheap = [Service(f"cheap-{number % 10}", 0.0, 0.001 * number) for number in range(4000)]
    dear = [Service(f"dear-{number % 10}", 0.0, 0.01 * number, 10) for number in range(400)]
    assert min(jain([*cheap, *dear])) > 0.99
    counted = jain([*cheap, *(Service(one.tenant, 0.0, one.started) for one in dear)])
    assert counted[0] < 0.7
