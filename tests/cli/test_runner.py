import re
import signal
import subprocess
import sys
from importlib import metadata

import pytest
from sqlalchemy import Engine

from tests.cli.conftest import PROGRAM, Cli, Start
from tests.cli.messages import enqueue
from tests.cli.processes import ended, outcome
from tests.fixtures.connections import Connect
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.fixtures.waits import Waits

_WAITS = (
    "select pid from pg_stat_activity where datname = current_database() and application_name = 'fairqueue' "
    "and wait_event_type = 'Lock'"
)

_WITHOUT = """
import sys
sys.modules[{missing!r}] = None
from sqlalchemy_fairqueue.cli.__main__ import run
run()
"""


def _python(source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", source, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def test_command_lines_that_cannot_be_used(bare_cli: Cli) -> None:
    """A bad command line is told on stderr with where to read on, as a document too if one is asked for, status 2."""
    for words, complaint in {
        ("dead", "nonsense"): "No such command",
        ("health",): "No such command 'health'. Did you mean 'doctor'?",
        ("stats", "--nonsense"): "No such option",
        ("top", "--sort", "beauty"): "beauty",
        ("top", "--interval", "soon"): "'soon' is no duration",
        ("channels", "--limit", "0"): "--limit",
    }.items():
        found = bare_cli(*words)
        assert (found.status, found.out) == (2, "")
        assert complaint in found.err
        assert "--help' tells more" in found.err
        asked = bare_cli(*words, "--json")
        assert (asked.status, asked.error["kind"], asked.error["status"]) == (2, "usage", 2)


def test_help(bare_cli: Cli) -> None:
    """Each group tells its commands, on --help with status 0 and without a command with status 2."""
    for group in ([], ["dead"], ["configure"], ["history"]):
        found = bare_cli(*group, "--help")
        assert "<bool>" not in found.out
        assert (found.status, found.err) == (0, "")
        assert "Commands" in found.out
        assert bare_cli(*group).status == 2


def test_version(bare_cli: Cli) -> None:
    """The version of the library is told without a command."""
    found = bare_cli("--version")
    assert (found.status, found.out) == (0, f"sqlalchemy-fairqueue {metadata.version('sqlalchemy-fairqueue')}\n")


def test_debug(cli: Cli, engine: Engine) -> None:
    """--debug adds the traceback of whatever failed."""
    enqueue(engine, "a")

    found = cli("pause", "x", "--debug")
    assert found.status == 1
    assert found.err.startswith("Traceback (most recent call last):")
    assert found.err.splitlines()[-1].startswith("fairqueue: queue 'documents' has no channel 'x'")


def test_a_mistake_of_ours(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever nobody thought of is one line too, and its status tells it from the others."""
    monkeypatch.setattr("sqlalchemy_fairqueue.cli.installation.Installation.queue_names", lambda _: 1 / 0)

    found = cli("stats", "--json")
    assert (found.status, found.error["kind"]) == (70, "failed")
    assert found.err == "fairqueue: ZeroDivisionError: division by zero; --debug shows where it comes from\n"


def test_ctrl_c(start: Start, engine: Engine, connect: Connect, waits: Waits) -> None:
    """Ctrl-C ends a command that waits for the database, without a word and with status 130."""
    enqueue(engine, "a")
    connect().exec_driver_sql("lock table fq_queue in access exclusive mode")

    with start("pause", "--queue", "documents") as process:
        waits.until(_WAITS)
        process.send_signal(signal.SIGINT)
        found = ended(process)

    assert (found.status, found.out, found.err) == (130, "", "")


def test_a_connection_that_is_lost(
    start: Start, engine: Engine, connect: Connect, waits: Waits, database: Database
) -> None:
    """A server that ends the connection on the way is away: status 3."""
    enqueue(engine, "a")
    connect().exec_driver_sql("lock table fq_queue in access exclusive mode")

    with start("pause", "--queue", "documents", "--json") as process:
        waits.until(_WAITS)
        database.execute(f"select pg_terminate_backend(pid) from ({_WAITS}) waiting")
        found = ended(process)

    assert (found.status, found.error["kind"]) == (3, "database_away")
    assert "cannot reach postgresql://" in found.err
    assert f"/{database.name}" in found.err
    assert ": terminating connection due to administrator command" in found.err


def test_a_broken_pipe(start: Start, engine: Engine) -> None:
    """Whoever stops reading is left in peace: no word, status 141."""
    # More than a pipe holds.
    enqueue(engine, *(f"{number:05}{'x' * 400}" for number in range(200)))

    with start("channels", "--limit", "200", program=PROGRAM) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("channel")
        process.stdout.close()
        assert process.wait(PATIENCE.total_seconds()) == 141
        assert process.stderr.read() == ""


def test_a_narrow_locale(start: Start, cli: Cli, engine: Engine) -> None:
    """Output in a locale without a character for a name still comes, with an escape in its place."""
    enqueue(engine, "köln")

    found = outcome(start("channels", program=PROGRAM, PYTHONIOENCODING="ascii"))
    assert (found.status, found.err) == (0, "")
    assert r"k\xf6ln" in found.out
    found = cli("channels", "--json")
    assert (found.out.isascii(), found.document["channels"][0]["channel"]) == (True, "köln")


def test_without_the_extra() -> None:
    """Without typer or rich the command says which extra to install."""
    for missing in ("typer", "rich"):
        found = _python(_WITHOUT.format(missing=missing))
        assert found.returncode == 1
        assert "pip install 'sqlalchemy-fairqueue[cli]'" in found.stderr
        assert "Traceback" not in found.stderr


def test_without_the_extra_of_spark(start: Start) -> None:
    """Without Spark, or what its data sources need, a command that uses it says which extra to install."""
    without = [sys.executable, "-c", _WITHOUT.format(missing="pyarrow")]
    found = outcome(start("spark", "archive", "folder", "--json", program=without))

    assert (found.status, found.error["kind"]) == (2, "usage"), found.err
    assert found.err.startswith("fairqueue: Spark cannot be used: ")
    assert "; pip install 'sqlalchemy-fairqueue[spark]'" in found.err


def test_the_library_does_without_it() -> None:
    """Importing the library loads neither the command line nor what that needs."""
    source = (
        "import sys\nimport sqlalchemy_fairqueue\n"
        "print([name for name in sys.modules if name.startswith(('typer', 'rich', 'sqlalchemy_fairqueue.cli'))])"
    )
    assert _python(source).stdout == "[]\n"


_IMPORTED = """
import sys
from sqlalchemy_fairqueue.cli.program import main
for words in sys.argv[1:]:
    main(words.split())
    print(*sys.modules, file=sys.stderr)
"""


def test_a_command_imports_what_it_uses() -> None:
    """Neither the version nor a command waits for what others need."""
    unused = {
        "--version": r"sqlalchemy|psycopg|rich|sqlalchemy_fairqueue\.(?!cli|first_process|watching)\w+",
        "stats --help": r"psycopg|pyspark|sqlalchemy_fairqueue\.(worker|dashboard|reporting|spark)",
        "messages list --help": r"sqlalchemy_fairqueue\.cli\.(worker|report|serving|upkeep|top)",
    }
    found = _python(_IMPORTED, *unused)
    for names, of_others in zip(found.stderr.splitlines(), unused.values(), strict=True):
        assert [name for name in names.split() if re.fullmatch(of_others, name)] == []
