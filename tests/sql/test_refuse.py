"""fq_refuse fails a transaction for an outcome, and tells it to who reads errors by their code."""

import json

from tests.sql.client import Kernel, refused

_CALL = "select fq_refuse(%(outcome)s, 'documents', %(channel)s, %(ordinal)s, %(ids)s::bigint[])"


def test_its_detail(kernel: Kernel) -> None:
    """The detail is JSON: the outcome, which message it was of, the messages in order, bound and holder if known."""
    cases: list[tuple[tuple[str, str | None, int | None, list[int | None]], dict[str, object]]] = [
        (("duplicate", "a", 2, [7]), {}),
        (("full", "a", 1, [None]), {"message_ids": None, "max_backlog": None}),
        (("lost", None, None, [9, 7]), {"message_ids": [7, 9], "holder": None}),
    ]
    for (outcome, channel, ordinal, ids), more in cases:
        with refused("QF010") as caught:
            kernel.rows(_CALL, outcome=outcome, channel=channel, ordinal=ordinal, ids=ids)
        told = json.loads(caught.value.diag.message_detail or "")
        assert told == {"outcome": outcome, "ordinal": ordinal, "message_ids": ids} | more

    # An outcome that may be committed is a mistake of the caller.
    for committed in ("created", None):
        with refused():
            kernel.rows(_CALL, outcome=committed, channel="a", ordinal=1, ids=[1])
