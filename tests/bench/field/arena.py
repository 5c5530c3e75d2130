"""Arenas of contestants: a fresh database for each run, two worker processes, a producer process and the meter.

A process speaks for its contestant, line by line: see `tests.bench.peers.protocol`.
"""

import contextlib
import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any, Final

from tests.bench.field.contestants import Contestant, environment
from tests.bench.meter import Reading, read_meter
from tests.bench.stage import Stage, connected

WORKERS: Final = 2
"""Processes that handle messages."""
SLOTS: Final = 8
"""Messages that each of them handles at once."""
_LOOK: Final = 0.02
_PATIENCE: Final = 60.0
_ANSWER: Final = 120.0
_LOAD: Final = 20_000
"""Messages a command: its answer must come in time."""


class Failed(Exception):
    """A contestant's script failed, or did not answer in time."""


class Script:
    """A process that speaks for a contestant."""

    def __init__(self, process: subprocess.Popen[str], complaints: IO[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._complaints = process, complaints
        self._stdin, self._stdout = process.stdin, process.stdout

    def tell(self, do: str, **command: object) -> None:
        """Send a command, whose answer `answer` waits for."""
        # A process that has ended tells why when it is asked for the answer.
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(json.dumps({"do": do, **command}) + "\n")
            self._stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Return the answer to the oldest command that has none yet.

        Raises:
            Failed: It failed, or none came for two minutes.
        """
        # A process that hangs is killed, which ends the reading.
        killer = threading.Timer(_ANSWER, self._process.kill)
        killer.start()
        line = self._stdout.readline()
        killer.cancel()
        answer: dict[str, Any] = json.loads(line) if line else {"error": self._last_words()}
        if "error" in answer:
            raise Failed(answer["error"].strip())
        return answer

    def ask(self, do: str, **command: object) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self.tell(do, **command)
        return self.answer()

    def _last_words(self) -> str:
        self._process.wait(10)
        self._complaints.seek(0)
        return f"it ended or hung: {self._complaints.read()[-600:]}"


@contextlib.contextmanager
def speaking(python: str, contestant: Contestant, url: str) -> Iterator[Script]:
    """Run a script for the block."""
    command = [python, "-m", "tests.bench.peers", contestant.script, url, *contestant.arguments]
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryFile("w+") as complaints,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=complaints, text=True, env=environment()) as process,
    ):
        script = Script(process, complaints)
        try:
            yield script
        finally:
            script.tell("quit")
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


@dataclass(slots=True)
class Seen:
    """What a group of workers did.

    Attributes:
        started: When each message's handler was called.
        used: What the server did from before the workers connected until after they left.
        client_cpu: Seconds of processor time that their processes used from their start of work on.
    """

    started: dict[int, float] = field(default_factory=dict)
    used: Reading = field(default_factory=Reading)
    client_cpu: float = 0.0

    @property
    def begin(self) -> float:
        """When the first message was handled."""
        return min(self.started.values())

    @property
    def seconds(self) -> float:
        """The time from the first handler to the last."""
        return max(max(self.started.values()) - self.begin, 1e-6)


class Arena:
    """One contestant's database for one workload."""

    def __init__(self, url: str, contestant: Contestant, python: str, producer: Script) -> None:
        self._url, self._contestant, self._python = url, contestant, python
        self.enqueue, self.transact = partial(producer.ask, "enqueue"), partial(producer.ask, "transact")

    def run(self, sql: str) -> None:
        """Run a statement in the database."""
        with connected(self._url) as wire:
            wire.run(sql)

    def worth(self, seconds: float) -> int:
        """Return how many messages keep the contestant busy for so long, roughly."""
        return max(100, int(self._contestant.speed * seconds))

    def load(self, tenants: list[str], *, first: int = 0) -> None:
        """Add a message for each of *tenants*, numbered from *first*, in bulk, and tidy up."""
        self.load_numbered([(tenant, first + number) for number, tenant in enumerate(tenants)])

    def load_numbered(self, messages: list[tuple[str, int]]) -> None:
        """Add messages, each a tenant and its number, in bulk, and tidy up."""
        for start in range(0, len(messages), _LOAD):
            some = messages[start : start + _LOAD]
            tenants, numbers = [tenant for tenant, _ in some], [number for _, number in some]
            self.enqueue(tenants=tenants, numbers=numbers, bulk=True, pace=[])
        self.run("vacuum analyze")

    @contextlib.contextmanager
    def workers(self, seen: Seen, *, seconds: float = 0.0, slots: int = SLOTS) -> Iterator[Callable[[int], None]]:
        """Let two processes handle messages in the block; *seen* is filled at its end.

        Args:
            seen: Where to tell what they did.
            seconds: How long a handler takes.
            slots: Messages that each handles at once; with one of them, nothing is taken in batches either.

        Yields:
            A function that returns when they have been given so many messages.

        Raises:
            Failed: One of them failed, or a message was handled twice.
        """
        with connected(self._url) as wire:
            before = read_meter(wire)
            with contextlib.ExitStack() as stack:
                script = (speaking(self._python, self._contestant, self._url) for _ in range(WORKERS))
                scripts = [stack.enter_context(one) for one in script]
                _all(scripts, "open")
                began = _all(scripts, "work", slots=slots, seconds=seconds)
                yield lambda enough: _wait(scripts, enough)
                ended = _all(scripts, "stop")
            seen.used = read_meter(wire).since(before)
        seen.client_cpu = sum(end["cpu"] - start["cpu"] for start, end in zip(began, ended, strict=True))
        for one in ended:
            if twice := seen.started.keys() & set(one["numbers"]):
                raise Failed(f"{len(twice)} messages were handled twice, {min(twice)} among them")
            seen.started |= dict(zip(one["numbers"], one["started"], strict=True))


def _wait(scripts: list[Script], enough: int) -> None:
    last, since = -1, time.monotonic()
    while (count := sum(one["count"] for one in _all(scripts, "count"))) < enough:
        if count > last:
            last, since = count, time.monotonic()
        elif time.monotonic() > since + _PATIENCE:
            raise Failed(f"{count} of {enough} messages were delivered, and then none for {_PATIENCE:.0f} s")
        # It only watches: when each message was taken is noted by whoever took it.
        time.sleep(_LOOK)


@contextlib.contextmanager
def entered(stage: Stage, contestant: Contestant, python: str, prepared: str) -> Iterator[Arena]:
    """Make a contestant's arena of a database with its tables, for the block."""
    name = stage.create(f"{prepared}_round", f"template {prepared}")
    try:
        with speaking(python, contestant, stage.conninfo(name)) as producer:
            producer.ask("open")
            yield Arena(stage.conninfo(name), contestant, python, producer)
    finally:
        stage.drop(name)


def prepare(stage: Stage, contestant: Contestant, python: str) -> str:
    """Make a database with a contestant's tables, and return its name.

    Raises:
        Failed: Its script could not.
    """
    name = stage.create(f"{stage.run}_field_{contestant.name}")
    with speaking(python, contestant, stage.conninfo(name)) as script:
        script.ask("prepare")
    return name


def _all(scripts: list[Script], do: str, **command: object) -> list[dict[str, Any]]:
    for script in scripts:
        script.tell(do, **command)
    return [script.answer() for script in scripts]
