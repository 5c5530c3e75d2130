"""The demo and example to read: a small app that parses uploaded Python files for its customers.

Read ``business``, which knows no queue; ``fair``, all that uses the library; ``fifo``, the same with a plain job table.
The rest runs both. Nothing else in the package may import it.
"""
