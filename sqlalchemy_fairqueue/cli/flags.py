"""Commands and groups of commands whose help shows flags without a placeholder for a value."""

from typing import Any

from typer.core import TyperCommand, TyperGroup


class _Flags:
    def get_params(self, ctx: Any) -> list[Any]:
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in found:
            if getattr(one, "is_flag", False):
                one.metavar = ""
        return found


class Command(_Flags, TyperCommand):
    """A command whose help shows its flags, such as --yes, without a placeholder for a value."""


class Group(_Flags, TyperGroup):
    """A group of commands. The group's help shows options that take no value, such as --help, without a placeholder."""
