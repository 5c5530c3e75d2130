"""A proxy before the server that can fall silent: connections stay open, and nothing comes through any more."""

import contextlib
import socket
import threading
from pathlib import Path

from sqlalchemy import URL

_PORT = 5432
_CHUNK = 65_536


class Proxy:
    """Forwards connections to a server, until it is told to be silent about those that it has, or to go away.

    Attributes:
        refused: The number of connections that it has ended at once.
    """

    def __init__(self, server: URL, directory: Path) -> None:
        host = str(server.query.get("host") or server.host or "localhost")
        port = server.query.get("port") or server.port or _PORT
        self._server = (host, int(str(port)))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / f".s.PGSQL.{_PORT}"))
        self._listener.listen()
        self.refused = 0
        self._away = False
        self._pairs: list[tuple[socket.socket, socket.socket, threading.Event]] = []
        self.url = server.set(host=None, port=None, query={"host": str(directory), "port": str(_PORT)})
        threading.Thread(target=self._accept, daemon=True).start()

    def fall_silent(self) -> None:
        """Forward nothing more on the connections that there are; new ones are served."""
        for _, _, silent in list(self._pairs):
            silent.set()

    def go_away(self) -> None:
        """End the connections that there are, and every new one at once."""
        self._away = True
        for pair in list(self._pairs):
            self._end(pair)

    def come_back(self) -> None:
        """Serve new connections again."""
        self._away = False

    def close(self) -> None:
        """Close everything."""
        # Ends its accept too: one that goes on would take connections to whoever is given its file's number next.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for pair in self._pairs:
            self._end(pair)
            for one in pair[:2]:
                one.close()

    def _end(self, pair: tuple[socket.socket, socket.socket, threading.Event]) -> None:
        for one in pair[:2]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._away:
                    self.refused += 1
                    client.close()
                    continue
                server = self._connect()
                silent = threading.Event()
                self._pairs.append((client, server, silent))
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=(source, target, silent), daemon=True).start()

    def _connect(self) -> socket.socket:
        host, port = self._server
        if not host.startswith("/"):
            return socket.create_connection((host, port))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{host}/.s.PGSQL.{port}")
        return server

    @staticmethod
    def _pump(source: socket.socket, target: socket.socket, silent: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                if not silent.is_set():
                    target.sendall(data)
            if not silent.is_set():
                target.shutdown(socket.SHUT_WR)
