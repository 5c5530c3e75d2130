"""Anchors that pages write as ``<a id="name"></a>``: links from other pages find them, and Sphinx checks them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.transforms import SphinxTransform

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_ANCHOR = re.compile(r'<a id="([^"]+)">')


class PageAnchors(SphinxTransform):
    """Adds the anchors of a page to those of its headings, before MyST resolves links."""

    default_priority = 400

    def apply(self, **_: Any) -> None:
        """Collect the anchors of the page that was just read."""
        slugs = getattr(self.document, "myst_slugs", None)
        if slugs is None:
            return
        for node in self.document.findall(nodes.raw):
            for name in _ANCHOR.findall(node.astext()):
                slugs.setdefault(name, (node.line or 0, name, name))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform."""
    app.add_transform(PageAnchors)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
