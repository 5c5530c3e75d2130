"""Runs a private server until Ctrl-C or SIGTERM: ``python -m sqlalchemy_fairqueue.embedded``.

The command prints the server's URL as shell variables, and removes the server and its data at the end.
"""

from __future__ import annotations

import argparse
import signal
import sys

from sqlalchemy_fairqueue.embedded import DATABASE_URL_VARIABLE, EmbeddedServerError, embedded_server
from sqlalchemy_fairqueue.embedded.environment import libpq_variables


def main() -> None:
    what = "Run a private, temporary PostgreSQL until Ctrl-C, and print the variables that name it."
    argparse.ArgumentParser(prog="python -m sqlalchemy_fairqueue.embedded", description=what).parse_args()
    stops = (signal.SIGINT, signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Variables of libpq that are set here are probably set in the other terminal too, so they must be unset there.
    deaf = f"unset {' '.join(names)}\n" if (names := libpq_variables()) else ""
    try:
        with embedded_server() as server:
            url = server.url().render_as_string(hide_password=False)
            sys.stdout.write(
                f"PostgreSQL {server.version} runs until Ctrl-C, which removes it with all data. In another terminal:\n"
                f"{deaf}export DATABASE_URL='{url}'\n"
                f'export {DATABASE_URL_VARIABLE}="$DATABASE_URL"\n'
            )
            sys.stdout.flush()
            # A blocked signal waits for sigwait, even if it comes right before the call.
            signal.pthread_sigmask(signal.SIG_BLOCK, stops)
            signal.sigwait(stops)
    except KeyboardInterrupt:
        pass
    except EmbeddedServerError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
