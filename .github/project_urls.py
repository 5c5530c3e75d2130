"""Addresses of the project in the metadata of a release, taken from where its workflow runs.

A hook of hatchling (pyproject.toml, ``[tool.hatch.metadata.hooks.custom]``). Elsewhere there are no addresses: an
installation from a checkout needs none, and a name in the sources would be wrong in each fork.
"""

from __future__ import annotations

import os
from email import message_from_string
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

if TYPE_CHECKING:
    from collections.abc import Mapping


def urls_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The addresses, by their labels on PyPI. SITE_URL: where the site is, if not on GitHub Pages."""
    repository = environment.get("GITHUB_REPOSITORY", "")
    if not repository:
        return {}
    owner, _, name = repository.partition("/")
    source = f"{environment.get('GITHUB_SERVER_URL', 'https://github.com')}/{repository}"
    site = (environment.get("SITE_URL") or f"https://{owner.lower()}.github.io/{name}").rstrip("/")
    return {
        "Homepage": f"{site}/",
        "Documentation": f"{site}/stable/",
        "Changelog": f"{site}/stable/project/changelog.html",
        "Source": source,
        "Issues": f"{source}/issues",
    }


def urls_of_sdist(text: str) -> dict[str, str]:
    """The addresses that an sdist was made with, from its PKG-INFO: its user builds a wheel anywhere."""
    lines: list[str] = message_from_string(text).get_all("Project-URL", [])
    return dict(line.split(", ", 1) for line in lines)


class ProjectUrls(MetadataHookInterface):
    """Fills ``project.urls``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add them, if there are any."""
        written = Path(self.root, "PKG-INFO")
        metadata["urls"] = urls_of_sdist(written.read_text()) if written.is_file() else urls_of(os.environ)
