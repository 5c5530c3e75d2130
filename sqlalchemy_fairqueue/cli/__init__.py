"""The command line ``fairqueue`` for operators. Python code calls the library instead, and imports nothing from here.

A command is a function in the module of its subject, which takes Options and returns a Result. Its options follow from
its signature and docstring (``options``), its rows and documents from a list of columns (``tables``). ``program``
imports the module of the called command; ``runner`` prints its result, and turns every error into a message and an exit
status.
"""
