"""Fencing tokens of deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

TOKEN_TYPES = {"ids": "bigint[]", "rows": "tid[]", "lease_ids": "bigint[]", "deliveries": "integer[]"}
"""The parameters that take the fields of tokens, one array a field, with their types."""


class Token(NamedTuple):
    """The fencing token of a delivery: the SQL functions settle the delivery only while it is valid.

    Attributes:
        message_id: The message.
        row_id: Where its row stood when it was delivered.
        lease_id: The lease that it is held under.
        deliveries: How often it was handed out, ever.
    """

    message_id: int
    row_id: str
    lease_id: int
    deliveries: int


def token_parameters(tokens: Sequence[Token]) -> dict[str, Any]:
    """Tokens, at least one, as the functions take them."""
    return dict(zip(TOKEN_TYPES, map(list, zip(*tokens, strict=True)), strict=True))
