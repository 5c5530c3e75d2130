"""Test runs of an application, in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def pytest_said(folder: Path, *words: str, **environment: str) -> str:
    """Run pytest in a folder with the plugin, by its entry point, and no other; return what it says."""
    options = ["-q", "-p", "no:cacheprovider", "-p", "fairqueue", "-W", "error", "--rootdir", ".", "-c", os.devnull]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *(words or ["."])],
        cwd=folder,
        env=os.environ | environment | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return ended.stdout + ended.stderr
