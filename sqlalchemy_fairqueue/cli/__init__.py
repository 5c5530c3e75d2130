"""The command line ``fairqueue`` for operators. Python code calls the library instead, and imports nothing from here.

A command is a function. It takes Options and returns a Result, or None if it has printed its result itself. Each
subject has a module for its commands. ``options`` derives the options of a command from the function's signature and
docstring. ``tables`` turns values into table rows or JSON documents, by a list of columns. ``program`` imports the
module of the called command. ``runner`` prints the result, and turns every error into a message and an exit status.
"""
