"""A TCP proxy before the test's server, which can stop forwarding: connections stay open and answer nothing.

It can also go away, as a server does.
"""

import contextlib
import socket
import threading
from dataclasses import dataclass, field

from sqlalchemy import URL

from tests.fixtures import proxy

_CHUNK = 65536


@dataclass(slots=True, eq=False)
class Link:
    """One connection through the proxy.

    Attributes:
        said: What the client has sent.
        trap: It freezes when the client says this word, which the server does not hear.
    """

    client: socket.socket
    server: socket.socket
    said: bytearray = field(default_factory=bytearray)
    trap: bytes | None = None
    _open: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Forward."""
        self._open.set()
        for source, target, heard in (self.client, self.server, self.said), (self.server, self.client, None):
            threading.Thread(target=self._forward, args=(source, target, heard), daemon=True).start()

    def is_frozen(self) -> bool:
        """Whether it forwards nothing."""
        return not self._open.is_set()

    def freeze(self) -> None:
        """Forward nothing any more, and close nothing."""
        self._open.clear()

    def close(self) -> None:
        """Cut it."""
        for end in self.client, self.server:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._open.set()

    def _forward(self, source: socket.socket, target: socket.socket, heard: bytearray | None) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(_CHUNK):
                if heard is not None and self.trap is not None and self.trap in chunk:
                    self.freeze()
                self._open.wait()
                if heard is not None:
                    heard += chunk
                target.sendall(chunk)
        # A frozen link keeps quiet about the end of one side, as a network would that is gone.
        self._open.wait()
        self.close()


class Proxy(proxy.Proxy):
    """Listens on a port of its own.

    Attributes:
        links: All connections that were ever made through it.
        trap: That of the links that are made from now on.
        refused: The number of connections that it has ended at once.
    """

    def __init__(self, url: URL) -> None:
        self.links: list[Link] = []
        self.trap: bytes | None = None
        self.refused = 0
        self._away = False
        super().__init__(url)

    def freeze(self, word: bytes) -> int:
        """Freeze each link whose client has said this word; how many they are."""
        chosen = [link for link in self.links if word in link.said]
        for link in chosen:
            link.freeze()
        return len(chosen)

    def fall_silent(self) -> None:
        """Freeze all links that there are; new ones are served."""
        for link in list(self.links):
            link.freeze()

    def go_away(self) -> None:
        """Cut the links that there are, and end every new connection at once."""
        self._away = True
        for link in list(self.links):
            link.close()

    def come_back(self) -> None:
        """Serve new connections again."""
        self._away = False

    def has_caught(self) -> bool:
        """Whether a link went into the trap; a further one does not."""
        caught = any(link.trap is not None and link.is_frozen() for link in self.links)
        if caught:
            self.trap = None
            for link in self.links:
                link.trap = None
        return caught

    def heard(self, word: bytes) -> int:
        """How many links have carried this word."""
        return sum(word in link.said for link in self.links)

    def close(self) -> None:
        """Stop, and cut all links."""
        super().close()
        for link in self.links:
            link.close()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        link = Link(client, server, trap=self.trap)
        if self._away:
            self.refused += 1
            link.close()
        else:
            self.links.append(link)
            link.start()
