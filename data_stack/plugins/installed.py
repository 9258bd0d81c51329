"""Which plugins are installed, read from the metadata of distributions: nothing is imported."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from dataclasses import dataclass, replace
from typing import Final, Literal

from data_stack.exception import MalformedIdentifierError
from data_stack.io.identifiers import check_identifier
from data_stack.util.logger import logger
from data_stack.util.versions import version_key

DATASETS_GROUP: Final = "data_stack.datasets"
"""Entry points that are datasets: ``mnist = "pkg.module:MNISTFactory"``."""

BEHAVIOUR_GROUP: Final = "data_stack"
"""Entry points that implement the hooks of :mod:`data_stack.plugins.hookspecs`: ``mongodb = "pkg.module"``."""

PluginState = Literal["ok", "listed", "broken", "blocked", "shadowed"]


@dataclass(frozen=True, slots=True)
class PluginRecord:
    """One entry point of an installed distribution, and its state.

    Attributes:
        name: of the entry point; a dataset is loaded by it.
        group: ``"data_stack.datasets"`` or ``"data_stack"``.
        distribution: the installed package that brings it.
        version: of the distribution.
        state: ``listed``: installed, not imported yet; ``ok``: imported, and it keeps its contract; ``broken``: its name is
            malformed, importing or calling it failed, it is not a dataset factory, or its hooks are not those of this version of
            data_stack; ``blocked``: ``DATA_STACK_DISABLE_PLUGINS`` names it; ``shadowed``: another distribution provides a
            dataset of the same name, or another copy of the distribution is used.
        error: why it is in its state; None for ``ok`` and ``listed``.
        entry_point: where its code is, ``"package.module:attribute"``.
    """

    name: str
    group: str
    distribution: str
    version: str
    state: PluginState = "listed"
    error: str | None = None
    entry_point: str = ""

    @property
    def qualified_name(self) -> str:
        """``"distribution:name"``, which reaches a dataset whose name alone is ambiguous."""
        return f"{self.distribution}:{self.name}"

    def __str__(self) -> str:
        kind = "dataset" if self.group == DATASETS_GROUP else "plugin"
        return f"{kind} {self.name!r} of {self.distribution} {self.version}"


def read_disabled() -> frozenset[str]:
    """What ``DATA_STACK_DISABLE_PLUGINS`` lists: distributions, names, ``distribution:name``; "1": all but the built-in ones."""
    names = os.environ.get("DATA_STACK_DISABLE_PLUGINS", "").split(",")
    return frozenset(_normalise(name) for name in names if name.strip())


@dataclass(frozen=True, slots=True)
class _InstalledCopy:
    """A distribution as a folder of ``sys.path`` has it, with its entry points in our groups.

    Attributes:
        name: of the distribution, as its metadata spell it.
        version: of the distribution.
        folder: that holds its metadata.
        entry_points: name, group and value of each.
    """

    name: str
    version: str
    folder: str
    entry_points: frozenset[tuple[str, str, str]]

    def is_same_as(self, other: _InstalledCopy) -> bool:
        """Whether both bring the same, as an editable package and its source folder do."""
        return (self.version, self.entry_points) == (other.version, other.entry_points)

    def records(self) -> list[PluginRecord]:
        """A record for each entry point."""
        return [
            PluginRecord(name, group, self.name, self.version, entry_point=value)
            for name, group, value in sorted(self.entry_points)
        ]


class InstalledPlugins:
    """The plugins that the distributions on ``sys.path`` bring, at one moment; skips those that cannot be read.

    Args:
        disabled: see :func:`read_disabled`.

    Attributes:
        datasets: name of a dataset to its providers; more than one where the name is ambiguous.
        behaviour: plugins that implement hooks, sorted by distribution.
        unusable: plugins that are broken, blocked, or of another copy of a distribution than the
            one in use.
    """

    def __init__(self, disabled: frozenset[str] = frozenset()) -> None:
        self.datasets: dict[str, tuple[PluginRecord, ...]] = {}
        self.behaviour, self.unusable = list[PluginRecord](), list[PluginRecord]()
        records: list[PluginRecord] = []
        for copies in _find_copies().values():
            in_use = _choose_copy(copies)
            records += in_use.records()
            for copy in copies:
                if not copy.is_same_as(in_use):
                    self.unusable += _shadowed_records(copy, in_use)
        records.sort(key=lambda record: (_normalise(record.distribution), record.name))
        for record in records:
            own = _normalise(record.distribution)
            try:
                if "/" in check_identifier(record.name):
                    raise MalformedIdentifierError("a name has no '/'")
            except MalformedIdentifierError as error:
                self.unusable.append(
                    replace(record, state="broken", error=f"its name cannot be used: {error}")
                )
                continue
            is_disabled = {
                own,
                _normalise(record.name),
                _normalise(record.qualified_name),
            } & disabled
            if is_disabled or ("1" in disabled and own != "lazy-data-stack"):
                self.unusable.append(
                    replace(record, state="blocked", error="DATA_STACK_DISABLE_PLUGINS disables it")
                )
            elif record.group == BEHAVIOUR_GROUP:
                self.behaviour.append(record)
            else:
                self.datasets[record.name] = (*self.datasets.get(record.name, ()), record)
        for name, found in self.datasets.items():
            if len(found) > 1:
                several = f"several distributions provide it ({', '.join(each.distribution for each in found)})"
                advice = "or DATA_STACK_DISABLE_PLUGINS=one"
                self.datasets[name] = tuple(
                    replace(
                        each,
                        state="shadowed",
                        error=f"{several}: ask for {each.qualified_name!r}, {advice}",
                    )
                    for each in found
                )

    @property
    def dataset_names(self) -> list[str]:
        """Names to load datasets by, sorted; ambiguous ones as ``distribution:name``."""
        found = [(each, len(several) > 1) for several in self.datasets.values() for each in several]
        return sorted(
            each.qualified_name if is_ambiguous else each.name for each, is_ambiguous in found
        )

    def providers(self, name: str) -> tuple[PluginRecord, ...]:
        """The plugins that provide the dataset ``name`` or ``distribution:name``; may be empty."""
        distribution, colon, plain_name = name.rpartition(":")
        if not colon:
            return self.datasets.get(name, ())
        wanted = _normalise(distribution)
        return tuple(
            r for r in self.datasets.get(plain_name, ()) if _normalise(r.distribution) == wanted
        )


def _find_copies() -> dict[str, list[_InstalledCopy]]:
    """The distributions with entry points in our groups, by normalised name, in the order of ``sys.path``."""
    copies: dict[str, list[_InstalledCopy]] = {}
    for distribution in importlib.metadata.distributions():
        try:
            # both groups begin so
            if BEHAVIOUR_GROUP not in (distribution.read_text("entry_points.txt") or ""):
                continue
            copy = _InstalledCopy(
                name=str(distribution.metadata["Name"]),
                version=str(distribution.version),
                folder=str(distribution.locate_file("")),
                entry_points=frozenset(
                    (entry_point.name, entry_point.group, entry_point.value)
                    for entry_point in distribution.entry_points
                    if entry_point.group in (DATASETS_GROUP, BEHAVIOUR_GROUP)
                ),
            )
        except Exception as error:  # noqa: BLE001 - any finder of distributions may be installed; none may disturb the others
            logger.warning(
                "cannot read the entry points of %s: %s",
                getattr(distribution, "_path", distribution),
                error,
            )
            continue
        if copy.entry_points:
            copies.setdefault(_normalise(copy.name), []).append(copy)
    return copies


def _choose_copy(copies: list[_InstalledCopy]) -> _InstalledCopy:
    """The copy whose modules Python imports.

    Python imports from the first folder of ``sys.path``. Of several versions in that folder, only
    the metadata of the older ones were left behind: an installation overwrites the modules.
    """
    beside = [copy for copy in copies if copy.folder == copies[0].folder]
    return max(beside, key=lambda copy: version_key(copy.version))


def _shadowed_records(copy: _InstalledCopy, in_use: _InstalledCopy) -> list[PluginRecord]:
    """Records that say which copy of a distribution is not used, and what to do."""
    problem = (
        f"{copy.name} is installed twice: {in_use.version} in {in_use.folder} is used, "
        f"{copy.version} in {copy.folder} is not. Run `{sys.executable} -m pip uninstall "
        f"{copy.name}` until it finds no package, then install it again"
    )
    return [replace(record, state="shadowed", error=problem) for record in copy.records()]


def _normalise(name: str) -> str:
    """Names as https://packaging.python.org/specifications/name-normalization compares them."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()
