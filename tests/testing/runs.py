"""Test runs of an application, in a process of their own."""

import os
from pathlib import Path

from tests.fixtures.forks import run_fork

_ROOT = Path(__file__).parents[2]


def pytest_said(folder: Path, *words: str, **environment: str) -> str:
    """Run pytest in a folder with the plugin, by its entry point, and no other; return what it says."""
    options = ["-q", "-p", "no:cacheprovider", "-p", "fairqueue", "-W", "error", "--rootdir", ".", "-c", os.devnull]
    variables = os.environ | environment | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(_ROOT)}
    ended = run_fork(["python", "-m", "pytest", *options, *(words or ["."])], folder, variables, 300)
    return ended.stdout + ended.stderr
