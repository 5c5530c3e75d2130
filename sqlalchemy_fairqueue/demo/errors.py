"""The one error that the demo ends with when something did not go as promised."""

from __future__ import annotations


class DemoError(Exception):
    """The demo cannot go on, or did not keep a promise. The message is for the person at the terminal."""
