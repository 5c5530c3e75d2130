"""``python -m tests.bench.peers SCRIPT URL ARGUMENTS``: the process that speaks for a queue."""

import sys
from importlib import import_module

from tests.bench.peers.protocol import speak

speak(import_module(f"tests.bench.peers.{sys.argv[1]}").Speaker(*sys.argv[2:]))
