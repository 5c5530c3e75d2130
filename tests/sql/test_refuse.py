"""fq_refuse fails a transaction for an outcome, and tells it to who reads errors by their code."""

import json

import pytest
from psycopg import errors

from tests.sql.client import Kernel

_CALL = "select fq_refuse(%(outcome)s, 'documents', %(channel)s, %(ordinal)s, %(ids)s::bigint[])"


def test_its_detail(kernel: Kernel) -> None:
    """The detail is JSON: the outcome, which message it was of, the messages in order, bound and holder if known."""
    cases: list[tuple[tuple[str, str | None, int | None, list[int | None]], dict[str, object]]] = [
        (("duplicate", "a", 2, [7]), {}),
        (("full", "a", 1, [None]), {"message_ids": None, "max_backlog": None}),
        (("lost", None, None, [9, 7]), {"message_ids": [7, 9], "holder": None}),
    ]
    for (outcome, channel, ordinal, ids), more in cases:
        with pytest.raises(errors.Error) as caught:
            kernel.rows(_CALL, outcome=outcome, channel=channel, ordinal=ordinal, ids=ids)
        kernel.rollback()
        assert caught.value.sqlstate == "QF010"
        told = json.loads(caught.value.diag.message_detail or "")
        assert told == {"outcome": outcome, "ordinal": ordinal, "message_ids": ids} | more


@pytest.mark.parametrize("outcome", ["created", None])
def test_another_outcome(kernel: Kernel, outcome: str | None) -> None:
    """An outcome that may be committed is a mistake of the caller."""
    with pytest.raises(errors.Error) as caught:
        kernel.rows(_CALL, outcome=outcome, channel="a", ordinal=1, ids=[1])
    kernel.rollback()
    assert caught.value.sqlstate == "QF001"
