"""Loads plugins one by one, so that a broken one is a row in a list and never a crash."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import re
import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pluggy

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
from data_stack.io.storage_connectors.url import BUILT_IN_STORAGE_SCHEMES, Connect
from data_stack.plugins import hookspecs
from data_stack.plugins.dataset_class import check_dataset_class
from data_stack.plugins.installed import InstalledPlugins, Switches
from data_stack.plugins.record import PluginRecord
from data_stack.util.logger import logger
from data_stack.util.suggestions import did_you_mean

if TYPE_CHECKING:
    from data_stack.codecs import Codec
    from data_stack.dataset.encoders import Encoder
    from data_stack.dataset.engine import PreparationEngine
    from data_stack.dataset.factory import BaseDatasetFactory
    from data_stack.io.retriever.transfer import Fetch

__all__ = ["PluginManager", "default_manager"]

_Value = TypeVar("_Value")
#: What data_stack.io.retriever fetches from by itself.
_RETRIEVER_SCHEMES = {"file", "http", "https", "package"}
_SOURCE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):", re.ASCII)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+", re.ASCII)
_KIND = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)
_TYPE = re.compile(r"[a-z_][A-Za-z0-9_.-]*", re.ASCII)
_HOOKS = frozenset(name for name in vars(hookspecs) if name.startswith("data_stack_"))


class _IncompatibleError(DataStackError):
    """A plugin was imported, but is not what this version of data_stack asks for."""


class _Claim(NamedTuple):
    """What plugins may name by one hook.

    Attributes:
        called: what a name stands for: ``"engine"``.
        item: a name and its value in words, with an example.
        name: what a name looks like.
        check: says whether data_stack has a name by itself; raises TypeError for a value that is none of the kind.
    """

    called: str
    item: str
    name: re.Pattern[str]
    check: Callable[[str, Any], bool]

    def check_results(self, results: list[object], taken: Container[object]) -> dict[str, Any]:
        """What a plugin's hook returned.

        Raises:
            _IncompatibleError: it is something else, or a name is taken.
        """
        claimed: dict[str, Any] = {}
        for result in results:
            if not isinstance(result, Mapping):
                raise _IncompatibleError(f"its hook returned {type(result).__name__}, not a mapping of names ({self.item})")
            for name, value in dict(result).items():
                try:
                    if not isinstance(name, str) or not self.name.fullmatch(name):
                        raise TypeError(f"not {self.item}")
                    is_taken = name in taken or self.check(name, value)
                except TypeError as error:
                    raise _IncompatibleError(f"its hook returned {name!r:.80}: {value!r:.80}, {error}") from error
                if is_taken:
                    raise _IncompatibleError(f"the {self.called} {name!r} is taken, by data_stack or another plugin")
                claimed[name] = value
        return claimed


def _is_function_besides(names: Container[str]) -> Callable[[str, Any], bool]:
    def check(name: str, value: Any) -> bool:
        if not callable(value):
            raise TypeError("not a function")
        return name in names

    return check


def _check_encoder(kind: str, value: Any) -> bool:
    from data_stack.dataset.encoders.encoder import BUILT_IN_KINDS, Encoder  # brings numpy, as the plugin's class has done

    if not isinstance(value, type) or not issubclass(value, Encoder):
        raise TypeError("not a class of Encoder")
    if inspect.isabstract(value):
        raise TypeError(f"which is abstract: it lacks {', '.join(sorted(value.__abstractmethods__))}")
    if getattr(value, "kind", None) != kind:
        raise TypeError(f"whose kind is {getattr(value, 'kind', None)!r:.80}")
    return kind in BUILT_IN_KINDS


def _check_codec(name: str, value: Any) -> bool:
    from data_stack.codecs import Codec
    from data_stack.codecs.registry import registered_types

    if not isinstance(value, Codec):
        raise TypeError("not an object derived from Codec")
    return name in registered_types()


_STORAGE, _RETRIEVERS = "data_stack_storage_connectors", "data_stack_retrievers"
_ENCODERS, _CODECS, _ENGINES = "data_stack_encoders", "data_stack_codecs", "data_stack_engines"
#: By hook.
_CLAIMS: Mapping[str, _Claim] = {
    _STORAGE: _Claim("scheme", "a scheme such as 's3' and a function", _SCHEME, _is_function_besides(BUILT_IN_STORAGE_SCHEMES)),
    _RETRIEVERS: _Claim("scheme", "a scheme such as 's3' and a function", _SCHEME, _is_function_besides(_RETRIEVER_SCHEMES)),
    _ENGINES: _Claim("engine", "an engine such as 'spark' and a function", _SCHEME, _is_function_besides({"processes"})),
    _ENCODERS: _Claim("kind of encoder", "a kind such as 'tfidf' and a class of Encoder", _KIND, _check_encoder),
    _CODECS: _Claim("type of record column", "a type such as 'dicom' and an object derived from Codec", _TYPE, _check_codec),
}


class PluginManager:
    """The plugins of this process.

    Listing reads metadata and imports nothing. A dataset's module is imported when the dataset is asked for; one that
    failed is tried again when it is asked for again, so that installing what it lacks heals it. Modules with hooks are
    imported together when a scheme, engine, kind of encoder or type of record column that is not built in is first asked for.

    A plugin may do anything while it is imported (installing it is trusting it): one that hangs cannot be interrupted,
    but it is not imported before it is asked for, and does not keep another thread from other datasets.
    Threads may share a manager.
    """

    def __init__(self) -> None:
        self._outcomes: dict[PluginRecord, PluginRecord] = {}  # of what was imported, by how it was listed
        self._cached: tuple[Switches, InstalledPlugins] | None = None
        self._hooks = pluggy.PluginManager("data_stack")
        self._hooks.add_hookspecs(hookspecs)
        # Re-entrant, and _loading guards against recursion: a plugin may ask for a scheme while it is imported.
        self._lock = threading.RLock()
        self._loading: set[PluginRecord] = set()
        self._claimed: dict[str, Mapping[str, Any]] = dict.fromkeys(_CLAIMS, MappingProxyType({}))

    # ------------------------------------------------------------------ what there is

    def records(self) -> list[PluginRecord]:
        """All installed plugins, sorted by group and name, as far as they are known: nothing is imported."""
        installed = self._find_installed(refresh=True)
        listed = [record for providers in installed.datasets.values() for record in providers]
        records = [self._outcomes.get(record, record) for record in (*listed, *installed.behaviour)]
        return sorted((*records, *installed.unusable), key=lambda r: (r.group, r.name, r.distribution, r.version))

    def dataset_names(self) -> list[str]:
        """Names of the datasets that plugins provide, sorted; where two provide one name, each as ``distribution:name``."""
        return self._find_installed(refresh=True).dataset_names

    def doctor(self) -> list[PluginRecord]:
        """Import every plugin and say how it is."""
        for providers in self._find_installed(refresh=True).datasets.values():
            for record in providers:
                with contextlib.suppress(PluginError):
                    self._load_dataset(record)
        self._load_behaviour(again=True)
        return self.records()

    # ------------------------------------------------------------------ datasets

    def providers(self, name: str) -> tuple[PluginRecord, ...]:
        """Who provides the dataset ``name`` or ``distribution:name``; nothing is imported.

        Empty if nobody does, more than one if several distributions do.
        """
        return tuple(self._outcomes.get(record, record) for record in self._providers(name))

    def load_dataset(self, name: str) -> type[BaseDatasetFactory]:
        """Import the factory class of the dataset ``name`` or ``distribution:name``.

        Raises:
            DatasetNotFoundError: nobody provides it, or it is blocked or malformed; the message says which.
            AmbiguousDatasetError: several distributions provide it.
            PluginError: its plugin is broken; the plugin's own error is chained.
        """
        found = self._providers(name)
        if len(found) == 1:
            return self._load_dataset(found[0])
        if found:
            choices = " or ".join(repr(record.qualified_name) for record in found)
            raise AmbiguousDatasetError(
                f"{len(found)} distributions provide a dataset {name!r}: ask for {choices}, "
                f"or leave one out by DATA_STACK_DISABLE_PLUGINS"
            )
        unusable = [record for record in self._find_installed().unusable if name in (record.name, record.qualified_name)]
        reasons = [f"{record} cannot be used: {record.error}" for record in unusable]
        raise DatasetNotFoundError("; ".join(reasons) or f"no plugin provides a dataset {name!r:.80}")

    # ------------------------------------------------------------------ behaviour

    def storage_schemes(self) -> Mapping[str, Connect]:
        """The URL schemes that plugins can store at; imports all plugins that implement hooks."""
        return self._claims_of(_STORAGE)

    def retriever_schemes(self) -> Mapping[str, Fetch]:
        """The URL schemes that plugins can fetch from; imports all plugins that implement hooks."""
        return self._claims_of(_RETRIEVERS)

    def engines(self) -> Mapping[str, Callable[..., PreparationEngine]]:
        """The engines of preparations that plugins bring, by name; imports all plugins that implement hooks."""
        return self._claims_of(_ENGINES)

    def encoder_kinds(self) -> Mapping[str, type[Encoder]]:
        """The encoders that plugins bring, by kind; imports all plugins that implement hooks."""
        return self._claims_of(_ENCODERS)

    def codecs(self) -> Mapping[str, Codec]:
        """The codecs of record columns that plugins bring, by type; imports all plugins that implement hooks."""
        return self._claims_of(_CODECS)

    def _claims_of(self, hook: str) -> Mapping[str, Any]:
        self._load_behaviour()
        return self._claimed[hook]

    def register_retrievers(self, sources: Iterable[str]) -> None:
        """Have ``retrieve()`` fetch the schemes of plugins, if one of ``sources`` is of no built-in scheme."""
        if any(match is not None and match[1].lower() not in _RETRIEVER_SCHEMES for match in map(_SOURCE.match, sources)):
            for scheme, fetch in self.retriever_schemes().items():
                with contextlib.suppress(ConfigError):  # the program registered one of its own, which goes before
                    register_scheme(scheme, fetch)

    # ------------------------------------------------------------------ inside

    def _providers(self, name: str) -> tuple[PluginRecord, ...]:
        # If nobody does, it may have been installed since we last looked.
        return self._find_installed().providers(name) or self._find_installed(refresh=True).providers(name)

    def _find_installed(self, *, refresh: bool = False) -> InstalledPlugins:
        switches = Switches.from_environment()
        if refresh or self._cached is None or self._cached[0] != switches:
            importlib.invalidate_caches()  # a package installed a moment ago is found, and can be imported
            self._cached = switches, InstalledPlugins.read(switches)
        return self._cached[1]

    def _load_dataset(self, record: PluginRecord) -> type[BaseDatasetFactory]:
        def load() -> type[BaseDatasetFactory]:
            value = _import_plugin(record)
            try:
                return check_dataset_class(value)
            except ConfigError as error:
                raise _IncompatibleError(str(error)) from error

        return self._record(record, load)

    def _load_behaviour(self, *, again: bool = False) -> None:
        """Import the plugins with hooks that were not tried yet; ``again``: also those that failed."""
        with self._lock:
            installed = self._find_installed(refresh=True)
            for record in installed.behaviour:
                outcome = self._outcomes.get(record)
                if record in self._loading or (outcome is not None and not (again and outcome.state != "ok")):
                    continue
                self._loading.add(record)
                try:
                    self._record(record, functools.partial(self._register, record))
                except PluginError as error:
                    logger.warning("%s", error)
                finally:
                    self._loading.discard(record)

    def _record(self, record: PluginRecord, load: Callable[[], _Value]) -> _Value:
        """Run a plugin's code and keep what became of it.

        Raises:
            PluginError: it failed, in whatever way but Ctrl-C.
        """
        started = time.perf_counter()
        try:
            value = load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            incompatible = isinstance(error, _IncompatibleError)
            problem = str(error) if incompatible else describe_error(error)[:500]
            milliseconds = round(1000 * (time.perf_counter() - started), 3)
            self._outcomes[record] = replace(
                record, state="incompatible" if incompatible else "broken", error=problem, import_ms=milliseconds
            )
            raise PluginError(
                f"{record} ({record.entry_point}) could not be loaded: {problem}. Other plugins are not affected. "
                f"Install what it lacks, update it or uninstall it; `data-stack doctor` shows how all plugins are."
            ) from error
        outcome = self._outcomes.get(record)
        if outcome is None or outcome.state not in ("ok", "shadowed"):
            milliseconds = round(1000 * (time.perf_counter() - started), 3)
            state = "ok" if record.state == "listed" else record.state
            self._outcomes[record] = replace(record, state=state, import_ms=milliseconds)
        return value

    def _register(self, record: PluginRecord) -> None:
        plugin = _import_plugin(record)
        name = record.qualified_name
        try:
            try:
                self._hooks.register(plugin, name)
            except pluggy.PluginValidationError as error:
                raise _IncompatibleError(str(error)) from error
            self._check_hooks(plugin)
            claimed = {
                hook: claims.check_results(self._results(plugin, hook), self._claimed[hook]) for hook, claims in _CLAIMS.items()
            }
        except BaseException:
            if self._hooks.get_plugin(name) is plugin:  # pluggy keeps a plugin whose validation failed
                self._hooks.unregister(plugin, name)
            raise
        claimed[_STORAGE] = {scheme: _Connect(record, connect) for scheme, connect in claimed[_STORAGE].items()}
        for hook, values in claimed.items():
            self._claimed[hook] = MappingProxyType({**self._claimed[hook], **values})

    def _check_hooks(self, plugin: object) -> None:
        callers = self._hooks.get_hookcallers(plugin) or []
        for caller in callers:
            # optionalhook is pluggy's way to implement what another version of data_stack may not have.
            if not caller.has_spec() and not all(each.optionalhook for each in caller.get_hookimpls() if each.plugin is plugin):
                raise _IncompatibleError(
                    f"there is no hook {caller.name}{did_you_mean(caller.name, _HOOKS)}; there are: {', '.join(sorted(_HOOKS))}"
                )
        if not callers:
            raise _IncompatibleError(f"it marks none of the hooks {', '.join(sorted(_HOOKS))} by @data_stack.plugins.hookimpl")

    def _results(self, plugin: object, hook: str) -> list[object]:
        """What this plugin's implementation of a hook returns, in a list; empty if it has none."""
        implementations = getattr(self._hooks.hook, hook).get_hookimpls()
        return [implementation.function() for implementation in implementations if implementation.plugin is plugin]


@dataclass(frozen=True)
class _Connect:
    """A plugin's way to make a storage connector, whose failures are told as the plugin's."""

    record: PluginRecord
    connect: Callable[[str], Any]

    def __call__(self, url: str) -> StorageConnector:
        try:
            connector = self.connect(url)
        except DataStackError:
            raise
        except Exception as error:
            # Not its message: that often holds the URL, and the URL a password.
            raise PluginError(f"{self.record} could not make a storage connector ({type(error).__name__})") from error
        if not all(callable(getattr(connector, name, None)) for name in ("get_resource", "set_resource", "has_resource")):
            raise PluginError(f"{self.record} made {type(connector).__name__}, which is no StorageConnector")
        made: StorageConnector = connector
        return made


def _import_plugin(record: PluginRecord) -> Any:
    module, _, attribute = (part.strip() for part in record.entry_point.partition("[")[0].partition(":"))
    value: Any = importlib.import_module(module)
    for name in attribute.split(".") if attribute else ():
        value = getattr(value, name)
    return value


@functools.cache
def default_manager() -> PluginManager:
    """The one that ``data_stack.load`` and the command line use."""
    return PluginManager()
