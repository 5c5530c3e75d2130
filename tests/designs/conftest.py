"""The published designs as fixtures: see tests/designs/installed.py."""

from tests.designs.installed import install_design

__all__ = ["install_design"]
