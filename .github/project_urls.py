"""Addresses of the project in the metadata of a release, taken from where its workflow runs.

A hook of hatchling (pyproject.toml, ``[tool.hatch.metadata.hooks.custom]``). Elsewhere there are no addresses: an
installation from a checkout needs none, and a name in the sources would be wrong in each fork. The README is shown far
from its files, so that its links need the addresses too.
"""

from __future__ import annotations

import os
import re
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
        "Documentation": f"{site}/",
        "Changelog": f"{site}/project/changelog.html",
        "Source": source,
        "Issues": f"{source}/issues",
    }


def urls_of_sdist(text: str) -> dict[str, str]:
    """The addresses that an sdist was made with, from its PKG-INFO: its user builds a wheel anywhere."""
    lines: list[str] = message_from_string(text).get_all("Project-URL", [])
    return dict(line.split(", ", 1) for line in lines)


def linked(readme: str, urls: Mapping[str, str]) -> str:
    """The README with its relative links made absolute: a page leads to the site, another file to the repository."""
    if not urls:
        return readme

    def absolute(link: re.Match[str]) -> str:
        path, anchor = link["path"], link["anchor"] or ""
        if not path.startswith("docs/"):
            return f"]({urls['Source']}/blob/HEAD/{path}{anchor})"
        return f"]({urls['Documentation']}{re.sub(r'[.]md$', '.html', path.removeprefix('docs/'))}{anchor})"

    return re.sub(r"\]\((?!\w+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)", absolute, readme)


class ProjectUrls(MetadataHookInterface):
    """Fills ``project.urls`` and ``project.readme``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the addresses, if there are any, and the README."""
        written = Path(self.root, "PKG-INFO")
        urls = urls_of_sdist(written.read_text(encoding="utf-8")) if written.is_file() else urls_of(os.environ)
        metadata["urls"] = urls
        text = linked(Path(self.root, "README.md").read_text(encoding="utf-8"), urls)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
