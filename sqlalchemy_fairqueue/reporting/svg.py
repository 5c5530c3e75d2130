"""SVG of a matplotlib figure, for inclusion in a page: with the page's colours and unique ids."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.figure import Figure

# Colours to draw with; in the page they are what the style sheet says, in light and in dark.
INK, PALE, PAPER = "#000001", "#000002", "#000003"
SERIES = tuple(f"#0000{number:02}" for number in range(11, 17))
_COLOURS = {
    INK: "var(--ink)",
    PALE: "var(--rule)",
    PAPER: "var(--paper)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(SERIES, 1)},
}
_ID = re.compile(r'(\bid="|href="#|url\(#)')
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fairqueue",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": PALE,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": PALE,
    "text.parse_math": False,
    "timezone": "UTC",
}


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Draw in this block: in the page's colours, names as they are, caches in a folder that is removed."""
    with tempfile.TemporaryDirectory(prefix="fairqueue-") as folder, warnings.catch_warnings():
        # matplotlib writes into its cache folder when it is imported.
        os.environ.setdefault("MPLCONFIGDIR", folder)
        from matplotlib import rc_context  # noqa: PLC0415

        # A name may have letters that the font of the layout lacks: the reader's browser has others.
        warnings.filterwarnings("ignore", message=".*missing from.*font", category=UserWarning)
        with rc_context(_SETTINGS):
            yield


def svg_of(figure: Figure, key: str, title: str) -> str:
    """The figure as an ``svg`` element.

    Args:
        figure: What was drawn.
        key: A prefix of its ids, unique in the page.
        title: A description for screen readers. It must be safe: no markup is escaped.
    """
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = out.getvalue()
    text = text[text.index("<svg") :]
    # A style element of matplotlib's would apply to the whole page.
    text = re.sub(r"<(metadata|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    text = _ID.sub(rf"\g<1>{key}-", text)
    for colour, named in _COLOURS.items():
        text = text.replace(colour, named)
    head, _, rest = text.partition(">")
    box = re.search(r'viewBox="[^"]*"', head)
    assert box is not None  # noqa: S101 - matplotlib always writes one
    return (
        f'<svg {box[0]} xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'role="img" aria-label="{title}">{rest.strip()}'
    )
