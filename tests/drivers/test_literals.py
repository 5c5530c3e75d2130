"""Array literals say the same as the lists that they are made of."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from sqlalchemy_fairqueue.database.drivers.base import LITERALS
from tests.fixtures.database import Database

_TEXTS = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text[]": st.none() | _TEXTS | st.sampled_from(["null", "NULL", "", " ", '"', "\\", "{}", "a,b"]),
    "bytea[]": st.binary(max_size=50),
    "bigint[]": st.none() | st.integers(-(2**63), 2**63 - 1),
    "tid[]": st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1)).map(lambda one: f"({one[0]},{one[1]})"),
}


@pytest.mark.parametrize("type_", _VALUES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(data=st.data())
def test_literals(database: Database, type_: str, data: st.DataObject) -> None:
    """PostgreSQL reads a literal as the values that it was made of, in their order, nulls included."""
    values = data.draw(st.lists(_VALUES[type_], min_size=1, max_size=8))
    element = {"tid[]": "cast(one as text)"}.get(type_, "one")
    with database.own.connect() as connection:
        found = connection.scalars(
            text(f"select {element} from unnest(cast(:literal as {type_})) with ordinality u (one, n) order by n"),
            {"literal": LITERALS[type_](values)},
        ).all()
    assert list(found) == values


def test_contents_are_not_shown() -> None:
    """The parameter shows the length of each content, whose hexadecimal digits it has."""
    assert repr(LITERALS["bytea[]"]([b"secret", b"", bytes(2000)])) == "[<6 bytes>, <0 bytes>, <2,000 bytes>]"
