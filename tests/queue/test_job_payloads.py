"""Arguments of jobs, of every type that the page names, come back as they were."""

import dataclasses
import enum
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID

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
    "Enum": (Color, st.sampled_from(Color)),
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
    "TypedDict": (
        Options,
        st.fixed_dictionaries(
            {"color": st.sampled_from(Color)},
            optional={"level": st.sampled_from(Level)},
        ),
    ),
    "dataclass": (Page, _pages),
    "list of dataclasses": (list[Page], st.lists(_pages, max_size=3)),
    "msgspec": (Image, _images),
    "dict of msgspec": (dict[str, Image], st.dictionaries(_texts, _images, max_size=3)),
    "pydantic": (Document, _documents),
    "strict pydantic": (Strict, _strict),
    "Optional pydantic": (Document | None, st.none() | _documents),
    "list of pydantic": (list[Document], st.lists(_documents, max_size=2)),
    "dict of pydantic": (dict[str, Strict], st.dictionaries(_texts, _strict, max_size=2)),
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
        queue.handlers["job"].function(delivery)
        return got[0]

    return send, got


@pytest.mark.parametrize("name", _TYPES)
@given(data=st.data())
def test_round_trips(name: str, data: st.DataObject) -> None:
    """A value that the type allows comes back equal and of the same type."""
    annotation, values = _TYPES[name]
    value = data.draw(values)
    send, _ = _job(annotation)
    found = send(value)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("name", ["int", "UUID", "date", "Decimal", "Enum", "dataclass", "pydantic", "list"])
@given(value=_texts.filter(lambda text: not text.strip().isdigit()) | st.dictionaries(_texts, _texts, max_size=1))
def test_other_values_are_refused(name: str, value: object) -> None:
    """A value of another type is refused by name, unless it can be read as one of the type."""
    annotation, _ = _TYPES[name]
    send, got = _job(annotation)
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
