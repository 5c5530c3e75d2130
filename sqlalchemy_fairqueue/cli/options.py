"""Derives the options of commands from the signatures and docstrings of their functions.

A parameter's name, its type and its line under ``Options:`` in the docstring make an option of it:
``older_than: timedelta`` is ``--older-than DURATION``. Parameters before the ``*`` are arguments. A parameter whose
type is a dataclass has an option for each field.
"""

# No ``from __future__ import annotations``: the program reads the annotations when it starts.
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer

from sqlalchemy_fairqueue.formats import parse_duration

DATABASE_URL_VARIABLE = "FAIRQUEUE_DATABASE_URL"
APP_VARIABLE = "FAIRQUEUE_APP"

_METAVARS: dict[object, str] = {str: "NAME", int: "N", Path: "FILE", timedelta: "DURATION"}
_SECTION = re.compile(r"\n\n?(?:Options|Attributes):\n((?:    .*\n?|\n)+)")
_ENTRY = re.compile(r"^    (\w+): (.*(?:\n     .*)*)", re.MULTILINE)

P = TypeVar("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """Details of an option, beyond the name and the type of its parameter.

    Attributes:
        names: The option's names, such as ``--yes`` and ``-y``. Default: made from the parameter's name.
        metavar: The word for the option's value in the help. Default: by the type.
        parse: Returns the value that a text stands for; raises ValueError.
        shown: The default value, as the help shows it.
        help: The help, unless the docstring of the command has it.
        panel: The heading that the help lists the option under.
    """

    names: tuple[str, ...] = ()
    metavar: str | None = None
    parse: Callable[[str], Any] | None = None
    min: int | None = None
    max: int | None = None
    shown: str | None = None
    help: str = ""
    panel: str | None = None


@dataclass(frozen=True, slots=True)
class Prefix:
    """Puts *name*, like ``channel-``, before the names of a dataclass's options, and *help_text* before their help."""

    name: str = ""
    help_text: str = ""


Yes = Annotated[bool, Spec(names=("--yes", "-y"), help="Do not ask.")]
By = Annotated[str | None, Spec(metavar="WHO", help="Who does it, for 'fairqueue audit'. Default: the role.")]
Page = Annotated[int, Spec(min=1, max=99_999, help="At most so many.")]
Id = Annotated[int, Spec(metavar="ID", min=1)]
Ids = Annotated[list[int], Spec(metavar="ID...", min=1)]
AnyIds = Annotated[list[int] | None, Spec(metavar="ID...", min=1)]
Conf = Annotated[
    list[str] | None,
    Spec(
        metavar="NAME=VALUE",
        help="A setting of Spark, like spark.master=spark://host:7077; can be repeated. Default: local[2].",
    ),
]
Read = tuple[str | None, datetime | None, datetime | None]
"""What a report is made of: the path of an archive, or None for the database; then the options *since* and *until*."""

_TARGET = "Target"
_OUTPUT = "Output"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Values of the options that commands have in common. The page about the command line says where they come from.

    Attributes:
        database_url: postgresql://user@host/database, visible in lists of processes. Default: $FAIRQUEUE_DATABASE_URL.
        app: A Queue of the application; or an Engine, which names only the database. Default: $FAIRQUEUE_APP.
        app_dir: The folder that comes first on the module search path.
        schema: The installation's schema. Default: the application's, or the first installation on the search_path.
        queue: The queue. Default: the application's. If there is none, stats, channels, top, usage, doctor, report,
            metrics and dashboard take all queues, and commands for one queue take the only one.
        json: One JSON document instead of a table.
        debug: Show the traceback of a failure.
    """

    database_url: Annotated[str | None, Spec(metavar="URL", panel=_TARGET)] = None
    app: Annotated[str | None, Spec(metavar="MODULE:NAME", panel=_TARGET)] = None
    app_dir: Annotated[str, Spec(metavar="FOLDER", panel=_TARGET)] = "."
    schema: Annotated[str | None, Spec(panel=_TARGET)] = None
    queue: Annotated[str | None, Spec(panel=_TARGET)] = None
    json: Annotated[bool, Spec(panel=_OUTPUT)] = False
    debug: Annotated[bool, Spec(panel=_OUTPUT)] = False


def choice(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"{text!r} is none of {', '.join(words)}")
        return text

    return parse


def summary(function: Callable[..., Any]) -> str:
    return _SECTION.sub("", inspect.getdoc(function) or "")


class Parameter:
    """A parameter of a command: an argument, an option, or a dataclass of options."""

    def __init__(self, given: inspect.Parameter, texts: dict[str, str]) -> None:
        self.name = given.name
        kind, marks = _unwrapped(given.annotation)
        self._group = kind if isinstance(kind, type) and is_dataclass(kind) else None
        spec = _spec(marks)
        prefix = next((mark for mark in marks if isinstance(mark, Prefix)), Prefix())
        self._prefix = prefix.name.replace("-", "_")
        if self._group is None:
            self.options = [_option(given, kind, spec, texts.get(given.name) or spec.help)]
        else:
            self.options = list(_of_fields(self._group, prefix))

    def take(self, given: dict[str, Any]) -> object:
        if self._group is None:
            return given.pop(self.name)
        return self._group(**{each.name: given.pop(self._prefix + each.name) for each in fields(self._group)})


def parameters(function: Callable[..., Any]) -> list[Parameter]:
    texts = _texts(function)
    signature = inspect.signature(function)
    return [Parameter(each, texts) for each in signature.parameters.values() if each.name != "options"]


def common(without: frozenset[str]) -> list[inspect.Parameter]:
    return [each for each in _of_fields(Options, Prefix()) if each.name not in without]


def _texts(documented: object) -> dict[str, str]:
    section = _SECTION.search(inspect.getdoc(documented) or "")
    found = _ENTRY.findall(section[1]) if section else []
    return {name: " ".join(text.split()) for name, text in found}


def _of_fields(kind: Any, prefix: Prefix) -> Iterator[inspect.Parameter]:
    hints, texts = get_type_hints(kind, include_extras=True), _texts(kind)
    for field in fields(kind):
        own, marks = _unwrapped(hints[field.name])
        spec, name = _spec(marks), field.name
        text = texts.get(name) or spec.help
        if prefix.name:
            names = spec.names or (_name(name),)
            spec = replace(spec, names=tuple(re.sub(r"--(no-)?", rf"--\1{prefix.name}", each) for each in names))
            name, text = prefix.name.replace("-", "_") + name, prefix.help_text + text[:1].lower() + text[1:]
        given = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.default)
        yield _option(given, own, spec, text)


def _unwrapped(annotation: Any) -> tuple[Any, list[Any]]:
    kind, *marks = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    return kind, marks


def _spec(marks: list[Any]) -> Spec:
    return next((mark for mark in marks if isinstance(mark, Spec)), Spec())


def _name(parameter: str) -> str:
    return "--" + parameter.rstrip("_").replace("_", "-")


def _option(given: inspect.Parameter, kind: Any, spec: Spec, text: str) -> inspect.Parameter:
    plain = _plain(kind)
    parse = spec.parse or (parse_duration if plain is timedelta else None)
    if isinstance(plain, type) and issubclass(plain, StrEnum):
        text = text.replace("{choices}", ", ".join(plain))
    declared: dict[str, Any] = {
        "metavar": spec.metavar or _METAVARS.get(plain),
        "help": text,
        "min": spec.min,
        "max": spec.max,
        "parser": parse and _parser(parse),
        "rich_help_panel": spec.panel,
    }
    if given.kind is inspect.Parameter.KEYWORD_ONLY:
        shown = spec.shown or given.default is not None
        option = typer.Option(*(spec.names or (_name(given.name),)), show_default=shown, **declared)
    else:
        option = typer.Argument(show_default=False, **declared)
    return given.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, option])


def _plain(kind: Any) -> Any:
    """Return the type of a single value: int for ``list[int] | None``."""
    while get_args(kind):
        kind = next(each for each in get_args(kind) if each is not NoneType)
    return kind


def _parser(parse: Callable[[str], P]) -> Callable[[str], P]:
    def parsed(words: str | P) -> P:
        try:
            # A default is passed as a value, not as text.
            return parse(words) if isinstance(words, str) else words
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error

    return parsed
