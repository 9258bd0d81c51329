"""What plugins bring through hooks: the values of each kind, by name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, cast

import pluggy

from data_stack.exception import DataStackError, PluginError
from data_stack.io.storage_connectors.connector import StorageConnector, has_required_methods
from data_stack.plugins import hookspecs
from data_stack.plugins.hook_kinds import HOOK_KINDS, HookKind
from data_stack.plugins.record import PluginRecord


class ProvidedBehaviour:
    """The values that plugins provide. A plugin with a fault provides nothing.

    There is no lock: :class:`~data_stack.plugins.manager.PluginManager` registers one plugin at a
    time. Readers see all new values of a kind, or none of them.
    """

    #: Validates hooks: whether they exist, and their parameters.
    _hooks: pluggy.PluginManager
    #: By kind the values of all plugins, by name. A registration replaces the mappings.
    _values: dict[str, Mapping[str, Any]]

    def __init__(self) -> None:
        self._hooks = pluggy.PluginManager("data_stack")
        self._hooks.add_hookspecs(hookspecs)
        self._values = {kind: MappingProxyType({}) for kind in HOOK_KINDS}

    def values_of(self, kind: str) -> Mapping[str, Any]:
        """Return what plugins provide of a kind, by name."""
        return self._values[kind]

    def register(self, plugin: Any, record: PluginRecord) -> None:
        """Call the hooks of a plugin, and add what they return.

        Args:
            plugin: its module.
            record: the record of the plugin.

        Raises:
            PluginError: it has no hooks, or one returned something else than its documentation
                says, or a name that is taken. Other errors are those of its code or of pluggy.
        """
        name = record.qualified_name
        try:
            self._hooks.register(plugin, name)
            self._hooks.check_pending()
            if not self._hooks.get_hookcallers(plugin):
                raise PluginError("it has no hook marked by @data_stack.plugins.hookimpl")
            new_values = {kind.name: self._call_hook(plugin, kind) for kind in HOOK_KINDS.values()}
        except BaseException:
            # pluggy keeps a plugin whose validation failed.
            if self._hooks.get_plugin(name) is plugin:
                self._hooks.unregister(plugin, name)
            raise
        # These functions are called much later, by users of the URL: an error then still names the
        # plugin.
        new_values["storage_connectors"] = {
            scheme: functools.partial(_connect, record, connect)
            for scheme, connect in new_values["storage_connectors"].items()
        }
        for kind, values in new_values.items():
            self._values[kind] = MappingProxyType({**self._values[kind], **values})

    def _call_hook(self, plugin: object, kind: HookKind) -> dict[str, Any]:
        """Return what a plugin provides of a kind; empty if it does not implement the hook.

        Raises:
            PluginError: the hook returned something else, or a name is taken.
        """
        # pluggy lists the implementations of all plugins; this plugin has one at most.
        values: dict[Any, Any] = {}
        for implementation in getattr(self._hooks.hook, kind.hook).get_hookimpls():
            if implementation.plugin is not plugin:
                continue
            returned: object = implementation.function()
            if not isinstance(returned, Mapping):
                raise PluginError(f"{kind.hook} returned {type(returned).__name__}, not a mapping")
            values.update(returned)
        for name, value in values.items():
            kind.check(name, value, taken=self._values[kind.name])
        return values


def _connect(record: PluginRecord, connect: Callable[[str], Any], url: str) -> StorageConnector:
    """Call a plugin's function for storage connectors.

    Args:
        record: the record of the plugin.
        connect: the function.
        url: its argument.

    Raises:
        PluginError: the function failed, or returned something else.
    """
    try:
        connector = connect(url)
    except DataStackError:
        raise
    except Exception as error:
        # Without the message of the error, which often contains the URL, and so a password.
        raise PluginError(
            f"{record} could not make a storage connector ({type(error).__name__})"
        ) from error
    if not has_required_methods(connector):
        raise PluginError(f"{record} returned {type(connector).__name__}, not a StorageConnector")
    return cast("StorageConnector", connector)
