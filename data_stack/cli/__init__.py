"""The ``data-stack`` command.

Each command is a function in the file of its topic, decorated with ``@cli.command()``; ``main.py``
imports all of these files. A command imports what it calls when it runs: completing a line, or
showing a help, then imports no numpy, no store and no plugin.
"""
