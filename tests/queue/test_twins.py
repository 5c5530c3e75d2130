"""Every call that is answered at once has an awaited twin with the same arguments."""

import inspect

import pytest

from sqlalchemy_fairqueue import Queue

_RECORDS_OR_DECLARES = {
    "enqueue", "group", "handler", "handlers", "job", "middleware", "on_start", "on_stop", "periodic",
    "periodic_schedules",
}  # fmt: skip
_NAMES = sorted(name for name in dir(Queue) if not name.startswith("_"))
_TWINS = [name for name in _NAMES if f"a{name}" in _NAMES]


def test_which_have_one() -> None:
    """All but those that only record on a session, or declare what the code has."""
    awaited = {f"a{name}" for name in _TWINS}
    assert {name for name in _NAMES if name not in _TWINS and name not in awaited} == _RECORDS_OR_DECLARES


@pytest.mark.parametrize("name", _TWINS)
def test_its_arguments(name: str) -> None:
    """The twin takes the same arguments, in the same order, with the same defaults."""
    plain, awaited = (inspect.signature(getattr(Queue, one)) for one in (name, f"a{name}"))
    assert inspect.iscoroutinefunction(getattr(Queue, f"a{name}"))
    assert [(one.name, one.kind, one.default) for one in plain.parameters.values()] == [
        (one.name, one.kind, one.default) for one in awaited.parameters.values()
    ]
