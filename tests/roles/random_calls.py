"""Random calls of SQL functions: mostly ordinary arguments by name and type, and one or two odd ones."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.queue.row_grammar import Grammar

_BITS = {"bigint": 63, "integer": 31, "smallint": 15}
_ODD = {
    "tid": ("(4294967295,65535)",),
    "interval": ("-1 us", "178000000 years", "-178000000 years", "infinity", "-infinity"),
    "timestamp with time zone": ("4713-01-01 BC", "294276-12-31", "10000-01-01Z", "infinity", "-infinity"),
}
_GROUP = "00000000-0000-0000-0000-000000000001"


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the installation, with the types and the names of its parameters."""

    name: str
    types: Sequence[str]
    names: Sequence[str]

    @property
    def call(self) -> str:
        """The statement that calls it."""
        return f"select * from {self.name}({', '.join('%s::' + one for one in self.types)})"


@dataclass(frozen=True, slots=True)
class Known:
    """Ids and tokens that exist in the database now."""

    message_ids: Sequence[int] = (1,)
    lease_ids: Sequence[int] = (1,)
    rows: Sequence[str] = ("(0,1)",)


class RandomCalls:
    """Arguments from a seed: the same seed makes the same ones.

    Args:
        seed: The seed.
    """

    def __init__(self, seed: int) -> None:
        self.random, self.grammar = random.Random(seed), Grammar(seed)  # noqa: S311 - arguments of tests

    def arguments(self, function: Function, known: Known) -> list[Any]:
        """Arguments of one call. Arrays of one call have one length."""
        count, length = len(function.types), self.random.randrange(4)
        odd = {self.random.randrange(count) for _ in range(self.random.choice((0, 1, 1, 2))) if count}
        return [
            self._array(self._odd if number in odd else self._ordinary, of, name, known, length)
            for number, (of, name) in enumerate(zip(function.types, function.names, strict=True))
        ]

    def _array(self, make: Callable[[str, str, Known], Any], of: str, name: str, known: Known, length: int) -> Any:
        if not of.endswith("[]"):
            return make(of, name, known)
        return [make(of.removesuffix("[]"), name, known) for _ in range(length)]

    def _ordinary(self, of: str, name: str, known: Known) -> Any:
        pick = self.random.choice
        if of in _BITS:
            if "lease_id" in name:
                return pick(known.lease_ids)
            if "message_id" in name or name in {"p_id", "p_ids"}:
                return pick(known.message_ids)
            return pick((1000, 30_000_000)) if name == "p_lease" else pick((1, 2, 10))
        return {
            "text": "documents" if name == "p_queue" else pick(("me", "a", "c1", "skip")),
            "bytea": b"1",
            "jsonb": pick((None, "{}", '{"weight": 2}')),
            "boolean": pick((True, False)),
            "tid": pick(known.rows),
            "uuid": _GROUP,
            "interval": pick((None, "0", "1 s")),
            "timestamp with time zone": pick((None, "2026-01-01Z")),
        }[of]

    def _odd(self, of: str, name: str, known: Known) -> Any:
        pick = self.random.random()
        if pick < 0.1:
            return None
        if of == "text":
            return "x" * self.random.choice((513, 2_000_000)) if pick < 0.4 else self.grammar.text()
        if of in _BITS:
            while (found := self.grammar.number()) is not None:
                if -(2 ** _BITS[of]) <= found < 2 ** _BITS[of]:
                    return found
            return None
        if of in {"bytea", "jsonb"}:
            return self.grammar.content() if of == "bytea" else self.grammar.headers()
        return self.random.choice(_ODD[of]) if of in _ODD else self._ordinary(of, name, known)
