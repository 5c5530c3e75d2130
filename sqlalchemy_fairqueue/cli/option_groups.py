"""Options that several commands share, declared once as the fields of a dataclass.

A command that takes a parameter of such a class has one option for each field, by the annotation of the field.
"""

from __future__ import annotations

import inspect
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from typer.models import OptionInfo


@dataclass(frozen=True, slots=True)
class Prefix:
    """Annotation of a group whose options have other names in a command.

    Attributes:
        name: The beginning of the names, like ``channel-``.
        help_text: The beginning of the help.
    """

    name: str
    help_text: str


class OptionGroup:
    """The options of one parameter of a command.

    Args:
        kind: A dataclass; its fields are annotated with options of typer, and have defaults.
        prefix: What the names of the options begin with.
    """

    def __init__(self, kind: type[Any], prefix: Prefix | None = None) -> None:
        self._kind = kind
        self._prefix = prefix

    @staticmethod
    def of(annotation: object) -> OptionGroup | None:
        """The group of a parameter with this annotation; None: it is an option by itself."""
        kind, *marks = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
        prefixes = [mark for mark in marks if isinstance(mark, Prefix)]
        return OptionGroup(kind, *prefixes) if isinstance(kind, type) and is_dataclass(kind) else None

    def parameters(self) -> Iterator[inspect.Parameter]:
        """The options, as parameters for typer."""
        hints = get_type_hints(self._kind, include_extras=True)
        for field in fields(self._kind):
            yield inspect.Parameter(
                self._name(field.name),
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=self._prefixed(hints[field.name]),
            )

    def take(self, given: dict[str, Any]) -> object:
        """Take the values of the options out of all that a command was given."""
        values: Mapping[str, Any] = {field.name: given.pop(self._name(field.name)) for field in fields(self._kind)}
        return self._kind(**values)

    def _name(self, field: str) -> str:
        return field if self._prefix is None else self._prefix.name.replace("-", "_") + field

    def _prefixed(self, annotation: Any) -> Any:
        prefix = self._prefix
        if prefix is None:
            return annotation
        kind, declared = get_args(annotation)
        option: OptionInfo = copy(declared)
        # In an annotation, typer keeps the first name of an option as its default.
        option.default, *others = (
            f"--no-{prefix.name}{name[5:]}" if name.startswith("--no-") else f"--{prefix.name}{name[2:]}"
            for name in (declared.default, *(declared.param_decls or ()))
        )
        option.param_decls = others
        text = option.help or ""
        option.help = prefix.help_text + text[:1].lower() + text[1:]
        return Annotated[kind, option]
