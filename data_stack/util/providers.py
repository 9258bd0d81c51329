"""Imports the modules that register what plugins bring."""

from __future__ import annotations

import importlib
import sys


def import_providers() -> None:
    """Import the modules that ``data_stack`` names as providers; they register what plugins bring.

    A registry calls this when it does not know a name. The registry may not import the package of
    the plugins, and the program may have imported the registry's package alone:
    ``from data_stack.formats.records import RecordReader``.
    """
    for module_name in sys.modules["data_stack"]._PROVIDERS:
        importlib.import_module(module_name)
