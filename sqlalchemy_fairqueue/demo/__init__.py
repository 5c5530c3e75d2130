"""A demo to run and an example to read: a small app that parses uploaded Python files for its customers.

Read ``business``, which knows no queue; ``fair``, the only part of the app that uses the library; and ``fifo``, which
does the same with a plain job table. The other modules run ``fair`` and ``fifo``, and compare them.
"""
