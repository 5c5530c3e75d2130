"""The program of the README runs as it is pasted."""

import re
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import DOCS

_README = DOCS.parent / "README.md"


def test_the_program_runs(tmp_path: Path) -> None:
    """Pasted into a file, it serves alice's two files in turn with bob's five."""
    [program] = re.findall(r"^```python\n(.*?)^```", _README.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "fair.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "fair.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    served = done.stdout.split("\n")[:-1]
    assert sorted(served) == sorted([*(f"bob {file}" for file in range(1, 6)), "alice 1", "alice 2"])
    assert served.index("alice 2") < 4
