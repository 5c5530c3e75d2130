"""Directive ``unreleased``: the fragments in docs/changes, which the next release moves into the page of changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from docutils.nodes import Node
    from sphinx.application import Sphinx

_FRAGMENTS = Path(__file__).parents[1] / "changes"
_KINDS = ("added", "changed", "deprecated", "removed", "fixed", "security")


class Unreleased(SphinxDirective):
    """The changes since the last release, by kind; nothing if there are none."""

    def run(self) -> list[Node]:
        """Read the fragments, and parse them as the Markdown that they are."""
        lines = ["## Next release", ""]
        for kind in _KINDS:
            fragments = sorted(_FRAGMENTS.glob(f"*.{kind}.md"))
            lines += [f"### {kind.capitalize()}", ""] if fragments else []
            for fragment in fragments:
                first, *rest = fragment.read_text().strip().splitlines()
                lines += [f"- {first}", *(f"  {line}" if line else "" for line in rest), ""]
                self.env.note_dependency(str(fragment))
        self.content = StringList(lines, "docs/changes")
        return self.parse_content_to_nodes(allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("unreleased", Unreleased)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
