"""Addresses that a command serves HTTP at."""

from __future__ import annotations

import re
from typing import NamedTuple

_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:\[\]\s]*):)?(?P<port>\d{1,5})", re.ASCII)
_LAST_PORT = 65_535


class Address(NamedTuple):
    """A host and a port; port 0 is any free one."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The address as the beginning of a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def parse_address(text: str) -> Address:
    """``127.0.0.1:9187``, ``[::1]:9187``; without a host, this machine alone: ``9187``.

    Raises:
        ValueError: The text has another form.
    """
    found = _ADDRESS.fullmatch(text.strip())
    if found is None or int(found["port"]) > _LAST_PORT:
        raise ValueError(f"{text!r:.80} is no address; give HOST:PORT, such as 0.0.0.0:9187, or a port of 127.0.0.1")
    return Address((found["host"] or "127.0.0.1").strip("[]"), int(found["port"]))
