"""A Java is found on every machine, and a session starts without any."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sqlalchemy_fairqueue.spark.java import JavaMissing, java_home, java_version
from tests.fixtures.programs import link_programs

_FAKE = "#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n"
_SESSION = """
import os
from sqlalchemy_fairqueue.spark.java import session
with session("no Java here", **{"spark.master": "local[1]", "spark.driver.memory": "512m"}) as spark:
    print(os.environ["JAVA_HOME"], spark.range(3).count(), spark.conf.get("spark.sql.session.timeZone"))
"""


def _java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(_FAKE.format(version=version))
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(("text", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("eleven", 0)])
def test_versions_are_read_in_both_forms(tmp_path: Path, text: str, major: int) -> None:
    """Old Javas call themselves 1.8; what says nothing is version 0."""
    assert java_version(_java(tmp_path, text) / "bin" / "java") == major


def test_java_home_goes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java that is good enough is taken from JAVA_HOME, then from the PATH. Without any, the error says what there
    is, and what to install.
    """
    named, on_path = _java(tmp_path / "named", "17.0.1"), _java(tmp_path / "on_path", "21.0.1")
    monkeypatch.setenv("PATH", f"{on_path / 'bin'}{os.pathsep}/bin{os.pathsep}/usr/bin")
    monkeypatch.setenv("JAVA_HOME", str(named))
    assert java_home() == named
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "old", "1.8.0")))
    assert java_home() == on_path
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(JavaMissing, match=r"java is version 8\); install sqlalchemy-fairqueue\[spark\]"):
        java_home()


@pytest.mark.whole
def test_a_session_starts_on_a_machine_without_java(tmp_path: Path) -> None:
    """The runtime of the wheel is used, without the option that it does not know."""
    link_programs(tmp_path, without="java")
    environment = {name: value for name, value in os.environ.items() if name not in {"JAVA_HOME", "SPARK_HOME"}}
    ran = subprocess.run(
        [sys.executable, "-c", _SESSION],
        env=environment | {"PATH": str(tmp_path)},
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ran.returncode == 0, ran.stderr
    home, count, zone = ran.stdout.split()[-3:]
    assert (Path(home).name.startswith("fairqueue-java-"), count, zone) == (True, "3", "UTC")
    assert not Path(home).exists()
