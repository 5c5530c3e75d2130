"""Statements that call SQL functions, made once, with the parameters and types in the function's file."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import TextClause, TextualSelect, column, text

from sqlalchemy_fairqueue.database.drivers import NumberedStatement
from sqlalchemy_fairqueue.sql.files import signature
from sqlalchemy_fairqueue.sql.schema import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from sqlalchemy_fairqueue.database.drivers import Driver

    Encode = Callable[[Any], Any]
    Numbered = tuple[NumberedStatement, Sequence[str], Sequence[tuple[int, Encode]]]

once_a_schema = lru_cache(maxsize=256)
"""Keep what a function makes for each of the schemas that were used last: an application may have one a tenant."""


@dataclass(frozen=True, slots=True, eq=False)
class Clause:
    """A statement that is made once for each schema, so that SQLAlchemy's cache finds it.

    Attributes:
        types: The SQL types of its parameters.
        numbered: Results of :meth:`number`, by the driver's name.
    """

    statement: TextClause | TextualSelect
    types: Mapping[str, str] = field(default_factory=dict)
    _encoders: dict[str, list[tuple[str, Encode]]] = field(default_factory=dict)
    numbered: dict[str, Numbered] = field(default_factory=dict)

    def encoded(self, driver: Driver, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        encoders = self._encoders.get(driver.name)
        if encoders is None:
            found = driver.encoders
            encoders = [(name, found[type_]) for name, type_ in self.types.items() if type_ in found]
            self._encoders[driver.name] = encoders
        if not encoders:
            return parameters
        encoded = dict(parameters)
        for name, encode in encoders:
            if encoded[name] is not None:
                encoded[name] = encode(encoded[name])
        return encoded

    def number(self, driver: Driver) -> Numbered:
        """Return the statement with numbered parameters, their names in order, and encoders by position."""
        # Engines import it. Before there is an engine, importing this package must not cost its time.
        from sqlalchemy.dialects.postgresql.base import PGDialect  # noqa: PLC0415

        dialect: Any = PGDialect
        compiled: Any = self.statement.compile(dialect=dialect(paramstyle="numeric_dollar"))
        statement = NumberedStatement(str(compiled), str(compiled).encode())
        names, found = compiled.positiontup, driver.encoders
        types = [self.types[name] for name in names]
        encoders = [(index, found[type_]) for index, type_ in enumerate(types) if type_ in found]
        self.numbered[driver.name] = statement, names, encoders
        return self.numbered[driver.name]


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """A call that does more than select all columns of a function. In its texts ``fairqueue.`` stands for the schema.

    Attributes:
        columns: The columns to select. None: all.
        condition: The text after the function.
        before: A function to call before, in the same statement, with the same first parameter.
        alone: Array parameters that get one value instead; drivers encode a value several times faster than an array.
        each: An array parameter, of which each element is one call. The column "place" is its position, from 1.
        readable: Whether texts come as UTF-8 bytes, so that a text outside of the connection's encoding cannot fail all
            rows.
    """

    columns: Sequence[str] | None = None
    condition: str = ""
    before: str = ""
    alone: Collection[str] = ()
    each: str = ""
    readable: bool = False


ALL = Shape()
READABLE = Shape(readable=True)
EACH_QUEUE = Shape(each="queue", readable=True)


class _Clauses(dict[tuple[str, Shape], Clause]):
    """The statements of a schema, each made on first use."""

    def __init__(self, schema: str | None) -> None:
        super().__init__()
        self._schema = schema

    def __missing__(self, key: tuple[str, Shape]) -> Clause:
        """Make a statement. If several threads do, the first one's is kept."""
        return self.setdefault(key, clause_of(self._schema, *key))


clauses_of = once_a_schema(_Clauses)


def clause_of(schema: str | None, function: str, shape: Shape = ALL) -> Clause:
    qualified = qualifier(schema)
    found = signature(function)
    before = signature(shape.before).parameters if shape.before else {}
    types = {**found.parameters, **before}
    types |= {name: types[name].removesuffix("[]") for name in shape.alone}
    given = {name: argument(name, type_, alone=name in shape.alone) for name, type_ in types.items()}
    source = f"{qualified}{function}"
    if shape.before:
        shared = next(iter(found.parameters))
        earlier = f"{qualified}{shape.before}({', '.join(given[name] for name in before)})"
        # It is volatile, so it is called exactly once, and the other function waits for its row.
        source = f"(select {given[shared]} as {shared}, {earlier} as done) f cross join lateral {source}"
        given[shared] = f"f.{shared}"
    # If columns have names, SQLAlchemy caches the shape of rows; otherwise it works the shape out at each call.
    columns = [one.replace("fairqueue.", qualified) for one in shape.columns or ()]
    if shape.columns is None:
        columns = [
            f"pg_catalog.convert_to({name}, 'UTF8') as {name}" if shape.readable and type_ == "text" else name
            for name, type_ in found.columns.items()
        ]
    if shape.each:
        types[shape.each] += "[]"
        elements = argument(shape.each, types[shape.each])
        source = f"pg_catalog.unnest({elements}) with ordinality e (element, place) cross join lateral {source}"
        given[shape.each] = "e.element"
        columns.append("place")
    arguments = ", ".join(given[name] for name in found.parameters)
    condition = shape.condition.replace("fairqueue.", qualified)
    statement = text(f"select {', '.join(columns) or '1'} from {source}({arguments}){condition}")  # noqa: S608 (quoted)
    return Clause(statement.columns(*(column(one.split()[-1]) for one in columns)) if columns else statement, types)


def qualifier(schema: str | None) -> str:
    """Return the schema with a dot, to put before a name; empty if the search_path finds it."""
    # text() takes :word for a parameter, also in quotes.
    return "" if schema is None else quoted(schema).replace(":", "\\:") + "."


def argument(name: str, type_: str, *, alone: bool = False) -> str:
    """Write a parameter with its type. *alone* makes it the only element of an array."""
    one = f"cast(:{name} as {type_})"
    return f"array[{one}]" if alone else one
