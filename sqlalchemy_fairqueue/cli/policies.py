"""Makes command-line options, table rows and JSON documents from the definitions of policies and settings."""

# No ``from __future__ import annotations``: the program reads the annotations when it starts.
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, TypeVar

from sqlalchemy_fairqueue import ChannelPolicy, Rate
from sqlalchemy_fairqueue.cli.errors import usage_error
from sqlalchemy_fairqueue.cli.options import Spec
from sqlalchemy_fairqueue.values.fields import Count, Definition, Duration, RateOf
from sqlalchemy_fairqueue.values.policies import POLICY
from sqlalchemy_fairqueue.values.settings import SETTINGS, DurationByKind, Flag, Name, Names, PolicyOf, QueueSettings

_BURST = "burst"


def _field(words: str) -> str:
    name = words.strip().lower().replace("-", "_")
    if name not in {*POLICY, "all"}:
        raise ValueError(f"{words!r} is no field of a policy; give {', '.join(POLICY)} or all")
    return name


Reset = Annotated[
    list[str] | None,
    Spec(
        parse=_field,
        metavar="FIELD",
        help=f"The plan decides this field again: {', '.join(POLICY)} or all. Repeatable.",
    ),
]


def check_contradiction(name: str, *, given: bool, removed: bool) -> None:
    if given and removed:
        option = name.replace("_", "-")
        raise usage_error(f"--{option} and --no-{option} contradict each other; give one of them")


class FieldOptions:
    """The base of dataclasses of options that change fields of policies or settings; *definitions* has the fields."""

    definitions: ClassVar[Mapping[str, Definition]]

    def changes(self, prefix: str = "") -> dict[str, Any]:
        """Return new values by field; if options contradict, raise CommandError, with *prefix* before their names."""
        changes: dict[str, Any] = {}
        for name, definition in self.definitions.items():
            given = _given(getattr(self, name, None))
            removed = getattr(self, f"no_{name}", False)
            check_contradiction(
                prefix + _option(name, definition), given=bool(given) and given != [None], removed=removed
            )
            if removed:
                changes[name] = None
            elif given:
                changes[name] = _together(definition, given)
            if isinstance(definition, RateOf):
                _add_burst(changes, name, getattr(self, _BURST), prefix)
        return changes


def _given(option: Any) -> list[Any]:
    """Return the values that the user gave for an option. A value is None if the user gave the word ``none``."""
    return [option] if isinstance(option, bool) else [value for (value,) in option or ()]


def _together(definition: Definition, given: list[Any]) -> Any:
    """Combine the values of an option that was given several times."""
    match definition:
        case Names() if None not in given:
            return [name for names in given for name in names]
        case DurationByKind():
            times = [one if isinstance(one, dict) else {None: one} for one in given]
            return {kind: time for one in times for kind, time in one.items()}
        case _:
            return given[-1]


def _add_burst(changes: dict[str, Any], name: str, burst: int | None, prefix: str) -> None:
    if burst is None:
        return
    if changes.get(name) is None:
        raise usage_error(
            f"--{prefix}burst {burst} has no rate; give both, such as --{prefix}rate 50/s --{prefix}burst {burst}"
        )
    changes[name] = replace(changes[name], burst=burst)


def _option(name: str, definition: Definition) -> str:
    return name.removesuffix("s") if isinstance(definition, Names) else name


OptionsT = TypeVar("OptionsT", bound=FieldOptions)


def with_options(definitions: Mapping[str, Definition]) -> Callable[[type[OptionsT]], type[OptionsT]]:
    def decorated(kind: type[OptionsT]) -> type[OptionsT]:
        kind.definitions = definitions
        options = [one for name, definition in definitions.items() for one in _options(name, definition)]
        kind.__annotations__ = {name: Annotated[annotation, spec] for name, annotation, spec in options}
        for name, annotation, _ in options:
            setattr(kind, name, False if annotation is bool else None)
        return dataclass(frozen=True, kw_only=True)(kind)

    return decorated


def _options(name: str, definition: Definition) -> Iterator[tuple[str, Any, Spec]]:
    if isinstance(definition, PolicyOf):
        return
    option = _option(name, definition).replace("_", "-")
    words = definition.help + (f" none: {definition.none}." if definition.none else "")
    if isinstance(definition, Flag):
        yield name, bool | None, Spec(names=(f"--{option}/--no-{option}",), help=words)
        return
    if isinstance(definition, (DurationByKind, Names)):
        words += " Repeatable."
    spec = Spec(
        names=(f"--{option}",),
        parse=lambda words: (definition.parsed(words),),
        metavar=definition.metavar,
        help=words,
    )
    yield name, list[Any] | None, spec
    if isinstance(definition, RateOf):
        yield _BURST, int | None, Spec(help="Messages that may come in a row before that rate applies.")
    if isinstance(definition, (Count, Name, Names)) and definition.none:
        yield f"no_{name}", bool, Spec(names=(f"--no-{option}",), help=f"The same as --{option} none.")


@with_options(POLICY)
class PolicyOptions(FieldOptions):
    """Options that change the fields of a policy, the same in each command that sets a policy."""


@with_options(SETTINGS)
class QueueOptions(FieldOptions):
    """Options that change the settings of a queue."""


def field_rows(definitions: Mapping[str, Definition], values: object) -> list[tuple[str, object]]:
    return [
        (name.replace("_", " "), definition.shown(getattr(values, name)))
        for name, definition in definitions.items()
        if not isinstance(definition, PolicyOf)
    ]


def policy_rows(policy: ChannelPolicy) -> list[tuple[str, object]]:
    return field_rows(POLICY, policy)


def policy_document(policy: ChannelPolicy) -> dict[str, object]:
    return {name: plain(getattr(policy, name)) for name in POLICY}


def settings_document(settings: QueueSettings) -> dict[str, object]:
    document = {
        f"{name}_seconds" if isinstance(definition, Duration) else name: plain(getattr(settings, name))
        for name, definition in SETTINGS.items()
    }
    return document | {"dead_letter_retention_seconds_by_kind": dict(settings.dead_letter_retention_by_kind)}


def plain(value: object) -> object:
    match value:
        case Rate():
            return {"interval_seconds": value.interval.total_seconds(), "burst": value.burst, "of": value.of}
        case ChannelPolicy():
            return policy_document(value)
        case tuple():
            return list(value)
        case _:
            return value
