"""Arguments of jobs, of every type that the page names, come back as they were."""

import dataclasses
import enum
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlalchemy_fairqueue import PayloadError, Queue
from sqlalchemy_fairqueue.testing import make_delivery


class Color(enum.Enum):
    """An enum of strings."""

    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    """An enum of integers."""

    LOW = 1
    HIGH = 2


class Point(NamedTuple):
    """A named tuple."""

    x: int
    y: int


class Options(TypedDict):
    """A dict with an optional item."""

    color: Color
    level: NotRequired[Level]


@dataclasses.dataclass(frozen=True)
class Page:
    """A dataclass."""

    number: int
    size: Decimal
    printed: date | None = None


class Image(msgspec.Struct, frozen=True):
    """A struct of msgspec."""

    width: int
    taken: datetime


class Document(pydantic.BaseModel):
    """A model of pydantic, with dataclasses."""

    id: UUID
    pages: list[Page]
    price: Decimal | None = None
    due: datetime


class Strict(pydantic.BaseModel, strict=True, frozen=True):
    """A model that converts nothing but JSON, with an alias."""

    due: date
    id: UUID
    name: str = pydantic.Field(alias="Name")


# What jsonb and UTF-8 have no words for is the codec's to refuse.
_texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
# Offsets of earlier times have seconds, which ISO 8601 has no words for.
_MODERN = datetime(1980, 1, 1)  # noqa: DTZ001 - Hypothesis wants it without a zone
_integers = st.integers(-(2**70), 2**70)
_small = st.integers(-(2**40), 2**40)
_colors = st.sampled_from(Color)
_instants = st.datetimes(timezones=st.just(UTC))
_decimals = st.decimals(allow_nan=False, allow_infinity=False)
_pages = st.builds(Page, number=_small, size=_decimals, printed=st.none() | st.dates())
_documents = st.builds(Document, id=st.uuids(), pages=st.lists(_pages, max_size=3), price=_decimals, due=_instants)
_images = st.builds(Image, width=_small, taken=_instants)
_strict = st.builds(lambda due, uuid, name: Strict(due=due, id=uuid, Name=name), st.dates(), st.uuids(), _texts)

_TYPES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "str": (str, _texts),
    "int": (int, _integers),
    "float": (float, st.floats(allow_nan=False, allow_infinity=False)),
    "bool": (bool, st.booleans()),
    "bytes": (bytes, st.binary(max_size=20)),
    "None": (None, st.none()),
    "Any": (Any, st.recursive(_texts | st.booleans(), lambda inner: st.lists(inner) | st.dictionaries(_texts, inner))),
    "UUID": (UUID, st.uuids()),
    "datetime": (datetime, _instants),
    "naive datetime": (datetime, st.datetimes()),
    "datetime with an offset": (
        datetime,
        # Python holds a time that comes twice in its zone for unequal to any in another zone.
        st.datetimes(timezones=st.timezones(), allow_imaginary=False, min_value=_MODERN).filter(
            lambda time: time == time.astimezone(UTC)
        ),
    ),
    "date": (date, st.dates()),
    "time": (time, st.times()),
    "timedelta": (timedelta, st.timedeltas()),
    "Decimal": (Decimal, _decimals),
    "Enum": (Color, _colors),
    "IntEnum": (Level, st.sampled_from(Level)),
    "Literal": (Literal["a", 1], st.sampled_from(["a", 1])),
    "Optional": (UUID | None, st.none() | st.uuids()),
    "Union": (int | str, _small | _texts),
    "list": (list[Decimal], st.lists(_decimals, max_size=3)),
    "tuple": (tuple[int, UUID], st.tuples(_small, st.uuids())),
    "set": (set[date], st.sets(st.dates(), max_size=3)),
    "frozenset": (frozenset[str], st.frozensets(_texts, max_size=3)),
    "dict": (dict[str, datetime], st.dictionaries(_texts, _instants, max_size=3)),
    "dict of UUIDs": (dict[UUID, timedelta], st.dictionaries(st.uuids(), st.timedeltas(), max_size=3)),
    "dict of int": (dict[int, str], st.dictionaries(_small, _texts, max_size=3)),
    "NamedTuple": (Point, st.builds(Point, x=_small, y=_small)),
    "TypedDict": (Options, st.fixed_dictionaries({"color": _colors}, optional={"level": st.sampled_from(Level)})),
    "dataclass": (Page, _pages),
    "msgspec": (Image, _images),
    "pydantic": (Document, _documents),
    "strict pydantic": (Strict, _strict),
    "list of pydantic": (list[Document], st.lists(_documents, max_size=2)),
}


def _job(annotation: Any) -> tuple[Callable[[Any], Any], list[Any]]:
    """A function that sends an argument of a type through the payload, and what the job's function gets."""
    queue, got = Queue("documents"), []

    def job(value: Any) -> None:
        got.append(value)

    job.__annotations__["value"] = annotation
    made = queue.job(job)

    def send(value: Any) -> Any:
        got.clear()
        delivery = make_delivery(queue, made.prepare("a", value).payload, kind="job")
        queue._handlers["job"].function(delivery)
        return got[0]

    return send, got


@pytest.mark.parametrize("name", _TYPES)
def test_round_trips(name: str) -> None:
    """A value that the type allows comes back equal and of the same type."""
    annotation, values = _TYPES[name]
    send, _ = _job(annotation)

    @given(value=values)
    def comes_back(value: object) -> None:
        found = send(value)
        assert (found, type(found)) == (value, type(value))

    comes_back()


@pytest.mark.parametrize("name", ["int", "UUID", "date", "Decimal", "Enum", "dataclass", "pydantic", "list"])
def test_other_values_are_refused(name: str) -> None:
    """A value of another type is refused by name, unless it can be read as one of the type."""
    annotation, _ = _TYPES[name]
    send, got = _job(annotation)

    @given(value=_texts.filter(lambda text: not text.strip().isdigit()) | st.dictionaries(_texts, _texts, max_size=1))
    def is_refused(value: object) -> None:
        refused: PayloadError | None = None
        try:
            send(value)
        except PayloadError as error:
            refused = error
        if refused is None:
            assert type(got[0]) in {annotation, list}
        else:
            assert refused.path.startswith("$.value")
            assert f"argument 'value' of job 'job' is {value!r:.80}" in str(refused)

    is_refused()


class Base(pydantic.BaseModel):
    """A model that is annotated."""

    a: Any = 1


class Derived(Base):
    """A model that is given."""

    b: int = 2


class Secret(pydantic.BaseModel):
    """A model whose JSON masks a field."""

    token: pydantic.SecretStr


class Partial(pydantic.BaseModel, extra="allow"):
    """A model with a field that its JSON leaves out, and a private one."""

    hidden: int = pydantic.Field(default=1, exclude=True)
    _private: int = pydantic.PrivateAttr(default=1)


@dataclasses.dataclass(frozen=True)
class DerivedPage(Page):
    """A dataclass that is given for its base."""

    note: str = ""


@dataclasses.dataclass
class Counted:
    """A dataclass that does more than keep what it gets."""

    number: int

    def __post_init__(self) -> None:
        self.number += 1


@attrs.define
class Private:
    """A class of attrs whose field has another name in its constructor."""

    _number: int = 1


class DerivedPoint(Point):
    """A named tuple that is given for its base."""


class Name(enum.StrEnum):
    """Strings of a type of their own."""

    TEA = "tea"


class Mode(enum.Flag):
    """An enum whose members add up."""

    READ = enum.auto()
    WRITE = enum.auto()


@attrs.define
class Public:
    """A class of attrs."""

    number: int


class Unlike:
    """Has no equality."""


@dataclasses.dataclass(eq=False)
class Same:
    """A dataclass without an equality of its own."""

    number: Decimal


def _private(value: int) -> Partial:
    partial = Partial()
    partial._private = value
    return partial


_NEW_YORK = ZoneInfo("America/New_York")
_LOST: dict[str, tuple[Any, Any]] = {
    "a masked field": (Secret, Secret(token=pydantic.SecretStr("hunter2"))),
    "a model for its base": (Base, Derived()),
    "a model in a list for its base": (list[Base], [Base(), Derived()]),
    "an excluded field": (Partial, Partial(hidden=2)),
    "a private attribute": (Partial, _private(2)),
    "an extra field": (Partial, Partial.model_validate({"at": date(2026, 1, 1)})),
    "Any of a model": (Base, Base(a=Decimal(1))),
    "what has no equality": (Base, Base.model_construct(a=Unlike())),
    "a dataclass for its base": (Page | None, DerivedPage(1, Decimal(1))),
    "a dataclass that changes itself": (Counted, Counted(1)),
    "a private field of attrs": (Private, Private(2)),
    "a tuple for its base": (Point, DerivedPoint(1, 2)),
    "a tuple for a named tuple": (Point, (1, 2)),
    "an item that the TypedDict has not": (Options, {"color": Color.RED, "size": 3}),
    "a string of its own type": (str, Name.TEA),
    "an integer of its own type": (list[int], [1, Level.HIGH]),
    "keys of their own type": (dict[str, int], {Name.TEA: 1}),
    "members of their own type": (set[str], {"coffee", Name.TEA}),
    "keys of another type": (dict[str, int], {1: 2}),
    "a dict of its own type": (dict[str, int], OrderedDict(a=1)),
    "a tuple for a list": (list[int], (1, 2)),
    "a bytearray": (bytes, bytearray(b"a")),
    "bytes for a string": (str, b"a"),
    "a string for a UUID": (UUID, "0" * 32),
    "Any of a date": (Any, date(2026, 1, 1)),
    "Any of integer keys": (dict[str, Any], {"a": {1: 2}}),
    "an integer that no float is": (float, 2**53 + 1),
    "an offset with seconds": (datetime, datetime(1880, 1, 1, tzinfo=_NEW_YORK)),
    "a time in a zone": (time, time(1, 30, tzinfo=_NEW_YORK)),
}


@pytest.mark.parametrize("name", _LOST)
def test_what_would_be_lost_is_refused(name: str) -> None:
    """A value that would not come back equal and of its own type is refused at the call, by name and place."""
    annotation, value = _LOST[name]
    send, got = _job(annotation)
    with pytest.raises(PayloadError, match="argument 'value' of job 'job' is") as refused:
        send(value)
    assert refused.value.path.startswith("$.value")
    assert not got


def test_the_part_that_would_be_lost() -> None:
    """The error names the part and what would come back, and shows no secret."""
    send, _ = _job(dict[str, list[Secret]])
    with pytest.raises(PayloadError, match=r"its part a\[0\].token is SecretStr") as refused:
        send({"a": [Secret(token=pydantic.SecretStr("hunter2"))]})
    assert refused.value.path == "$.value.a[0].token"
    assert "hunter2" not in str(refused.value)


_KEPT: dict[str, tuple[Any, Any]] = {
    "NaN": (list[Decimal], [Decimal("nan"), Decimal("snan"), Decimal("-inf")]),
    "no equality": (Same, Same(Decimal("1.50"))),
    "minus zero": (float, -0.0),
    "the default of an excluded field": (Partial, Partial()),
    "extra fields that JSON has": (Partial, Partial.model_validate({"more": [1, {"a": None}]})),
    "the first hour in its zone": (datetime, datetime(2026, 11, 1, 1, 30, tzinfo=_NEW_YORK)),
    "the second hour in its zone": (datetime, datetime(2026, 11, 1, 1, 30, fold=1, tzinfo=_NEW_YORK)),
    "flags": (Mode, Mode.READ | Mode.WRITE),
    "attrs": (Public, Public(2)),
    "items in another order": (Options, {"level": Level.LOW, "color": Color.RED}),
}


@pytest.mark.parametrize("name", _KEPT)
def test_what_equality_does_not_tell(name: str) -> None:
    """What comes back as it was is accepted, whatever ``==`` says of it."""
    annotation, value = _KEPT[name]
    send, _ = _job(annotation)
    found = send(value)
    assert type(found) is type(value)
    if isinstance(value, datetime):
        assert (found.isoformat(), found.utcoffset()) == (value.isoformat(), value.utcoffset())
    elif isinstance(value, Same):
        assert repr(found.number) == "Decimal('1.50')"
    else:
        assert repr(found) == repr(value) or found == value


def test_integers_for_floats() -> None:
    """As for type checkers, an integer is a float; and JSON has lists only, where the annotation is Any."""
    assert repr(_job(float)[0](3)) == "3.0"
    assert _job(Any)[0]({"a": (1, 2)}) == {"a": [1, 2]}


@pytest.mark.parametrize("depth", [400, 5_000])
def test_a_value_that_is_nested_too_deeply(depth: int) -> None:
    """It is refused by the error of other bad values, whichever step of the check meets Python's limit."""
    queue = Queue("documents")

    @queue.job
    def job(*, value: Any) -> None: ...

    nested: Any = 1
    for _ in range(depth):
        nested = [nested]
    with pytest.raises(PayloadError, match="argument 'value' of job 'job' is a value that is nested too deeply"):
        job.prepare("a", value=nested)
