import copy
import pickle
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlalchemy_fairqueue import Bury, ChannelPolicy, Enqueue, Queue, Rate, Release, Retry
from sqlalchemy_fairqueue.errors import InvalidArgument, PayloadError
from sqlalchemy_fairqueue.reports import Deliveries
from sqlalchemy_fairqueue.testing import make_delivery
from sqlalchemy_fairqueue.times import duration, instant, instant_microseconds, microseconds
from sqlalchemy_fairqueue.values.messages import Undecoded
from sqlalchemy_fairqueue.values.outcomes import Outcome
from tests.factories import EnqueueFactory


class _Busy(Retry):
    """An outcome of an application."""


_DELIVERY = make_delivery(Queue("q"), 1, kind="k", headers={"a": 1})


@given(st.datetimes(timezones=st.timezones()), st.timedeltas())
def test_instants_and_durations(at: datetime, length: timedelta) -> None:
    """An aware datetime comes back as the same instant, to the microsecond, and a timedelta as it was."""
    assert instant(instant_microseconds(at)) == at.astimezone(UTC)
    assert duration(microseconds(length)) == length


_POLICIES: list[tuple[dict[str, Any], str]] = [
    ({"max_concurrency": 0}, "max_concurrency is 0; give an int from 1"),
    ({"max_concurrency": True}, "max_concurrency is True"),
    ({"max_concurrency": 2**31}, "max_concurrency is 2147483648"),
    ({"rate": 5}, "rate is 5; give a Rate, its text, or None for no limit, such as Rate(5) or '5/s'"),
    ({"rate": "often"}, "'often' is no rate; give one like 10/s"),
    ({"rate": "0/s"}, "'0/s' is no rate"),
    ({"rate": "1/0s"}, "'1/0s' is no rate"),
    ({"weight": 10_001}, "weight is 10001; give an int from 1 to 10000"),
    ({"weight": "3"}, "weight is '3'"),
    ({"max_backlog": 0}, "max_backlog is 0; give an int from 1"),
    ({"max_backlog": 2**31}, "max_backlog is 2147483648"),
    ({"on_full": "block"}, "on_full is 'block'; give 'raise' or 'drop'"),
    ({"on_full": None}, "on_full is None"),
]
_RATES: list[tuple[tuple[Any, ...], str]] = [
    ((0,), "the count of a rate is 0; give a number above 0"),
    ((True,), "the count of a rate is True"),
    (("5",), "the count of a rate is '5'"),
    ((float("nan"),), "the count of a rate is nan"),
    ((1, 5), "the time of a rate is 5; give a timedelta"),
    ((1, timedelta(366)), "the time of a rate is datetime.timedelta(days=366)"),
    ((1, timedelta()), "is more than a million a second"),
    ((10_000_000,), "a rate of 10000000 in 0:00:01 is more than a million a second"),
    ((float("inf"),), "the count of a rate is inf; give a number above 0"),
    ((1, timedelta(365), 2), "the interval times the burst of a rate is datetime.timedelta(days=730)"),
    ((1e-9,), "the time between two messages of a rate is datetime.timedelta(days=11574"),
    ((1e-300,), "the time between two messages of a rate is longer than 365 days; give a higher count"),
    ((50, timedelta(seconds=1), 0), "the burst of a rate is 0; give an int from 1 to 1000000"),
    ((50, timedelta(seconds=1), 2.5), "the burst of a rate is 2.5"),
]


@pytest.mark.parametrize(
    ("text", "rate", "again"),
    [
        ("50/s", Rate(50), "50/s"),
        ("50/s, burst 10", Rate(50, burst=10), "50/s, burst 10"),
        ("600 / m", Rate(10), "10/s"),
        ("100/min", Rate(100, timedelta(minutes=1)), "100/m"),
        ("600/Minute, burst 20", Rate(10, burst=20), "10/s, burst 20"),
        ("10/sec", Rate(10), "10/s"),
        ("3600/hour", Rate(1), "1/s"),
        ("12/day", Rate(1, timedelta(hours=2)), "12/d"),
        ("1/30s", Rate(1, per=timedelta(seconds=30)), "2/m"),
        ("5/1h30m", Rate(5, per=timedelta(minutes=90)), "80/d"),
        ("1000/s, burst 1", Rate(1000, burst=1), "1000/s, burst 1"),
        ("1/2.5d", Rate(1, timedelta(hours=60)), "1/2.5d"),
    ],
)
def test_rates_as_text(text: str, rate: Rate, again: str) -> None:
    """A rate is read from text, and written in the smallest unit that has at least one message."""
    assert Rate.parse(text) == rate == ChannelPolicy(rate=text).rate
    assert str(rate) == again


@given(st.timedeltas(timedelta(microseconds=1), timedelta(365)), st.integers(1, 1_000_000))
def test_rates_by_interval(interval: timedelta, burst: int) -> None:
    """Interval and burst, which the database keeps, give the same rate again."""
    burst = min(burst, timedelta(365) // interval)
    rate = Rate.every(interval, burst)
    assert rate is not None
    assert (rate.interval, rate.burst) == (interval, burst)
    assert Rate.every(timedelta(), burst) is None


def test_the_burst_of_a_rate() -> None:
    """Without a burst it is a tenth of a second's messages, and at least one."""
    assert [Rate(count).burst for count in (0.1, 1, 10, 50, 1000)] == [1, 1, 1, 5, 100]
    assert len({Rate(10), Rate(600, per=timedelta(minutes=1)), Rate(10, burst=2)}) == 2


def test_what_is_no_field_of_a_policy() -> None:
    """An argument without a name, or with that of no field, is refused."""
    policy: Any = ChannelPolicy
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        policy(5)
    with pytest.raises(TypeError, match="unexpected keyword argument 'rate_burst'"):
        policy(rate_burst=10)


_MESSAGES: list[tuple[dict[str, Any], str]] = [
    ({"channel": ""}, "channel '' has 0 bytes of UTF-8; use 1 to 512"),
    ({"channel": "x" * 513}, "has 513 bytes"),
    ({"channel": "é" * 257}, "has 514 bytes"),
    ({"channel": "x" * 10_240}, "has 10240 bytes"),
    ({"channel": "a\x00b"}, r"channel 'a\x00b' holds a NUL"),
    ({"channel": "\ud83d"}, "holds a lone surrogate"),
    ({"channel": None}, "channel is None; give a str"),
    ({"kind": ""}, "kind '' has 0 bytes"),
    ({"kind": None}, "kind is None"),
    ({"key": ""}, "key '' has 0 bytes"),
    ({"key": 5}, "key is 5"),
    ({"delay": 5}, "delay is 5; give a timedelta"),
    ({"delay": timedelta(seconds=-1)}, "delay is datetime.timedelta(days=-1, seconds=86399)"),
    ({"delay": timedelta(366)}, "365 days"),
    ({"at": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001 - the point
    ({"at": "tomorrow"}, "at is 'tomorrow'; give an aware datetime"),
    ({"at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))}, "after the year 9999 in UTC"),
    ({"priority": 0}, "priority is 0; give an int from 1"),
    ({"priority": 2**31}, "priority is 2147483648"),
    ({"priority": True}, "priority is True"),
    ({"max_attempts": 0}, "max_attempts is 0"),
    ({"key": "k", "on_duplicate": "ignore"}, "on_duplicate is 'ignore'; give 'skip', 'raise' or 'replace'"),
    ({"key": "k", "on_duplicate": None}, "on_duplicate is None"),
    ({"key": "k", "on_duplicate": ["raise"]}, "on_duplicate is ['raise']"),
    ({"on_duplicate": "replace"}, "on_duplicate is 'replace' and there is no key"),
    ({"at": datetime.now(UTC), "delay": timedelta(), "priority": 1}, "message has delay and at"),
]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        *((partial(ChannelPolicy, **given), said) for given, said in _POLICIES),
        *((partial(Rate, *given), said) for given, said in _RATES),
        *((partial(EnqueueFactory.build, **given), said) for given, said in _MESSAGES),
    ],
)
def test_what_cannot_be_kept(make: Callable[[], object], said: str) -> None:
    """A policy, rate or message is refused with the name and the value, cut short."""
    with pytest.raises(InvalidArgument) as caught:
        make()
    assert said in str(caught.value)
    assert len(str(caught.value)) < 300


def test_extremes_are_kept() -> None:
    """The longest names, the latest instants and the greatest numbers are taken."""
    far = timezone(timedelta(hours=14))
    for at in (datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=far), datetime.max.replace(tzinfo=far)):
        assert Enqueue(channel="x" * 512, payload=None, at=at, max_attempts=2**31 - 1).at == at
    rate, most = Rate(1_000_000, per=timedelta(365), burst=1_000_000), 2**31 - 1
    assert ChannelPolicy(max_concurrency=most, rate=rate, weight=10_000, max_backlog=most).weight == 10_000
    assert Rate(1, per=timedelta(365)).burst == 1
    assert Enqueue(channel="a", payload=1, key="k" * 512, on_duplicate="raise").key == "k" * 512


def test_values_are_frozen_and_copied() -> None:
    """Values cannot be changed, compare by what they hold, and survive copy and pickle."""
    for value in (ChannelPolicy(weight=3), Enqueue(channel="a", payload={"x": 1}), _DELIVERY.lease, _DELIVERY):
        with pytest.raises(AttributeError):
            setattr(value, fields(value)[0].name, 2)
        for again in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):  # noqa: S301 - our own
            assert again == value
            assert again is not value


@pytest.mark.parametrize(
    "outcome",
    [Retry(), Retry(delay=timedelta(seconds=3), error="busy"), Release(), Release(delay=timedelta(1)), Bury("no")],
    ids=str,
)
def test_outcomes_come_from_other_processes(outcome: Outcome) -> None:
    """A handler's work may be done, and end so, in a process of a pool: which breaks where that cannot be pickled."""
    for again in (copy.copy(outcome), pickle.loads(pickle.dumps(outcome))):  # noqa: S301 - our own
        assert type(again) is type(outcome)
        assert vars(again) == vars(outcome)
        assert str(again) == str(outcome)


def test_outcomes_are_compared_by_value() -> None:
    """Those of one class with the same arguments are equal, raised or not, with a note or without; no others are."""
    minute = timedelta(minutes=1)

    def made() -> list[Outcome]:
        retries = (Retry(), Retry(delay=minute), Retry(delay=minute, error="busy"), Retry(error="busy"))
        return [*retries, Release(), Release(delay=minute), Bury("busy"), Bury("gone"), _Busy(), _Busy(delay=minute)]

    outcomes = made()
    for outcome in outcomes:
        with pytest.raises(type(outcome)) as raised:
            raise outcome from LookupError()
        assert raised.value is outcome
    outcomes[2].add_note("the line is busy")
    assert outcomes == made()
    assert len({*outcomes, *made()}) == len(outcomes)
    assert Retry() != "try again"


def test_deliveries_are_hashable() -> None:
    """A delivery with headers can be put in a set, as any other."""
    assert len({_DELIVERY, replace(_DELIVERY), replace(_DELIVERY, message_id=2), replace(_DELIVERY, headers=None)}) == 3


def test_a_payload_that_could_not_be_decoded() -> None:
    """Only asking for the payload raises, each time anew."""
    delivery = replace(_DELIVERY, decoded=PayloadError("odd"))
    for _ in range(2):
        with pytest.raises(PayloadError, match="odd"):
            _ = delivery.payload
    assert delivery.content == b"1"
    assert "odd" not in repr(delivery)


def test_a_payload_that_is_decoded_when_it_is_asked_for() -> None:
    """Not before, once, and copies have it too."""
    made: list[tuple[bytes, str]] = []

    def make(content: bytes, kind: str) -> list[tuple[bytes, str]]:
        made.append((content, kind))
        return made

    delivery = replace(_DELIVERY, decoded=Undecoded(make))
    assert made == []
    assert delivery.payload is delivery.payload
    for again in (copy.deepcopy(delivery), pickle.loads(pickle.dumps(delivery))):  # noqa: S301 - our own
        assert again.payload == [(b"1", "k")]
    assert made == [(b"1", "k")]


def test_batches() -> None:
    """A batch is a list that knows when to poll again, also after copy and pickle."""
    batch = Deliveries([_DELIVERY], timedelta(seconds=1))
    for again in (batch, copy.copy(batch), pickle.loads(pickle.dumps(batch))):  # noqa: S301 - our own
        assert again == [_DELIVERY]
        assert again.due_in == timedelta(seconds=1)
