"""Pages that are applications: their files are written and their commands run, in the order in which they stand.

A code block whose first line is a comment with a file's name is that file. A block of the language ``console`` is run
by bash, line by line, and fails the test as a reader would notice it. A comment in front of a block says otherwise:

``<!-- not run -->``: for the reader's eyes, such as an installation.
``<!-- server -->``: a program that goes on until the page has ended.
``<!-- example -->``: an output that differs from run to run.

Blocks of nothing but Python programs run in forks of a process that has imported the library.

The port 8000 of a page becomes one that is free.

A block of the language ``text`` is what the commands before it print; a line of three dots stands for any lines.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy_fairqueue
from tests.fixtures.forks import run_fork
from tests.fixtures.ports import reserved_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

DOCS = Path(sqlalchemy_fairqueue.__file__).parents[1] / "docs"
_BLOCK = re.compile(r"^(?:<!-- ([\w ]+) -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ((?:[\w.-]+/)*(?:[\w-]+\.(?:py|ini|toml|sql|yaml)))\n")
_SECONDS = 100
# What imports little else than the library, which takes most of its seconds.
_FORKED = {"alembic", "fairqueue", "pytest", "python"}
_BASH = shutil.which("bash") or "bash"


@dataclass(frozen=True)
class Block:
    """A block of code, with the comment that stands in front of it."""

    comment: str
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The name of the file that the block is, if it is one."""
        found = _FILE.match(self.text)
        return found[1] if found else None


def blocks(page: Path) -> list[Block]:
    """The blocks of a page."""
    return [Block(comment, language, text) for comment, language, text in _BLOCK.findall(page.read_text())]


@dataclass
class Reader:
    """Somebody who follows a page in an empty folder.

    Attributes:
        folder: where the files are written and the commands run.
        environment: what the commands have besides the environment of the tests.
        output: what each block of commands has printed, the first first.
    """

    folder: Path
    environment: Mapping[str, str]
    output: list[str] = field(default_factory=list)
    _servers: list[subprocess.Popen[str]] = field(default_factory=list)
    _reservations: ExitStack = field(default_factory=ExitStack)

    def follow(self, page: Path) -> None:
        """Do what the page says, from its first block to its last."""
        port = str(self._reservations.enter_context(reserved_port()))
        for written in blocks(page):
            block = replace(written, text=written.text.replace("8000", port))
            if block.comment == "not run":
                continue
            if block.file is not None:
                file = self.folder / block.file
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(block.text)
            elif block.comment == "server":
                self._serve(block.text)
            elif block.language == "console":
                self.output.append(self.run(block.text))
            elif block.language == "text":
                assert block.comment == "example" or _is_said(block.text, self.output[-1]), self.output[-1]
            else:
                raise AssertionError(f"a block that is neither a file nor a command: {block.text}")

    def run(self, commands: str) -> str:
        """What the commands print; they must succeed."""
        lines = [shlex.split(line) for line in commands.splitlines()]
        if all(words[0] in _FORKED and "$" not in commands for words in lines):
            return "".join(self._fork(words) for words in lines)
        done = subprocess.run(
            [_BASH, "-euo", "pipefail", "-c", commands],
            cwd=self.folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        return self._said(commands, done)

    def _fork(self, words: Sequence[str]) -> str:
        return self._said(shlex.join(words), run_fork(words, self.folder, self._environment(), _SECONDS))

    def _said(self, commands: str, done: subprocess.CompletedProcess[str]) -> str:
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}\n{self._server_logs()}"
        return done.stdout

    def _server_logs(self) -> str:
        return "\n".join(f"{log.name}:\n{log.read_text()}" for log in sorted(self.folder.glob("server-*.log")))

    def _serve(self, command: str) -> None:
        with (self.folder / f"server-{len(self._servers)}.log").open("w") as log:
            self._servers.append(
                subprocess.Popen(
                    [_BASH, "-c", f"exec {command}"],
                    cwd=self.folder,
                    env=self._environment(),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )

    def stop(self) -> None:
        """End the servers as a terminal would, and expect that they end well."""
        for server in self._servers:
            server.send_signal(signal.SIGINT)
        for server in self._servers:
            server.wait(_SECONDS)
        self._reservations.close()

    def _environment(self) -> dict[str, str]:
        programs = str(Path(sys.executable).parent)
        # Files of the page are imported from where they are; nothing of the run that tests it is to be heeded.
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "FAIRQUEUE"))}
        return plain | {
            "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONPATH": str(self.folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            # Who follows a page has none of this suite's plugins, which take longer to import than the page's tests.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            # As in many projects.
            "PYTEST_ADDOPTS": "-W error",
            "PYTEST_PLUGINS": "anyio.pytest_plugin,sqlalchemy_fairqueue.testing.plugin",
            **self.environment,
        }


@contextmanager
def reader(folder: Path, environment: Mapping[str, str]) -> Iterator[Reader]:
    """A reader whose servers are stopped in the end."""
    one = Reader(folder, environment)
    try:
        yield one
    finally:
        one.stop()


def _is_said(expected: str, output: str) -> bool:
    parts = (re.escape(line) if line != "..." else ".*" for line in expected.strip().splitlines())
    return re.search("\n".join(parts), output, re.DOTALL) is not None
