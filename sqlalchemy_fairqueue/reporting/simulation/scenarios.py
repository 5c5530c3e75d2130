"""Scenarios of a replay: the discipline, the workers, and the policies of channels."""

from __future__ import annotations

import glob
import re
from dataclasses import dataclass, field
from fnmatch import translate
from typing import TYPE_CHECKING, Literal

from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.values.checks import check_choice, check_count, check_name
from sqlalchemy_fairqueue.values.policies import POLICY, ChannelPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy_fairqueue.values.messages import FairBy

Discipline = Literal["fair", "fifo"]

RECORDED = "as recorded"

REPLAYED = "as recorded, replayed"
"""The name of the scenario that replays the history under its own policies."""

_MOST = 2**31 - 1
_LEAST_WORKERS = 0.01
_PATTERN = re.compile(r"[*?[]")


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings of a queue in the history: what channels share by their weights, and its limit; None: no limit."""

    fair_by: FairBy = "messages"
    max_concurrency: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario of a replay.

    Attributes:
        discipline: "fair": channels take turns, by weight, as in a dequeue. "fifo": messages are delivered in the order
            of their due times, those with a priority first, whatever their channels.
        fair_by: What channels share in proportion to their weights. "messages": the number of messages, as queues do by
            default. "cost": the recorded cost, as if it had been declared at the enqueue. "seconds": the recorded
            durations. With "seconds", a channel is charged as in a queue: a dequeue charges an estimate, the charge
            grows each second while the handler runs, and in the end it is corrected to the recorded duration.
        workers: Messages handled at once by all workers; may be a fraction. Default: the capacity that the history
            shows, see :func:`~sqlalchemy_fairqueue.reporting.simulation.replay.capacity_of`. The capacity also counts
            prefetched messages, so it may be greater than the number of handlers. To replay half as many workers, give
            half of the capacity that the report's page shows, not half of the number of handlers.
        batch: The most messages that a worker dequeues at once; it handles them one after another. More than one shows
            how prefetching affects fairness.
        max_concurrency: The limit of the queue. None: no limit.
        defaults: The policy of channels that *policies* does not name.
        policies: Policies by the name of a channel, or by a pattern: ``*`` is any text, ``?`` one character, ``[ab]`` a
            or b. An exact name takes precedence, then the first matching pattern. A policy applies as a whole: no field
            comes from *defaults*.

    Example:
        >>> Scenario(name="by cost", fair_by="cost", workers=4).settings
        'in turn, fair by cost'
    """

    name: str
    discipline: Discipline = "fair"
    fair_by: FairBy = "messages"
    workers: float | None = None
    batch: int = 1
    max_concurrency: int | None = None
    defaults: ChannelPolicy = field(default_factory=ChannelPolicy)
    policies: Mapping[str, ChannelPolicy] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name("name", self.name)
        check_choice("discipline", self.discipline, ("fair", "fifo"))
        check_choice("fair_by", self.fair_by, ("messages", "cost", "seconds"))
        if self.discipline == "fifo" and self.fair_by != "messages":
            raise InvalidArgument(
                f"scenario {self.name!r} is first come, first served and fair by {self.fair_by}; leave one of them out"
            )
        check_count("batch", self.batch, 1, 100_000)
        if self.max_concurrency is not None:
            check_count("max_concurrency", self.max_concurrency, 1, _MOST)
        if self.workers is not None:
            _check_workers(self.workers)
        if self.name == RECORDED:
            raise InvalidArgument(
                f"a scenario is called {RECORDED!r}, as the recorded history is; give it another name"
            )
        self._check_policy("defaults", self.defaults)
        for pattern, policy in self.policies.items():
            check_name("policies", pattern)
            self._check_policy(f"policies[{pattern!r}]", policy)

    @property
    def settings(self) -> str:
        """The scenario's settings as text, without the workers."""
        if self.discipline == "fifo":
            found = ["first come, first served"]
        else:
            found = ["in turn" if self.fair_by == "messages" else f"in turn, fair by {self.fair_by}"]
        if self.batch > 1:
            found.append(f"batches of {self.batch}")
        if self.max_concurrency is not None:
            found.append(f"at most {self.max_concurrency} at once")
        if self.defaults != ChannelPolicy():
            found.append("a policy for all channels")
        if self.policies:
            found.append(f"{len(self.policies)} {'policy' if len(self.policies) == 1 else 'policies'} by channel")
        return ", ".join(found)

    def policies_of(self, channels: Sequence[str]) -> list[tuple[ChannelPolicy, list[int]]]:
        """Return each policy that applies to any of *channels*, with the positions in *channels* that it applies to."""
        patterns = [
            (re.compile(translate(name)), policy) for name, policy in self.policies.items() if _PATTERN.search(name)
        ]
        found: dict[int, tuple[ChannelPolicy, list[int]]] = {}
        for number, name in enumerate(channels):
            policy = self.policies.get(name)
            if policy is None:
                fitting = (policy for pattern, policy in patterns if pattern.match(name))
                policy = next(fitting, self.defaults)
            found.setdefault(id(policy), (policy, []))[1].append(number)
        return list(found.values())

    def _check_policy(self, what: str, policy: object) -> None:
        if not isinstance(policy, ChannelPolicy):
            raise InvalidArgument(f"{what} of scenario {self.name!r} is {policy!r:.80}; give a ChannelPolicy")
        for name, definition in POLICY.items():
            if definition.refuses and (value := getattr(policy, name)) is not None:
                raise InvalidArgument(
                    f"{what} of scenario {self.name!r} has {name} {value}: a history does not record the messages that "
                    "it refused; leave it out"
                )
        if policy.max_cost_out is not None or (policy.rate is not None and policy.rate.of == "cost"):
            raise InvalidArgument(
                f"{what} of scenario {self.name!r} has a quota in cost, which the replay does not know; leave it out"
            )


def _check_workers(workers: object) -> None:
    if not isinstance(workers, (int, float)) or isinstance(workers, bool):
        raise InvalidArgument(f"workers is {workers!r:.80}; give a number")
    if not _LEAST_WORKERS <= workers <= _MOST:
        raise InvalidArgument(f"workers is {workers}; give a number from {_LEAST_WORKERS} to {_MOST}")


def as_recorded(
    policies: Mapping[str, ChannelPolicy], settings: QueueSettings | None = None, *, name: str = REPLAYED
) -> Scenario:
    own = settings or QueueSettings()
    return Scenario(
        name=name,
        fair_by=own.fair_by,
        max_concurrency=own.max_concurrency,
        policies={glob.escape(channel): policy for channel, policy in policies.items()},
    )


def check_scenarios(scenarios: Sequence[Scenario]) -> dict[str, Scenario]:
    named: dict[str, Scenario] = {}
    for scenario in scenarios:
        if not isinstance(scenario, Scenario):
            raise InvalidArgument(f"a scenario is {scenario!r:.80}; give a Scenario")
        if scenario.name == REPLAYED:
            raise InvalidArgument(
                f"a scenario is called {REPLAYED!r}, as the replay under the recorded policies is; give it another name"
            )
        if scenario.name in named:
            raise InvalidArgument(f"two scenarios are called {scenario.name!r}; give each a name of its own")
        named[scenario.name] = scenario
    if not named:
        raise InvalidArgument("there is no scenario to replay; give at least one, like Scenario(name='round robin')")
    return named
