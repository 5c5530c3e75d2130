"""Small applications whose workers really run twice: as recorded, and as a scenario of the replay has it."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import fmean
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue import ChannelPolicy, Enqueue, Queue
from sqlalchemy_fairqueue.reporting import RecordedHistory, Scenario, read_history
from sqlalchemy_fairqueue.reporting.replaying import recorded_queues
from sqlalchemy_fairqueue.simulation.replay import replayed_trace
from sqlalchemy_fairqueue.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa
    from sqlalchemy import Engine

    from sqlalchemy_fairqueue import Delivery
    from sqlalchemy_fairqueue.simulation.capacity import Capacity

LEAST_MESSAGES = 20
"""The messages of a tenant from which on the error of its mean wait counts."""

_PATIENCE = 120.0


@dataclass(frozen=True, slots=True)
class Message:
    """A message of an application: seconds after the begin, tenant, and seconds of its handler."""

    after: float
    tenant: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a run.

    Attributes:
        workers: Handlers.
        fair: Whether each tenant has a channel. Else one channel has all messages: first come, first served.
        policies: Policies by tenant.
    """

    workers: int = 4
    fair: bool = True
    policies: Mapping[str, ChannelPolicy] = field(default_factory=dict)

    def scenario(self, capacity: Capacity, recorded: Settings) -> Scenario:
        """The scenario of a replay of a record under other settings.

        Its workers are a multiple of the capacity; where the record was never backlogged, their number.
        """
        multiple = capacity.workers / recorded.workers if capacity.backlogged else 1.0
        return Scenario(
            name="changed",
            discipline="fair" if self.fair else "fifo",
            workers=multiple * self.workers,
            policies=self.policies,
        )


@dataclass(frozen=True, slots=True)
class Application:
    """An application: the messages, and the settings of the record and of the scenario."""

    name: str
    messages: Sequence[Message]
    recorded: Settings
    changed: Settings


@dataclass(frozen=True, slots=True)
class TenantError:
    """The mean wait of a tenant in seconds, as forecast and as it was, and the messages that it is of."""

    tenant: str
    messages: int
    forecast: float
    real: float

    @property
    def error(self) -> float:
        """The difference as a part of the real wait; negative if the forecast is too short."""
        return self.forecast / self.real - 1


def applications() -> list[Application]:
    """Six applications, of two to five seconds each."""
    chance = random.Random(20)  # noqa: S311 - no secret
    skewed = [
        *_batch(chance, 0.0, "whale", 320, 0.020),
        *(one for number in range(5) for one in _batch(chance, 0.2 + 0.2 * number, f"small-{number}", 24, 0.020)),
    ]
    bursts = [
        one
        for burst in range(3)
        for number in range(4)
        for one in _batch(chance, 1.1 * burst, f"tenant-{number}", 12 + 8 * number, 0.018)
    ]
    lengths = [
        *_batch(chance, 0.0, "slow", 60, 0.120),
        *(one for number in range(4) for one in _batch(chance, 0.3, f"fast-{number}", 40, 0.010)),
    ]
    limited = [
        *_batch(chance, 0.0, "whale", 120, 0.030),
        *(one for number in range(3) for one in _batch(chance, 0.1, f"tenant-{number}", 60, 0.030)),
    ]
    weighted = [one for name in ("gold", "silver", "bronze") for one in _batch(chance, 0.0, name, 110, 0.030)]
    calm = [Message(0.02 * number, f"tenant-{number % 4}", chance.uniform(0.01, 0.05)) for number in range(200)]
    plain = Settings()
    return [
        Application("skewed tenants, then first come, first served", skewed, plain, Settings(fair=False)),
        Application("bursts, then half the workers", bursts, plain, Settings(workers=2)),
        Application("slow and fast handlers, then first come, first served", lengths, plain, Settings(fair=False)),
        Application(
            "no limit, then one at a time for one tenant", limited, plain,
            Settings(policies={"whale": ChannelPolicy(max_concurrency=1)}),
        ),
        Application(
            "equal tenants, then weights", weighted, plain,
            Settings(policies={"gold": ChannelPolicy(weight=4), "silver": ChannelPolicy(weight=2)}),
        ),
        Application("workers seldom busy, then one worker", calm, Settings(workers=2), Settings(workers=1)),
    ]  # fmt: skip


def _batch(chance: random.Random, after: float, tenant: str, count: int, seconds: float) -> list[Message]:
    return [Message(after, tenant, chance.uniform(0.5, 1.5) * seconds) for _ in range(count)]


def perform(
    engine: Engine, name: str, application: Application, settings: Settings
) -> tuple[RecordedHistory, dict[int, str]]:
    """Run an application in a queue of that name, and return its history and the tenants of its messages by id."""
    queue = Queue(name, schema="fairqueue")
    done, left = threading.Event(), [len(application.messages)]
    lock = threading.Lock()

    @queue.handler("default")
    def handle(delivery: Delivery) -> None:
        time.sleep(delivery.payload["seconds"])
        with lock:
            left[0] -= 1
            if not left[0]:
                done.set()

    with engine.begin() as connection:
        queue.configure(connection, history=True)
        for tenant, policy in sorted(settings.policies.items()):
            queue.configure_channel(connection, tenant, policy)
    worker = Worker(engine, queue, concurrency=settings.workers, lease=timedelta(seconds=60), housekeeping=False)
    worker.start()
    tenants: dict[int, str] = {}
    began = time.monotonic()
    try:
        for after, messages in _by_time(application.messages):
            time.sleep(max(0.0, began + after - time.monotonic()))
            receipts = queue.enqueue_many(
                engine,
                [
                    Enqueue(channel=one.tenant if settings.fair else "all", payload={"seconds": one.seconds})
                    for one in messages
                ],
            )
            for one, receipt in zip(messages, receipts, strict=True):
                assert receipt.message_id is not None
                tenants[receipt.message_id] = one.tenant
        assert done.wait(_PATIENCE), f"{left[0]} messages of {application.name!r} were not handled"
    finally:
        worker.stop()
    return read_history(engine, queue=name, schema="fairqueue"), tenants


def _by_time(messages: Iterable[Message]) -> list[tuple[float, list[Message]]]:
    found: defaultdict[float, list[Message]] = defaultdict(list)
    for one in messages:
        found[one.after].append(one)
    return sorted(found.items())


def forecast(history: RecordedHistory, recorded: Settings, changed: Settings) -> pa.Table:
    """The replay of a record under other settings, by the capacity that the record shows."""
    [queue] = recorded_queues(history)
    return replayed_trace(queue.trace, changed.scenario(queue.capacity, recorded), queue.capacity)


def errors(
    replayed: pa.Table, forecast_tenants: Mapping[int, str], real: pa.Table, real_tenants: Mapping[int, str]
) -> list[TenantError]:
    """The errors of the mean wait from ready to started, by tenants with enough messages in the real run.

    Args:
        replayed: The attempts of the replay.
        forecast_tenants: The tenants of its messages.
        real: The attempts of the real run.
        real_tenants: The tenants of its messages.
    """
    expected, happened = _waits(replayed, forecast_tenants), _waits(real, real_tenants)
    return [
        TenantError(tenant, len(waits), fmean(expected[tenant]), fmean(waits))
        for tenant, waits in sorted(happened.items())
        if len(waits) >= LEAST_MESSAGES
    ]


def _waits(attempts: pa.Table, tenants: Mapping[int, str]) -> dict[str, list[float]]:
    found: defaultdict[str, list[float]] = defaultdict(list)
    for row in attempts.select(["message_id", "ready_at", "started_at"]).to_pylist():
        found[tenants[row["message_id"]]].append((row["started_at"] - row["ready_at"]).total_seconds())
    return found
