"""Loads plugins one by one: a broken plugin is reported and does not affect the others."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
import re
import sys
import threading
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint
from types import MappingProxyType
from typing import Any, TypeVar, cast

import pluggy

from data_stack.codecs import Codec
from data_stack.codecs.codec import add_codec_provider, registered_types
from data_stack.dataset.encoders.encoder import Encoder, built_in_kinds
from data_stack.exception import (
    AmbiguousDatasetError,
    ConfigError,
    DatasetNotFoundError,
    DataStackError,
    PluginError,
    describe_error,
)
from data_stack.io.retriever import register_scheme
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.url import (
    BUILT_IN_STORAGE_SCHEMES,
    add_storage_provider,
)
from data_stack.plugins import hookspecs
from data_stack.plugins.installed import InstalledPlugins, PluginRecord, read_disabled
from data_stack.util.logger import logger

_Value = TypeVar("_Value")
#: What data_stack.io.retriever fetches from by itself.
_RETRIEVER_SCHEMES = {"file", "http", "https", "package"}
_SOURCE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):", re.ASCII)
_SCHEME = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_+.-]*", re.ASCII)


def check_dataset_class(value: object) -> type[Any]:
    """Return ``value`` if it is a class with ``get_dataset_iterator``.

    Raises:
        ConfigError: it is not.
    """
    if not isinstance(value, type):
        raise ConfigError(
            f"a dataset is a factory class, not the {type(value).__name__} {value!r:.80}"
        )
    if not callable(getattr(value, "get_dataset_iterator", None)):
        raise ConfigError(
            f"{value.__qualname__} lacks get_dataset_iterator of a dataset factory; derive it from DatasetFactory"
        )
    return value


def _modified_ns(folder: str) -> int:
    """When a file was last added to a folder or removed from it, in ns since 1970; 0 if there is no such folder."""
    with contextlib.suppress(OSError):
        return os.stat(folder or ".").st_mtime_ns
    return 0


def _is_encoder(kind: str, value: Any) -> bool:
    return (
        isinstance(value, type)
        and issubclass(value, Encoder)
        and not inspect.isabstract(value)
        and value.kind == kind
    )


def _is_format(name: str, value: Any) -> bool:
    # Not issubclass(value, Format): that class is of a room above this one.
    if not isinstance(value, type) or inspect.isabstract(value):
        return False
    return getattr(value, "name", None) == name and callable(getattr(value, "open_source", None))


def _is_catalogue(scheme: str, value: Any) -> bool:
    has_methods = callable(getattr(value, "find", None)) and callable(
        getattr(value, "search", None)
    )
    return has_methods and not isinstance(value, type) and _SCHEME.fullmatch(scheme) is not None


#: By hook: whether a value can be provided under a name, and the names that data_stack itself provides.
_HOOKS: Mapping[str, tuple[Callable[[str, Any], bool], Callable[[], Container[str]]]] = {
    "storage_connectors": (lambda name, value: callable(value), lambda: BUILT_IN_STORAGE_SCHEMES),
    "retrievers": (lambda name, value: callable(value), lambda: _RETRIEVER_SCHEMES),
    "engines": (lambda name, value: callable(value), lambda: {"processes"}),
    "encoders": (_is_encoder, built_in_kinds),
    "codecs": (lambda name, value: isinstance(value, Codec), registered_types),
    "formats": (_is_format, lambda: ()),
    "catalogues": (_is_catalogue, lambda: ()),
}


class PluginManager:
    """The plugins of this process.

    Listing reads metadata and imports nothing. Loading a dataset imports its module, again after a failure, so that installing a
    missing package is enough. Modules with hooks are imported together when a scheme, engine, kind of encoder, type of record
    column, format or catalogue that is not built in is first asked for.

    Importing a plugin runs its code. An import that hangs cannot be interrupted, but other threads can load other datasets.
    Threads may share a manager.
    """

    def __init__(self) -> None:
        self._outcomes: dict[
            PluginRecord, PluginRecord
        ] = {}  # of what was imported, by how it was listed
        self._cached: tuple[object, InstalledPlugins] | None = (
            None  # with what was disabled, and the folders of packages
        )
        self._hooks = pluggy.PluginManager("data_stack")
        self._hooks.add_hookspecs(hookspecs)
        # Re-entrant, and _loading guards against recursion: a plugin may ask for a scheme while it is imported.
        self._lock = threading.RLock()
        self._loading: set[PluginRecord] = set()
        self._claimed: dict[str, Mapping[str, Any]] = dict.fromkeys(_HOOKS, MappingProxyType({}))

    # ------------------------------------------------------------------ what there is

    def records(self) -> list[PluginRecord]:
        """All installed plugins, sorted by group and name; nothing is imported."""
        installed = self._find_installed()
        listed = [record for providers in installed.datasets.values() for record in providers]
        records = [self._outcomes.get(record, record) for record in (*listed, *installed.behaviour)]
        return sorted(
            (*records, *installed.unusable),
            key=lambda r: (r.group, r.name, r.distribution, r.version),
        )

    def dataset_names(self) -> list[str]:
        """Names of the datasets that plugins provide, sorted; where two provide one name, each as ``distribution:name``."""
        return self._find_installed().dataset_names

    def doctor(self) -> list[PluginRecord]:
        """Import all plugins and return their records."""
        for providers in self._find_installed().datasets.values():
            for record in providers:
                with contextlib.suppress(PluginError):
                    self._load_dataset(record)
        self._load_behaviour(again=True)
        return self.records()

    # ------------------------------------------------------------------ datasets

    def providers(self, name: str) -> tuple[PluginRecord, ...]:
        """The plugins that provide the dataset ``name`` or ``distribution:name``: none, one, or several; nothing is imported."""
        return tuple(
            self._outcomes.get(record, record) for record in self._find_installed().providers(name)
        )

    def load_dataset(self, name: str) -> type[Any]:
        """Import the factory class of the dataset ``name`` or ``distribution:name``.

        Raises:
            DatasetNotFoundError: no plugin provides it, or it is blocked or malformed; the message has the reason.
            AmbiguousDatasetError: several distributions provide it.
            PluginError: its plugin is broken; the plugin's own error is chained.
        """
        found = self._find_installed().providers(name)
        if len(found) == 1:
            return self._load_dataset(found[0])
        if found:
            choices = " or ".join(repr(record.qualified_name) for record in found)
            advice = f"ask for {choices}, or leave one out by DATA_STACK_DISABLE_PLUGINS"
            raise AmbiguousDatasetError(
                f"{len(found)} distributions provide a dataset {name!r}: {advice}"
            )
        raise DatasetNotFoundError(self.explain_missing_dataset(name))

    def explain_missing_dataset(self, name: str) -> str:
        """Why no plugin provides the dataset ``name``."""
        unusable = [
            record
            for record in self._find_installed().unusable
            if name in (record.name, record.qualified_name)
        ]
        reasons = [f"{record} cannot be used: {record.error}" for record in unusable]
        return "; ".join(reasons) or f"no plugin provides a dataset {name!r:.80}"

    # ------------------------------------------------------------------ behaviour

    def provided(self, hook: str) -> Mapping[str, Any]:
        """What plugins bring by name, through a hook of :mod:`data_stack.plugins.hookspecs`; imports all plugins with hooks.

        Args:
            hook: its name without ``data_stack_``, such as ``"catalogues"``.
        """
        self._load_behaviour()
        return self._claimed[hook]

    def register_retrievers(self, sources: Iterable[str]) -> None:
        """Register the schemes of plugins with ``retrieve()``, if the scheme of one of ``sources`` is not built in."""
        if any(
            match is not None and match[1].lower() not in _RETRIEVER_SCHEMES
            for match in map(_SOURCE.match, sources)
        ):
            for scheme, fetch in self.provided("retrievers").items():
                with contextlib.suppress(
                    ConfigError
                ):  # the program registered its own function, which comes first
                    register_scheme(scheme, fetch)

    # ------------------------------------------------------------------ inside

    def _find_installed(self) -> InstalledPlugins:
        seen = disabled, _ = read_disabled(), [(each, _modified_ns(each)) for each in sys.path]
        if self._cached is None or self._cached[0] != seen:
            importlib.invalidate_caches()  # a package installed a moment ago is found, and can be imported
            self._cached = seen, InstalledPlugins(disabled)
        return self._cached[1]

    def _load_dataset(self, record: PluginRecord) -> type[Any]:
        return self._record(record, lambda: check_dataset_class(_import_plugin(record)))

    def _load_behaviour(self, *, again: bool = False) -> None:
        """Import the plugins with hooks that were not tried yet; ``again``: also those that failed."""
        with self._lock:
            installed = self._find_installed()
            for record in installed.behaviour:
                outcome = self._outcomes.get(record)
                if record in self._loading or (
                    outcome is not None and not (again and outcome.state != "ok")
                ):
                    continue
                self._loading.add(record)
                try:
                    self._record(record, functools.partial(self._register, record))
                except PluginError as error:
                    logger.warning("%s", error)
                finally:
                    self._loading.discard(record)

    def _record(self, record: PluginRecord, load: Callable[[], _Value]) -> _Value:
        """Run a plugin's code and remember its outcome.

        Raises:
            PluginError: it failed; KeyboardInterrupt passes.
        """
        try:
            value = load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            problem = describe_error(error)[:500]
            self._outcomes[record] = replace(record, state="broken", error=problem)
            advice = "Install missing packages, update it or uninstall it; `data-stack doctor` shows the state of all plugins."
            raise PluginError(
                f"{record} ({record.entry_point}) could not be loaded: {problem}. {advice}"
            ) from error
        self._outcomes[record] = replace(record, state="ok") if record.state == "listed" else record
        return value

    def _register(self, record: PluginRecord) -> None:
        plugin = _import_plugin(record)
        name = record.qualified_name
        try:
            self._hooks.register(plugin, name)
            self._hooks.check_pending()
            if not self._hooks.get_hookcallers(plugin):
                raise PluginError("it has no hook marked by @data_stack.plugins.hookimpl")
            values = {hook: self._call(plugin, hook) for hook in _HOOKS}
        except BaseException:
            if (
                self._hooks.get_plugin(name) is plugin
            ):  # pluggy keeps a plugin whose validation failed
                self._hooks.unregister(plugin, name)
            raise
        values["storage_connectors"] = {
            scheme: functools.partial(_connect, record, connect)
            for scheme, connect in values["storage_connectors"].items()
        }
        for hook, new in values.items():
            self._claimed[hook] = MappingProxyType({**self._claimed[hook], **new})

    def _call(self, plugin: object, hook: str) -> dict[str, Any]:
        """What this plugin's implementation of a hook provides; empty if it has none.

        Raises:
            PluginError: it returned something else, or a name is taken.
        """
        accepts, built_in = _HOOKS[hook]
        values: dict[Any, Any] = {}
        for implementation in getattr(self._hooks.hook, f"data_stack_{hook}").get_hookimpls():
            if implementation.plugin is plugin:
                result: object = implementation.function()
                if not isinstance(result, Mapping):
                    raise PluginError(
                        f"data_stack_{hook} returned {type(result).__name__}, not a mapping"
                    )
                values |= result
        for name, value in values.items():
            if not isinstance(name, str) or not _NAME.fullmatch(name) or not accepts(name, value):
                raise PluginError(
                    f"data_stack_{hook} returned {name!r:.80}: {value!r:.80}, which its documentation excludes"
                )
            if name in built_in() or name in self._claimed[hook]:
                raise PluginError(
                    f"{name!r} of data_stack_{hook} is taken, by data_stack or another plugin"
                )
        return values


def _connect(record: PluginRecord, connect: Callable[[str], Any], url: str) -> StorageConnector:
    """Call a plugin's function for storage connectors, and blame the plugin for its failures."""
    try:
        connector = connect(url)
    except DataStackError:
        raise
    except Exception as error:
        # Not its message: that often holds the URL, and the URL a password.
        raise PluginError(
            f"{record} could not make a storage connector ({type(error).__name__})"
        ) from error
    if not all(
        callable(getattr(connector, name, None))
        for name in ("get_resource", "set_resource", "has_resource")
    ):
        raise PluginError(f"{record} returned {type(connector).__name__}, not a StorageConnector")
    return cast("StorageConnector", connector)


def _import_plugin(record: PluginRecord) -> Any:
    return EntryPoint(record.name, record.entry_point, record.group).load()


@functools.cache
def default_manager() -> PluginManager:
    """The manager that ``data_stack.load`` and the command line use."""
    return PluginManager()


add_codec_provider(lambda: default_manager().provided("codecs"))
add_storage_provider(lambda: default_manager().provided("storage_connectors"))
