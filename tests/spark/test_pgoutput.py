"""Messages of pgoutput, from the bytes that a server of version 18 sent."""

import pytest

from sqlalchemy_fairqueue.spark.errors import PipelineError
from sqlalchemy_fairqueue.spark.reading.changes import Change, Commit, PgOutput

_BEGIN = "4200000000016f50c0000304298b56a265000002f2"
_RELATION = (
    "52000040007075626c69630074006400030169640000000014ffffffff006ec3a46d650000000019ffffffff006e0000000017ffffffff"
)
_NULL = "49000040004e0003740000000137740000000561e298830a6e"
_EMPTY = "49000040004e00037400000001387400000000740000000135"
_DELETE = "44000040004b00037400000001376e6e"
_UPDATE = "55000040004e00037400000001387400000000740000000136"
_COMMIT = "430000000000016f50c000000000016f50f0000304298b56a265"
_TRUNCATE = "54000000010000004000"


def test_inserts_deletes_and_commits() -> None:
    """Names and texts in UTF-8, nulls and empty texts apart, and the key of a deleted row; all other kinds are none."""
    messages = (_BEGIN, _RELATION, _NULL, _EMPTY, _DELETE, _UPDATE, _COMMIT, _TRUNCATE)
    output = PgOutput()
    decoded = [output.decoded(bytes.fromhex(one)) for one in messages]
    assert [(one.table, one.is_insert, one.row()) for one in decoded if isinstance(one, Change)] == [
        ("t", True, {"id": "7", "näme": "a☃\n", "n": None}),
        ("t", True, {"id": "8", "näme": "", "n": "5"}),
        ("t", False, {"id": "7", "näme": None, "n": None}),
    ]
    assert [one.number("id") for one in decoded if isinstance(one, Change)] == [7, 8, 7]
    commit = Commit(0x16F50F0, 946_684_800_000_000 + 0x0304298B56A265)
    assert [one for one in decoded if not isinstance(one, Change)] == [None, None, None, commit, None]


@pytest.mark.parametrize("message", [_NULL, _RELATION[:40], _COMMIT[:30], _COMMIT + "00"])
def test_what_is_no_message_of_pgoutput(message: str) -> None:
    """A row of a table that was not described, and bytes that are cut or too many."""
    with pytest.raises(PipelineError, match=r"a message of pgoutput cannot be read: .*; report it as a bug"):
        PgOutput().decoded(bytes.fromhex(message))


def test_a_row_that_is_cut() -> None:
    """Or that has no such number."""
    output = PgOutput()
    output.decoded(bytes.fromhex(_RELATION))
    row, cut = output.decoded(bytes.fromhex(_NULL)), output.decoded(bytes.fromhex(_NULL[:20]))
    assert isinstance(row, Change)
    assert isinstance(cut, Change)
    for call in (lambda: row.number("n"), cut.row, lambda: cut.number("n")):
        with pytest.raises(PipelineError, match="cannot be read"):
            call()
