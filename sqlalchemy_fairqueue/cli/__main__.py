"""Entry point of ``fairqueue`` and of ``python -m sqlalchemy_fairqueue.cli``."""

from __future__ import annotations

import sys

_INTERRUPTED = 130


def run() -> None:
    try:
        sys.exit(_status())
    except KeyboardInterrupt:
        # Ctrl-C while modules are loaded; later the runner handles it.
        sys.exit(_INTERRUPTED)


def _status() -> int:
    try:
        import rich  # noqa: F401 - to report a missing extra
        import typer  # noqa: F401
    except ImportError as error:
        sys.exit(f"fairqueue needs more than the library: {error}; pip install 'sqlalchemy-fairqueue[cli]'")
    from sqlalchemy_fairqueue.cli.output import prepare_streams, write_error
    from sqlalchemy_fairqueue.cli.program import main

    prepare_streams()
    status = main()
    # Flush what other code left in the buffer of stderr, since a failed flush at the exit would change the exit status.
    write_error("")
    return status


if __name__ == "__main__":
    run()
