"""Imports the modules that connect plugins to lower rooms, where such a room first misses something."""

from __future__ import annotations

import importlib
import sys


def import_providers() -> None:
    """Import the modules that ``data_stack`` names as providers; they register what plugins bring.

    A lower room may not name the room of the plugins, and a program may have imported the lower
    room alone: ``from data_stack.formats.records import RecordReader``.
    """
    for module_name in sys.modules["data_stack"]._PROVIDERS:
        importlib.import_module(module_name)
