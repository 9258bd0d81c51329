"""Which plugins are installed, read from the metadata of distributions: nothing is imported."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace

from data_stack.exception import MalformedIdentifierError
from data_stack.io.identifiers import check_identifier
from data_stack.plugins.record import BEHAVIOUR_GROUP, DATASETS_GROUP, PluginRecord
from data_stack.util.logger import logger
from data_stack.util.versions import version_key

#: In ``DATA_STACK_DISABLE_PLUGINS``, this word disables all plugins of other distributions.
_ALL_OTHERS = "1"
#: The distribution whose plugins that word leaves enabled.
_OWN_DISTRIBUTION = "lazy-data-stack"


class InstalledPlugins:
    """The plugins that the distributions on ``sys.path`` bring, at one moment.

    Distributions whose metadata cannot be read are skipped, and the log says so.

    Args:
        disabled: see :func:`read_disabled`.

    Attributes:
        datasets: the providers of each dataset, by its name; more than one where the name is
            ambiguous.
        behaviour: plugins that implement hooks, sorted by distribution.
        unusable: plugins that are broken, blocked, or of another copy of a distribution than the
            one in use.
    """

    datasets: dict[str, tuple[PluginRecord, ...]]
    behaviour: list[PluginRecord]
    unusable: list[PluginRecord]

    def __init__(self, disabled: frozenset[str] = frozenset()) -> None:
        self.datasets = {}
        self.behaviour = []
        listed_records, self.unusable = _read_metadata()
        for record in listed_records:
            problem = _find_problem_of_name(record.name)
            if problem is not None:
                self.unusable.append(replace(record, state="broken", error=problem))
            elif _is_disabled(record, disabled):
                problem = "DATA_STACK_DISABLE_PLUGINS disables it"
                self.unusable.append(replace(record, state="blocked", error=problem))
            elif record.group == BEHAVIOUR_GROUP:
                self.behaviour.append(record)
            else:
                providers = self.datasets.get(record.name, ())
                self.datasets[record.name] = (*providers, record)
        for name, providers in self.datasets.items():
            if len(providers) > 1:
                self.datasets[name] = _mark_ambiguous(providers)

    @property
    def dataset_names(self) -> list[str]:
        """Names to load datasets by, sorted; ambiguous ones as ``distribution:name``."""
        names: list[str] = []
        for name, providers in self.datasets.items():
            if len(providers) == 1:
                names.append(name)
            else:
                names += [record.qualified_name for record in providers]
        return sorted(names)

    def providers(self, name: str) -> tuple[PluginRecord, ...]:
        """Return the plugins that provide the dataset ``name`` or ``distribution:name``."""
        distribution, colon, plain_name = name.rpartition(":")
        if not colon:
            return self.datasets.get(name, ())
        return tuple(
            record
            for record in self.datasets.get(plain_name, ())
            if _normalise(record.distribution) == _normalise(distribution)
        )

    def all_records(self) -> list[PluginRecord]:
        """Return all plugins that can be imported."""
        records: list[PluginRecord] = []
        for providers in self.datasets.values():
            records += providers
        return records + self.behaviour


class InstalledPluginsReader:
    """Reads the metadata of distributions again when something was installed or disabled."""

    #: What was read last; None before.
    _installed: InstalledPlugins | None
    #: What it was read from: the disabled plugins, and each folder of packages with the time of its
    #: last change, in ns since 1970.
    _state: tuple[frozenset[str], list[tuple[str, int]]] | None

    def __init__(self) -> None:
        self._installed = None
        self._state = None

    def read(self) -> InstalledPlugins:
        """Return the plugins that are installed now."""
        disabled = read_disabled()
        folders = [(folder, _changed_at_ns(folder)) for folder in sys.path]
        state = (disabled, folders)
        if self._installed is None or self._state != state:
            # A package that was installed a moment ago is found, and can be imported.
            importlib.invalidate_caches()
            self._installed = InstalledPlugins(disabled)
            self._state = state
        return self._installed


def _changed_at_ns(folder: str) -> int:
    """Return when a file was added to a folder or removed from it; 0 if there is no such folder."""
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0


def read_disabled() -> frozenset[str]:
    """Return what ``DATA_STACK_DISABLE_PLUGINS`` lists, normalised.

    These are names of distributions, names of entry points, and ``distribution:name``. ``1`` stands
    for all plugins but the built-in ones.
    """
    names = os.environ.get("DATA_STACK_DISABLE_PLUGINS", "").split(",")
    return frozenset(_normalise(name) for name in names if name.strip())


def _is_disabled(record: PluginRecord, disabled: frozenset[str]) -> bool:
    distribution = _normalise(record.distribution)
    names = {distribution, _normalise(record.name), _normalise(record.qualified_name)}
    if names & disabled:
        return True
    return _ALL_OTHERS in disabled and distribution != _OWN_DISTRIBUTION


def _find_problem_of_name(name: str) -> str | None:
    """Return why a store cannot keep a dataset of this name; None if it can."""
    try:
        check_identifier(name)
    except MalformedIdentifierError as error:
        return f"its name cannot be used: {error}"
    if "/" in name:
        return "its name cannot be used: a name has no '/'"
    return None


def _mark_ambiguous(providers: Iterable[PluginRecord]) -> tuple[PluginRecord, ...]:
    """Return the providers of one name with the problem that there are several."""
    distributions = ", ".join(record.distribution for record in providers)
    return tuple(
        replace(
            record,
            state="shadowed",
            error=(
                f"several distributions provide it ({distributions}): ask for "
                f"{record.qualified_name!r}, or disable the others by DATA_STACK_DISABLE_PLUGINS"
            ),
        )
        for record in providers
    )


# ---------------------------------------------------------------------- copies of distributions


def _read_metadata() -> tuple[list[PluginRecord], list[PluginRecord]]:
    """Return the records of the copies in use, sorted, and those of all other copies."""
    records: list[PluginRecord] = []
    shadowed_records: list[PluginRecord] = []
    for copies in _find_copies().values():
        in_use = _choose_copy(copies)
        records += in_use.records()
        for copy in copies:
            if not copy.is_same_as(in_use):
                shadowed_records += _shadowed_records(copy, in_use)
    records.sort(key=lambda record: (_normalise(record.distribution), record.name))
    return records, shadowed_records


@dataclass(frozen=True, slots=True)
class _InstalledCopy:
    """A distribution as a folder of ``sys.path`` has it, with its entry points in our groups.

    Attributes:
        name: the name of the distribution, as its metadata spell it.
        version: the version of the distribution.
        folder: the folder with its metadata.
        entry_points: name, group and value of each.
    """

    name: str
    version: str
    folder: str
    entry_points: frozenset[tuple[str, str, str]]

    def is_same_as(self, other: _InstalledCopy) -> bool:
        """Return whether both bring the same.

        The metadata of an editable package and of its source folder do.
        """
        return self.version == other.version and self.entry_points == other.entry_points

    def records(self) -> list[PluginRecord]:
        """Return a record for each entry point."""
        return [
            PluginRecord(name, group, self.name, self.version, entry_point=value)
            for name, group, value in sorted(self.entry_points)
        ]


def _find_copies() -> dict[str, list[_InstalledCopy]]:
    """Return by normalised name the distributions with plugins, in the order of ``sys.path``."""
    copies: dict[str, list[_InstalledCopy]] = {}
    for distribution in importlib.metadata.distributions():
        try:
            copy = _read_copy(distribution)
        except Exception as error:  # noqa: BLE001  # an installed finder may raise anything
            path = getattr(distribution, "_path", distribution)
            logger.warning("cannot read the entry points of %s: %s", path, error)
            continue
        if copy is not None:
            copies.setdefault(_normalise(copy.name), []).append(copy)
    return copies


def _read_copy(distribution: importlib.metadata.Distribution) -> _InstalledCopy | None:
    """Return a distribution with its plugins; None if it brings none."""
    # The names of both groups begin with BEHAVIOUR_GROUP, so a text without it needs no parsing.
    # Most distributions have none.
    if BEHAVIOUR_GROUP not in (distribution.read_text("entry_points.txt") or ""):
        return None
    entry_points = frozenset(
        (entry_point.name, entry_point.group, entry_point.value)
        for entry_point in distribution.entry_points
        if entry_point.group in (DATASETS_GROUP, BEHAVIOUR_GROUP)
    )
    if not entry_points:
        return None
    return _InstalledCopy(
        name=str(distribution.metadata["Name"]),
        version=str(distribution.version),
        folder=str(distribution.locate_file("")),
        entry_points=entry_points,
    )


def _choose_copy(copies: list[_InstalledCopy]) -> _InstalledCopy:
    """Return the copy whose modules Python imports.

    Python imports from the first folder of ``sys.path``. Of several versions in that folder, only
    the metadata of the older ones were left behind: an installation overwrites the modules.
    """
    in_first_folder = [copy for copy in copies if copy.folder == copies[0].folder]
    return max(in_first_folder, key=lambda copy: version_key(copy.version))


def _shadowed_records(copy: _InstalledCopy, in_use: _InstalledCopy) -> list[PluginRecord]:
    """Return records that say which copy of a distribution is not used, and what to do."""
    problem = (
        f"{copy.name} is installed twice: {in_use.version} in {in_use.folder} is used, "
        f"{copy.version} in {copy.folder} is not. Run `{sys.executable} -m pip uninstall "
        f"{copy.name}` until it finds no package, then install it again"
    )
    return [replace(record, state="shadowed", error=problem) for record in copy.records()]


def _normalise(name: str) -> str:
    """Return a name as distributions are compared.

    See https://packaging.python.org/specifications/name-normalization.
    """
    return re.sub(r"[-_.]+", "-", name.strip()).lower()
