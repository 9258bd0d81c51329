"""Plugins: datasets and behaviour that other distributions bring."""

from __future__ import annotations

from data_stack.plugins.hookspecs import hookimpl
from data_stack.plugins.manager import PluginManager, default_manager
from data_stack.plugins.record import PluginRecord, PluginState

__all__ = ["PluginManager", "PluginRecord", "PluginState", "default_manager", "hookimpl"]
