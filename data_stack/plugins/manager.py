"""Loads plugins one by one: a broken plugin is reported and does not affect the others."""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any, TypeVar

from data_stack.codecs.registry import add_codec_provider
from data_stack.exception import (
    AmbiguousDatasetError,
    ConfigError,
    DatasetNotFoundError,
    PluginError,
    describe_error,
)
from data_stack.io.retriever import register_scheme
from data_stack.io.storage_connectors.url import add_storage_provider
from data_stack.plugins.behaviour import ProvidedBehaviour
from data_stack.plugins.hook_kinds import BUILT_IN_RETRIEVER_SCHEMES
from data_stack.plugins.installed import InstalledPluginsReader
from data_stack.plugins.record import PluginRecord
from data_stack.util.logger import logger
from data_stack.util.made_once import made_once

_Value = TypeVar("_Value")

#: The scheme of a source; one letter before a colon is a drive of Windows.
_SCHEME_OF_SOURCE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):", re.ASCII)

#: Characters of an error that a record keeps.
_MAX_CHARACTERS_OF_ERROR = 500


class PluginManager:
    """The plugins of this process.

    Listing reads metadata and imports nothing. Loading a dataset imports its module, again after a
    failure, so that installing a missing package is enough. Modules with hooks are imported
    together when a scheme, engine, kind of encoder, type of record column, format or catalogue that
    is not built in is first asked for, and when a dataset is published.

    Importing a plugin runs its code. An import that hangs cannot be interrupted, but other threads
    can load other datasets. Threads may share a manager.
    """

    #: Reads which plugins are installed.
    _installed: InstalledPluginsReader
    #: What became of each plugin that was imported, by its record as it was listed.
    _outcomes: dict[PluginRecord, PluginRecord]
    #: What plugins with hooks provide.
    _behaviour: ProvidedBehaviour
    #: Held while plugins with hooks are imported. It is re-entrant, as such a plugin may ask for a
    #: scheme while it is imported.
    _lock: threading.RLock
    #: The plugins with hooks that are being imported, so that such a question does not import them
    #: once more.
    _loading: set[PluginRecord]

    def __init__(self) -> None:
        self._installed = InstalledPluginsReader()
        self._outcomes = {}
        self._behaviour = ProvidedBehaviour()
        self._lock = threading.RLock()
        self._loading = set()

    # ------------------------------------------------------------------ what there is

    def records(self) -> list[PluginRecord]:
        """Return all installed plugins, sorted by group and name; nothing is imported."""
        installed = self._installed.read()
        records = [self._outcome_of(record) for record in installed.all_records()]
        records += installed.unusable
        records.sort(
            key=lambda record: (record.group, record.name, record.distribution, record.version)
        )
        return records

    def dataset_names(self) -> list[str]:
        """Return the names of the datasets that plugins provide, sorted.

        Where two plugins provide one name, each is listed as ``distribution:name``.
        """
        return self._installed.read().dataset_names

    def doctor(self) -> list[PluginRecord]:
        """Import all plugins and return their records."""
        for providers in self._installed.read().datasets.values():
            for record in providers:
                with contextlib.suppress(PluginError):
                    self._load_factory_class(record)
        self._load_behaviour(retries_failed=True)
        return self.records()

    # ------------------------------------------------------------------ datasets

    def providers(self, name: str) -> tuple[PluginRecord, ...]:
        """Return the plugins that provide the dataset ``name`` or ``distribution:name``.

        There may be none, one, or several; nothing is imported.
        """
        providers = self._installed.read().providers(name)
        return tuple(self._outcome_of(record) for record in providers)

    def load_dataset(self, name: str) -> type[Any]:
        """Import the factory class of the dataset ``name`` or ``distribution:name``.

        Raises:
            DatasetNotFoundError: no plugin provides it, or it is blocked or malformed; the message
                has the reason.
            AmbiguousDatasetError: several distributions provide it.
            PluginError: its plugin is broken; the plugin's own error is chained.
        """
        providers = self._installed.read().providers(name)
        if not providers:
            raise DatasetNotFoundError(self.explain_missing_dataset(name))
        if len(providers) > 1:
            choices = " or ".join(repr(record.qualified_name) for record in providers)
            raise AmbiguousDatasetError(
                f"{len(providers)} distributions provide a dataset {name!r}: ask for {choices}, "
                f"or leave one out by DATA_STACK_DISABLE_PLUGINS"
            )
        return self._load_factory_class(providers[0])

    def explain_missing_dataset(self, name: str) -> str:
        """Return why no plugin provides the dataset ``name``."""
        reasons = [
            f"{record} cannot be used: {record.error}"
            for record in self._installed.read().unusable
            if name in (record.name, record.qualified_name)
        ]
        return "; ".join(reasons) or f"no plugin provides a dataset {name!r:.80}"

    # ------------------------------------------------------------------ behaviour

    def provided(self, hook: str) -> Mapping[str, Any]:
        """Return what plugins bring through a hook, by name; imports all plugins with hooks.

        Args:
            hook: its name without ``data_stack_``, such as ``"catalogues"``; see
                :mod:`data_stack.plugins.hookspecs`.
        """
        self._load_behaviour(retries_failed=False)
        return self._behaviour.values_of(hook)

    def register_retrievers(self, sources: Iterable[str]) -> None:
        """Register the schemes of plugins with ``retrieve()``, if a source needs them.

        Args:
            sources: if ``retrieve()`` knows the schemes of all of them, no plugin is imported.
        """
        if not any(_needs_plugin(source) for source in sources):
            return
        for scheme, fetch in self.provided("retrievers").items():
            # A function that the program registered for a scheme comes first.
            with contextlib.suppress(ConfigError):
                register_scheme(scheme, fetch)

    # ------------------------------------------------------------------ inside

    def _outcome_of(self, record: PluginRecord) -> PluginRecord:
        """Return a record with the state of its plugin after it was imported, if it was."""
        return self._outcomes.get(record, record)

    def _load_factory_class(self, record: PluginRecord) -> type[Any]:
        """Import the factory class of a dataset."""

        def import_class() -> type[Any]:
            return check_dataset_class(_import_plugin(record))

        return self._load(record, import_class)

    def _load_behaviour(self, *, retries_failed: bool) -> None:
        """Import the plugins with hooks that were not tried yet.

        Args:
            retries_failed: import those that failed, too.
        """
        with self._lock:
            for record in self._installed.read().behaviour:
                if not self._is_to_load(record, retries_failed):
                    continue
                self._loading.add(record)
                try:
                    self._load(record, functools.partial(self._register_hooks, record))
                except PluginError as error:
                    logger.warning("%s", error)
                finally:
                    self._loading.discard(record)

    def _is_to_load(self, record: PluginRecord, retries_failed: bool) -> bool:
        """Return whether a plugin with hooks was not imported yet, or is to be tried again."""
        if record in self._loading:
            return False
        outcome = self._outcomes.get(record)
        if outcome is None:
            return True
        return retries_failed and outcome.state != "ok"

    def _register_hooks(self, record: PluginRecord) -> None:
        """Import a plugin with hooks, and call its hooks."""
        self._behaviour.register(_import_plugin(record), record)

    def _load(self, record: PluginRecord, run_plugin: Callable[[], _Value]) -> _Value:
        """Run a plugin's code, and remember what became of it.

        Args:
            record: the plugin.
            run_plugin: imports it.

        Returns:
            What ``run_plugin`` returned.

        Raises:
            PluginError: the code failed, or called ``sys.exit``. KeyboardInterrupt passes.
        """
        try:
            value = run_plugin()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            problem = describe_error(error)[:_MAX_CHARACTERS_OF_ERROR]
            self._outcomes[record] = replace(record, state="broken", error=problem)
            raise PluginError(
                f"{record} ({record.entry_point}) could not be loaded: {problem}. "
                f"Install missing packages, update it or uninstall it; `data-stack doctor` shows "
                f"the state of all plugins."
            ) from error
        outcome = record
        if record.state == "listed":
            outcome = replace(record, state="ok")
        # (Else it is a shadowed dataset, which stays so when it is loaded as "distribution:name".)
        self._outcomes[record] = outcome
        return value


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
            f"{value.__qualname__} lacks get_dataset_iterator of a dataset factory; "
            f"derive it from DatasetFactory"
        )
    return value


def _needs_plugin(source: str) -> bool:
    """Return whether a source has a scheme that data_stack does not fetch from by itself."""
    scheme = _SCHEME_OF_SOURCE.match(source)
    return scheme is not None and scheme[1].lower() not in BUILT_IN_RETRIEVER_SCHEMES


def _import_plugin(record: PluginRecord) -> Any:
    """Return the object that an entry point names.

    Raises:
        ConfigError: a folder hides its module. Other errors are those of the plugin.
    """
    entry_point = EntryPoint(record.name, record.entry_point, record.group)
    module = importlib.import_module(entry_point.module)
    # Where no module is found before, Python imports any folder of its name, as a package without
    # code. An editable install is found after the folder in which Python runs.
    is_package = hasattr(module, "__path__")
    if is_package and getattr(module, "__file__", None) is None:
        folders = ", ".join(module.__path__)
        raise ConfigError(
            f"the folder {folders} hides the module {entry_point.module!r}; run Python in another "
            "folder, or rename this one"
        )
    return entry_point.load()


@made_once
def default_manager() -> PluginManager:
    """Return the manager that ``data_stack.load`` and the command line use."""
    return PluginManager()


add_codec_provider(lambda: default_manager().provided("codecs"))
add_storage_provider(lambda: default_manager().provided("storage_connectors"))
