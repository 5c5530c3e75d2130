"""Figures from who was served when: waits, starvation, and Jain's index relative to the max-min fair share."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Service:
    """One message that was handled.

    Attributes:
        tenant: whose.
        asked: when it was there to be had: its commit, or the workers' start if that was later.
        started: when its handler was called.
        cost: what it cost.
    """

    tenant: str
    asked: float
    started: float
    cost: int = 1

    @property
    def wait(self) -> float:
        """Seconds between the two; a handler may be called before the commit has returned to its caller."""
        return max(0.0, self.started - self.asked)


def wait_at(services: Iterable[Service], share: int) -> float:
    """Return a percentile of the waits, in milliseconds: the least that so many of a hundred do not exceed."""
    ordered = sorted(1e3 * service.wait for service in services)
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)]


def starvation(services: Iterable[Service]) -> float:
    """Return the longest time, in milliseconds, that a tenant with something to do got nothing."""
    longest = 0.0
    by_tenant: dict[str, list[Service]] = defaultdict(list)
    for service in services:
        by_tenant[service.tenant].append(service)
    for served in by_tenant.values():
        last = 0.0
        asked = sorted(service.asked for service in served)
        for since, started in zip(asked, sorted(service.started for service in served), strict=True):
            longest = max(longest, started - max(last, since))
            last = started
    return 1e3 * longest


def fair_shares(wanted: Mapping[str, int], room: int) -> dict[str, float]:
    """Divide *room* services max-min fairly: nobody gets more than wanted, and the rest is shared evenly."""
    shares: dict[str, float] = {}
    left = float(room)
    for place, (tenant, count) in enumerate(sorted(wanted.items(), key=lambda item: item[1])):
        shares[tenant] = min(float(count), left / (len(wanted) - place))
        left -= shares[tenant]
    return shares


def jain(services: Sequence[Service], *, least: int = 20) -> list[float]:
    """Return Jain's index of what tenants got, to their fair shares, for each second in which enough were backlogged.

    What they got is the cost of the messages that were begun, which is their number where each costs 1.

    Args:
        services: all that was handled, of a backlog that was there from the beginning.
        least: how many tenants must still have something to do when a second ends for it to count.

    Returns:
        One index a second: 1 where all got their shares, 1/n where one of n got all.
    """
    begin = min(service.started for service in services)
    left: Counter[str] = Counter()
    seconds: dict[int, Counter[str]] = defaultdict(Counter)
    for service in services:
        left[service.tenant] += service.cost
        seconds[int(service.started - begin)][service.tenant] += service.cost
    indexes = []
    for number in range(max(seconds) + 1):
        got = seconds[number]
        shares = fair_shares({tenant: count for tenant, count in left.items() if count}, got.total())
        left -= got
        if sum(count > 0 for count in left.values()) < least or not got:
            continue
        ratios = [got[tenant] / share for tenant, share in shares.items()]
        indexes.append(sum(ratios) ** 2 / (len(ratios) * sum(ratio**2 for ratio in ratios)))
    return indexes
