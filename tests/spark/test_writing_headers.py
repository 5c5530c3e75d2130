"""Headers of rows are refused as rows where the database would refuse them; no test needs a Spark session."""

import json
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlalchemy_fairqueue.spark.writing.payloads import check_headers, jsonb_size
from tests.fixtures.database import Database

_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=6)
# Of longer headers the database refuses others.
_FLOATS = st.floats(-1e300, 1e300).filter(lambda value: not value or abs(value) >= 1e-300)
_DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | _FLOATS | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=8,
)
_NUMBERS = (
    "0",
    "-0",
    "-0.0",
    "0e5",
    "0E-5",
    "1.50",
    "1.50e1",
    "1e5",
    "-1.5e+5",
    "15e-1",
    "-2.50E-7",
    "1e-300",
    "1e300",
)


def written(database: Database, texts: list[str]) -> list[int]:
    """The bytes of each text as jsonb writes it."""
    sql = "select octet_length(t::jsonb::text) as size from unnest(cast(:texts as text[])) with ordinality u(t, n)"
    return [row.size for row in database.rows(sql + " order by n", texts=texts)]


def test_their_size_is_that_of_jsonb(database: Database) -> None:
    """Byte for byte, whatever they hold; what is written with an exponent is long."""
    found: list[str] = [f'{{"n":[{number}]}}' for number in _NUMBERS]

    @given(_DOCUMENTS)
    def collect(document: object) -> None:
        text = json.dumps({"h": document}, ensure_ascii=False, separators=(",", ":"))
        found.extend([text, json.dumps({"h": document}, indent=1)])

    collect()
    assert [jsonb_size(text) for text in found] == written(database, found)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (json.dumps({f"k{i:04}": 1 for i in range(5500)}, separators=(",", ":")), "headers have 66,000 bytes of JSON"),
        (json.dumps({f"k{i:04}": 1 for i in range(5400)}, separators=(",", ":")), None),
        ('{"n":[' + ",".join(["1e99"] * 700) + "]}", "headers have 71,407 bytes of JSON"),
        ('{"n":[' + ",".join(["1e99"] * 600) + "]}", None),
        ('{"n":1e301,"t":"' + "x" * 1000 + '"}', "headers have a number beyond 1e300"),
        ('{"n":-1' + "0" * 301 + ',"t":"' + "x" * 1000 + '"}', "headers have a number beyond 1e300"),
        ('{"n":0.' + "0" * 301 + '1,"t":"' + "x" * 1000 + '"}', "headers have a number beyond 1e300"),
        ('{"n":1e308}', None),
        ('{"n":5e-324}', None),
    ],
)
def test_what_the_database_refuses_is_a_bad_row(database: Database, text: str, problem: str | None) -> None:
    """Headers that only the blanks and the digits that it writes make too long, and numbers that it does not write."""
    problems: dict[int, str] = {}
    check_headers(pa.array(["{}", None, text]), None, problems)
    assert database.value("select fq_headers_fit(cast(:text as jsonb))", text=text) is (problem is None)
    if problem is None:
        assert problems == {}
    else:
        assert list(problems) == [2]
        assert problems[2].startswith(problem)


@pytest.mark.parametrize("number", ["1e-20000", "0e-20000", "1e-99999999999999999999999"])
def test_numbers_that_jsonb_cannot_keep_are_bad_rows(number: str) -> None:
    """However short the headers are: COPY would refuse all rows with them."""
    problems: dict[int, str] = {}
    check_headers(pa.array([f'{{"n":{number}}}']), None, problems)
    assert list(problems) == [0]


def test_members_leave_room_for_the_group() -> None:
    """Counted as the database writes them, too."""
    problems: dict[int, str] = {}
    text = '{"a":"' + "x" * 65_465 + '"}'
    check_headers(pa.array([text, text]), pa.array([None, str(uuid4())]), problems)
    assert problems == {1: "headers of a member of a group have more than 65,472 bytes of JSON"}


def test_a_header_that_the_group_sets_is_a_bad_row() -> None:
    """The load would overwrite it; outside of groups, and within another header, it is like any other."""
    texts = ['{"group":"mine"}', '{"gro\\u0075p":1}', '{"x":{"group":1}}', '{"x":"\\u0041"}', None, '{"group":"mine"}']
    problems: dict[int, str] = {}
    check_headers(pa.array(texts), pa.array([str(uuid4())] * 5 + [None]), problems)
    assert problems == dict.fromkeys(
        (0, 1), "a member of a group has a header 'group', which the group sets; rename it"
    )
