"""Supervisor process of a server: it stops the server and removes its files, however the Python process ends."""

from __future__ import annotations

import contextlib
import shlex
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, cast

from sqlalchemy_fairqueue.embedded.errors import DATABASE_URL_VARIABLE, EmbeddedServerError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy_fairqueue.embedded.account import Account
    from sqlalchemy_fairqueue.embedded.programs import Programs

_LOG_LINES = 10
# Runs each line of its input and answers the exit status. The input ends when the last process that holds the other end
# of the pipe is gone; then it stops the server and removes the folder.
_SCRIPT = """
trap '' HUP INT TERM PIPE
while IFS= read -r command; do
    eval "$command" </dev/null >>"$1/server.log" 2>&1
    echo $?
done
"$2/pg_ctl" stop -D "$1/data" -m fast -t 30 >/dev/null 2>&1 </dev/null ||
    "$2/pg_ctl" stop -D "$1/data" -m immediate >/dev/null 2>&1 </dev/null
rm -rf "$1"
"""


@dataclass(frozen=True, slots=True)
class Supervisor:
    """Runs the programs of one server, one after the other, in the folder that it removes at the end.

    Attributes:
        directory: the folder.
        programs: what it runs.
    """

    directory: Path
    programs: Programs
    _process: subprocess.Popen[str] = field(repr=False, compare=False)

    @property
    def log_path(self) -> Path:
        """The output of all programs."""
        return self.directory / "server.log"

    def run(self, program: str, *arguments: str) -> None:
        """Run one of the programs on the data directory and wait for its end.

        Raises:
            EmbeddedServerError: it failed, or the supervisor is gone.
        """
        command = [str(self.programs.directory / program), "-D", str(self.directory / "data"), *arguments]
        status = ""
        with contextlib.suppress(BrokenPipeError):
            cast("IO[str]", self._process.stdin).write(shlex.join(command) + "\n")
            status = cast("IO[str]", self._process.stdout).readline().strip()
        if status != "0":
            log = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
            ending = "\n".join(log[-2000:].strip().splitlines()[-_LOG_LINES:])
            message = (
                f"{program} of {str(self.programs.directory)!r} failed with status {status or 'unknown'} after "
                f"{shlex.join(arguments)!r}; fix what its log says, or name a running server in "
                f"{DATABASE_URL_VARIABLE}; the log ends with:\n{ending}"
            )
            raise EmbeddedServerError(message)


@contextlib.contextmanager
def supervisor(account: Account, directory: Path, programs: Programs) -> Iterator[Supervisor]:
    """Start a supervisor; at the end of the block it stops the server and removes *directory*."""
    process = account.start(["/bin/sh", "-c", _SCRIPT, "fairqueue-supervisor", str(directory), str(programs.directory)])
    try:
        yield Supervisor(directory, programs, process)
    finally:
        cast("IO[str]", process.stdin).close()
        cast("IO[str]", process.stdout).close()
        process.wait()
