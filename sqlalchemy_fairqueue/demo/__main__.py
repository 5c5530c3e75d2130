"""Runs the demo: ``python -m sqlalchemy_fairqueue.demo``. The exit status tells how it went."""

from __future__ import annotations

import sys

from sqlalchemy_fairqueue.demo.endings import AskedToEnd, DemoError, listen


def run() -> None:
    try:
        from sqlalchemy.exc import SQLAlchemyError

        from sqlalchemy_fairqueue.demo.command import main
        from sqlalchemy_fairqueue.embedded import EmbeddedServerError
        from sqlalchemy_fairqueue.errors import FairQueueError
    except ImportError as error:
        sys.exit(f"the demo needs more than the library: {error}; pip install 'sqlalchemy-fairqueue[demo]'")
    try:
        main()
    except (DemoError, EmbeddedServerError, FairQueueError) as error:
        sys.exit(f"\nthe demo failed: {error}")
    except SQLAlchemyError as error:
        sys.exit(f"\nthe demo failed: the database refused: {getattr(error, 'orig', None) or error}")


if __name__ == "__main__":
    listen()
    try:
        run()
    except AskedToEnd:
        print("\nstopped; nothing was left behind", file=sys.stderr)
        raise
