"""stdout holds results alone, whatever the application does; streams that are closed or full are told in a line."""

import re
import shlex
from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from tests.cli.conftest import PROGRAM, Cli, Start
from tests.cli.messages import enqueue
from tests.cli.processes import Outcome, ended, outcome
from tests.cli.shops import QUEUE, Shop

_PRINTS = (
    "print('noise of print')",
    "sys.stdout.write('noise of stdout'); sys.stdout.flush()",
    "sys.__stdout__.write('noise of the first stdout\\n'); sys.__stdout__.flush()",
    "os.write(1, b'noise of the descriptor\\n')",
    "ctypes.CDLL(None).puts(b'noise of C')",
    "subprocess.run([sys.executable, '-Sc', 'print(\"noise of a subprocess\")'], check=True)",
    "logging.basicConfig(stream=sys.stdout, level=logging.DEBUG); logging.warning('noise of a log')",
    "atexit.register(lambda: (print('noise of the exit'), os.write(1, b'noise of its descriptor\\n')))",
    "event.listen(Engine, 'do_connect', lambda *_: print('noise of the engine'))",
    "event.listen(Engine, 'close', lambda *_: print('noise of its last connection', flush=True))",
)
_THREAD = "threading.Thread(target=lambda: [print('noise of a thread') for _ in iter(int, 1)], daemon=1).start()"
_NOISE = {
    "all": "; ".join([*_PRINTS, _THREAD]),
    "another stdout": "sys.stdout = open(1, 'w', closefd=False); print('noise of another stdout', flush=True)",
    "a closed stdout": "print('noise of a closed stdout'); sys.stdout.close()",
}
_IMPORTS = (
    "import atexit, ctypes, logging, os, subprocess, sys, threading\nfrom sqlalchemy import Engine, event\n" + QUEUE
)
_ENDS = (
    "sys.exit(0)",
    "sys.exit('no settings')",
    "1 / 0",
    "import no_such_module",
    "raise BaseException('odd')",
    "def __getattr__(name): sys.exit(0)\ndel queue",
    "def __getattr__(name): 1 / 0\ndel queue",
)


@pytest.mark.parametrize("noise", _NOISE.values(), ids=_NOISE)
def test_an_application_that_prints(start: Start, engine: Engine, module: Callable[[str], str], noise: str) -> None:
    """What an application prints, in whatever way, goes to stderr, and stdout has one document."""
    enqueue(engine, "customer-7")
    name = module(f"{_IMPORTS}{noise}\n")

    # Its own end, not that of a fork: functions at the exit of C and Python print, too.
    found = outcome(start("stats", "--json", "--app", f"{name}:queue", program=PROGRAM))

    assert found.status == 0, found.err
    assert [queue["queue"] for queue in found.document["queues"]] == ["documents"]
    assert [what for what in re.findall(r"noise of [\w ]+", noise) if what not in found.err] == []


def test_tables_and_files(start: Start, engine: Engine, module: Callable[[str], str]) -> None:
    """Tables and files on stdout are kept apart as documents are."""
    enqueue(engine, "customer-7")
    name = module(f"{_IMPORTS}print('noise'); os.write(1, b'noise')\n")
    for words in ("stats", "top --once", "metrics --print alerts"):
        found = outcome(start(*words.split(), "--app", f"{name}:queue"))
        assert found.status == 0, found.err
        assert found.out
        assert "noise" not in found.out


@pytest.mark.parametrize("words", [["stats", "--app"], ["worker"]])
def test_an_application_that_cannot_be_loaded(bare_cli: Cli, module: Callable[[str], str], words: list[str]) -> None:
    """A module that fails, or ends the process, is a command line that cannot be used, and is named."""
    for end in _ENDS:
        name = module(f"{_IMPORTS}{end}\n")
        found = bare_cli(*words, f"{name}:queue", "--json")
        assert (found.status, found.error["kind"], found.error["status"]) == (2, "usage", 2), end
        assert f"module {name} cannot be imported: " in found.error["message"]


def test_an_application_that_ends_the_process_later(bare_cli: Cli, module: Callable[[str], str]) -> None:
    """Where it does so while it connects, that is a failure with a document, and no success without one."""
    name = module(
        f"{_IMPORTS}from sqlalchemy import create_engine\n"
        "engine = create_engine('postgresql+psycopg://', creator=lambda: sys.exit(0))\n"
    )

    found = bare_cli("stats", "--app", f"{name}:engine", "--json")

    assert (found.status, found.error["kind"]) == (70, "failed")


def test_the_document_of_a_worker(shop: Shop, engine: Engine) -> None:
    """A worker's stdout is that of its handlers, and with --json its document's alone."""
    source = QUEUE + "@queue.handler('parse')\ndef parse(delivery):\n    print('noise')\n"
    outcomes = []
    for words in ([], ["--json"]):
        enqueue(engine, "customer-7")
        with shop.worker(source, "--drain", *words) as process:
            outcomes.append(ended(process))
    plain, asked = outcomes
    assert (plain.status, "noise" in plain.out, "noise" in plain.err) == (0, True, False)
    assert (asked.status, asked.document["queues"], "noise" in asked.err) == (0, ["documents"], True)


def _run(start: Start, line: str, words: str) -> Outcome:
    if "&-" not in line:
        full = [number for number, word in ((1, " >/dev/full"), (2, "2>/dev/full")) if word in line]
        return outcome(start(*words.split(), full=full))
    # A process of its own: what Python makes of a stream that is closed when it begins.
    return outcome(start("-c", line.format(program=shlex.join(PROGRAM), words=words), program=["bash"]))


@pytest.mark.parametrize(
    ("line", "words", "status"),
    [
        ("exec {program} {words} >&-", "stats", 74),
        ("exec {program} {words} <&- >&- 2>&-", "--version", 74),
        ("exec {program} {words} >/dev/full", "stats --json", 74),
        ("exec {program} {words} >/dev/full 2>/dev/full", "metrics --print alerts", 74),
        ("exec {program} {words} <&- >&- 2>&-", "no-command --json", 2),
        ("exec {program} {words} >/dev/full", "purge customer-7", 2),
    ],
)
def test_a_stdout_that_cannot_be_written(start: Start, engine: Engine, line: str, words: str, status: int) -> None:
    """A stdout that is closed or full is one line on stderr, if that can be written, and status 74; where a command
    fails before that, also for want of an answer to its question, this failure is the one that is told.
    """
    enqueue(engine, "customer-7")
    found = _run(start, line, words)
    assert (found.status, found.out) == (status, "")
    assert found.err.count("\n") == ("2>" not in line)
    assert found.err.startswith("fairqueue: stdout cannot be written: ") == (status == 74 and "2>" not in line)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{program} {words} 2>&-", "no-command --json"),
        ("{program} {words} 2>/dev/full", "stats --app no_such_module:queue --json"),
        ("{program} {words} <&-", "stats --json"),
    ],
)
def test_other_streams(start: Start, engine: Engine, line: str, words: str) -> None:
    """A stderr or stdin that cannot be used leaves the document and the status as they are."""
    enqueue(engine, "customer-7")
    found = _run(start, line, words)
    assert found.status == (2 if "no" in words else 0)
    assert bool(found.document)


def test_nobody_reads(start: Start, engine: Engine) -> None:
    """Where the reader of a pipe has gone before the first word, the status says it, and nothing else does."""
    enqueue(engine, "customer-7")
    for words in ("--help", "stats --json", "no-command --json"):
        with start(*words.split()) as process:
            assert process.stdout is not None
            process.stdout.close()
            assert process.stderr is not None
            told = process.stderr.read()
            assert process.wait(60) == 141, words
        assert ("Traceback" in told, "Exception" in told) == (False, False)
