"""Account that runs the server. PostgreSQL refuses root, so that root runs it as an account without rights."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.embedded.errors import DATABASE_URL_VARIABLE, EmbeddedServerError

if TYPE_CHECKING:
    from pathlib import Path

_NOBODY = 65534


@dataclass(frozen=True, slots=True)
class Account:
    """The account that runs the server.

    Attributes:
        user: numeric user; None: the user of this process.
        group: numeric group; None as above.
    """

    user: int | None = None
    group: int | None = None

    @classmethod
    def for_server(cls) -> Account:
        """``nobody`` if this process runs as root, else its own account.

        Raises:
            EmbeddedServerError: this is Windows, which the server and its supervisor are not made for.
        """
        if sys.platform == "win32":
            message = (
                "the embedded server needs a POSIX system, this is Windows; name a running server in "
                f"{DATABASE_URL_VARIABLE}"
            )
            raise EmbeddedServerError(message)
        import pwd  # noqa: PLC0415 - not on every system

        if os.geteuid() != 0:
            return cls()
        try:
            nobody = pwd.getpwnam("nobody")
        except KeyError:
            return cls(_NOBODY, _NOBODY)
        return cls(nobody.pw_uid, nobody.pw_gid)

    def give(self, path: Path) -> None:
        """Make this account the owner of *path*."""
        if self.user is not None and self.group is not None:
            os.chown(path, self.user, self.group)

    def make_folder(self, path: Path) -> None:
        """Make a folder, and the missing ones above it, that this account owns."""
        if not path.parent.exists():
            self.make_folder(path.parent)
        path.mkdir(mode=0o700)
        self.give(path)

    def start(self, command: list[str]) -> subprocess.Popen[str]:
        """Start *command* as this account, with pipes to its input and output and in a session of its own.

        Raises:
            EmbeddedServerError: this process may not switch to the account.
        """
        environment = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        environment["PATH"] = os.pathsep.join(filter(None, (os.environ.get("PATH"), os.defpath)))
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                bufsize=1,
                cwd="/",
                env=environment | {"LC_ALL": "C"},
                umask=0o077,
                user=self.user,
                group=self.group,
                extra_groups=None if self.user is None else [],
                start_new_session=True,  # Ctrl-C in a terminal goes to the whole group: the server must outlive it
            )
        except (PermissionError, subprocess.SubprocessError) as error:
            message = (
                f"cannot run a program as user {self.user}: {error}; PostgreSQL refuses to run as root, so start this "
                f"as an ordinary user, or name a running server in {DATABASE_URL_VARIABLE}"
            )
            raise EmbeddedServerError(message) from error

    def may_run(self, program: Path, *arguments: str) -> bool:
        """Whether this account can run *program* successfully."""
        return self._succeeds('exec "$@"', str(program), *arguments)

    def may_write_to(self, folder: str) -> bool:
        """Whether this account may enter *folder* and make files in it."""
        # Not the program of that name, which a machine may lack: the shell has it built in.
        return self._succeeds('test -x "$1" && test -w "$1"', folder)

    def _succeeds(self, script: str, *arguments: str) -> bool:
        process = self.start(["/bin/sh", "-c", script, "sh", *arguments])
        process.communicate()
        return process.returncode == 0
