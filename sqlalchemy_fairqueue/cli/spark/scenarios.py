"""Scenarios of a replay, read from a TOML file."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from sqlalchemy_fairqueue.cli.errors import not_found_error, usage_error
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.simulation.scenarios import Scenario, check_scenarios
from sqlalchemy_fairqueue.values.policies import ChannelPolicy

if TYPE_CHECKING:
    from pathlib import Path

_SCENARIO_FIELDS = ("name", "discipline", "fair_by", "workers", "batch", "max_concurrency", "defaults", "policies")
_POLICY_FIELDS = ("max_concurrency", "rate", "weight")


def scenarios_in(path: Path) -> list[Scenario]:
    """The scenarios of a file: a table ``[[scenario]]`` each, with the attributes of Scenario and ChannelPolicy.

    Rates are text, as on the command line: ``rate = "10/s"``.

    Raises:
        CommandError: The file cannot be read, is not TOML, or holds a scenario that cannot be replayed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise not_found_error(f"the scenarios in {str(path)!r} cannot be read: {error}") from error
    try:
        document = tomllib.loads(text)
        _check_names("the file", document, ("scenario",))
        tables = document.get("scenario", [])
        if not isinstance(tables, list):
            raise ValueError(f"scenario is {tables!r:.80}; give a table [[scenario]] for each")  # noqa: TRY004, TRY301
        found = [_scenario(f"scenario {number}", one) for number, one in enumerate(tables, start=1)]
        check_scenarios(found)
    except (tomllib.TOMLDecodeError, InvalidArgument, ValueError) as error:
        raise usage_error(f"the scenarios in {str(path)!r} cannot be replayed: {error}") from error
    return found


def _scenario(where: str, given: Any) -> Scenario:
    _check_names(where, given, _SCENARIO_FIELDS)
    if "name" not in given:
        raise ValueError(f"{where} has no name; give it one")
    values = dict(given)
    if "defaults" in values:
        values["defaults"] = _policy(f"defaults of {where}", values["defaults"])
    policies = values.get("policies", {})
    if not isinstance(policies, dict):
        raise ValueError(f"policies of {where} is {policies!r:.80}; give a table with a policy a channel")  # noqa: TRY004 - of the file
    values["policies"] = {name: _policy(f"policy {name!r} of {where}", one) for name, one in policies.items()}
    return Scenario(**values)


def _policy(where: str, given: Any) -> ChannelPolicy:
    _check_names(where, given, _POLICY_FIELDS)
    return ChannelPolicy(**given)


def _check_names(where: str, given: Any, known: tuple[str, ...]) -> None:
    if not isinstance(given, dict):
        raise ValueError(f"{where} is {given!r:.80}; give a table with {', '.join(known)}")  # noqa: TRY004 - of the file
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ValueError(f"{where} has {unknown[0]!r}; it may have {', '.join(known)}")
