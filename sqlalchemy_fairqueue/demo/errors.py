"""Error that the demo ends with when it cannot keep a promise."""

from __future__ import annotations


class DemoError(Exception):
    """The demo cannot go on, or did not keep a promise. The message is for the person at the terminal."""
