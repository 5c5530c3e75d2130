"""Options of the data source: strings of Spark, parsed and checked on the driver into a frozen dataclass.

A field's type says how its text is parsed; the option's name is the field's in camel case. This module must not open
connections.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import MISSING, Field, dataclass, field, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from sqlalchemy_fairqueue.spark.errors import BadOption
from sqlalchemy_fairqueue.times import parsed_duration
from sqlalchemy_fairqueue.values.fields import Rate
from sqlalchemy_fairqueue.values.messages import Enqueue

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from _typeshed import DataclassInstance

    OptionsT = TypeVar("OptionsT", bound=DataclassInstance)

_COPY = "option."
_BOOLEANS = {"true": True, "false": False}


def _parsed_message(text: str) -> Enqueue:
    """A message as JSON: ``{"channel": "a", "payload": 1, "kind": "report"}``, with a delay as text, like ``5m``."""
    try:
        given = json.loads(text)
        if isinstance(given, dict) and isinstance(given.get("delay"), str):
            given["delay"] = parsed_duration(given["delay"])
        return Enqueue(**given)
    except json.JSONDecodeError:
        # The text may hold a payload, which is not shown.
        raise ValueError('its value is no JSON; give a message like {"channel": "a", "payload": 1}') from None
    except TypeError as error:
        raise ValueError(f"its value is no message: {error}; give a channel, a payload and fields of Enqueue") from None


_PARSED: dict[Any, Callable[[str], Any]] = {timedelta: parsed_duration, Rate: Rate.parse, Enqueue: _parsed_message}
_TYPES = {
    str: "text",
    int: "a whole number",
    bool: "True or False",
    timedelta: "a timedelta, or text like 36h",
    Rate: "a Rate, or text like 50/s",
    Enqueue: 'an Enqueue, or JSON like {"channel": "a", "payload": 1}',
}


# Without slots, so that a class of options may have the fields of another value too.
@dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """Options of the installation, for reading and writing.

    Attributes:
        dsn: ``postgresql://...`` or ``key=value`` words of libpq. It is never shown.
        dsn_env: The environment variable, on driver and executors, that holds the dsn: then no plan contains it.
        schema: Where the queues are installed; None: the connection's default schema.
    """

    dsn: str | None = field(default=None, repr=False)
    dsn_env: str | None = None
    schema: str | None = None

    def __post_init__(self) -> None:
        """Refuse both sources of the dsn, and none."""
        if (self.dsn is None) == (self.dsn_env is None):
            raise BadOption(
                "give one of the options dsn and dsnEnv: the first holds the dsn, the second names a variable"
            )


def read_options(kind: type[OptionsT], given: Mapping[str, str], ignored: Collection[str] = ()) -> OptionsT:
    """The options as a value of *kind*.

    Text is parsed by the field's type: str, int, bool (``true``, ``false``), timedelta (``36h``; us, ms, s, m, h, d),
    Rate (``50/s``), tuple of str (comma-separated), Literal (one of its words). A field without a default is required.

    Args:
        kind: A frozen dataclass.
        given: The options as Spark gives them.
        ignored: Options that are for Spark itself, in any case.

    Raises:
        BadOption: An option is unknown, missing, or cannot be read. The value of dsn is never shown.
    """
    known = {option_name(one.name).lower(): one for one in fields(kind)}
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    _refuse_table(given)
    passed = {name.lower() for name in ignored}
    for name, text in given.items():
        if name.lower() in passed:
            continue
        option = known.get(name.lower())
        if option is None:
            raise BadOption(_unknown(name, [option_name(one.name) for one in known.values()]))
        values[option.name] = _read(text, _kind(hints[option.name]), option_name(option.name))
    missing = [option_name(one.name) for one in known.values() if one.name not in values and _required(one)]
    if missing:
        raise BadOption(f"the data source was not given {', '.join(missing)}; add .option({missing[0]!r}, ...)")
    return kind(**values)


def _refuse_table(given: Mapping[str, str]) -> None:
    """Refuse options of a table of Spark's catalog, which keeps a copy ``option.name`` of each."""
    names = {name.lower() for name in given}
    if any(name.startswith(_COPY) and name.removeprefix(_COPY) in names for name in names):
        raise BadOption(
            "fairqueue cannot be a table of Spark's catalog: Spark gives a Python data source no option of a table "
            "when it is read; write create temporary view ... using fairqueue options (...)"
        )


def read_fields(options: DataclassInstance) -> None:
    """Parse fields that were given as text, as :func:`read_options` does.

    For values that users make themselves: they may write ``JSON`` and ``1d`` as they do in Spark's options.

    Raises:
        BadOption: A field has a value of another type, or a text that cannot be read.
    """
    hints = get_type_hints(type(options))
    for one in fields(options):
        value, name, kind = getattr(options, one.name), option_name(one.name), _kind(hints[one.name])
        if isinstance(value, str):
            object.__setattr__(options, one.name, _read(value, kind, name))
        elif value is None and type(None) in get_args(hints[one.name]):
            continue
        elif get_origin(kind) is Literal or not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            shown = f"{value!r:.80}" if one.repr else f"a {type(value).__name__}"
            raise BadOption(f"option {name} is {shown}; give {_TYPES.get(kind) or _listed(kind)}")


def option_name(name: str) -> str:
    """The option's name of a field: ``max_attempts`` is ``maxAttempts``."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _required(option: Field[Any]) -> bool:
    return option.default is MISSING and option.default_factory is MISSING


def _unknown(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name.lower(), [one.lower() for one in names], n=1)
    meant = next((one for one in names if close and one.lower() == close[0]), None)
    if meant:
        return f"option {name!r} is unknown; did you mean {meant}?"
    return f"option {name!r} is unknown; the options are {', '.join(sorted(names))}"


def _kind(hint: Any) -> Any:
    """The type of a field, apart from None."""
    others = [one for one in get_args(hint) if one is not type(None)]
    return others[0] if type(None) in get_args(hint) else hint


def _listed(kind: Any) -> str:
    return f"one of {', '.join(get_args(kind))}"


def _read(text: str, kind: Any, name: str) -> Any:
    if get_origin(kind) is Literal:
        return _one_of(text, get_args(kind), name)
    if get_origin(kind) is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if kind is bool:
        return _BOOLEANS[_one_of(text, tuple(_BOOLEANS), name)]
    if kind is int:
        try:
            return int(text)
        except ValueError:
            raise BadOption(f"option {name} is {text!r:.80}; give a whole number") from None
    if kind in _PARSED:
        try:
            return _PARSED[kind](text)
        except ValueError as error:
            raise BadOption(f"option {name}: {error}") from None
    if not text:
        raise BadOption(f"option {name} is empty; leave it out, or give it a value")
    return text


def _one_of(text: str, words: tuple[str, ...], name: str) -> str:
    for word in words:
        if text.strip().lower() == word.lower():
            return word
    raise BadOption(f"option {name} is {text!r:.80}; give one of {', '.join(words)}")
