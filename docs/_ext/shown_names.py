"""Names in signatures and docstrings lead to where readers import them from: ``sqlalchemy_fairqueue.Delivery``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy_fairqueue

if TYPE_CHECKING:
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx

_PUBLIC = set(sqlalchemy_fairqueue.__all__)
_PREFIXES = ("", "sqlalchemy_fairqueue", "sqlalchemy_fairqueue.values", "sqlalchemy_fairqueue.worker")


def _shorten(app: Sphinx, doctree: Any) -> None:  # noqa: ARG001 - Sphinx passes it
    """Point every reference to a public class at the page that has it, whichever module it was written in."""
    from sphinx.addnodes import pending_xref as reference  # noqa: PLC0415 - Sphinx is imported by who builds

    found: pending_xref
    for found in doctree.findall(reference):
        module, _, name = str(found.get("reftarget", "")).rpartition(".")
        if found.get("refdomain") == "py" and name in _PUBLIC and module.startswith(_PREFIXES):
            found["reftarget"] = f"sqlalchemy_fairqueue.{name}"
            found.attributes.pop("py:class", None)
            found.attributes.pop("py:module", None)
            found.attributes.pop("refspecific", None)


def setup(app: Sphinx) -> dict[str, bool]:
    """Shorten what every page that was read refers to."""
    app.connect("doctree-read", _shorten)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
