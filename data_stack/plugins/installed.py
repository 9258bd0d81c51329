"""Which plugins are installed, read from the metadata of distributions: nothing is imported."""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from data_stack.exception import MalformedIdentifierError
from data_stack.io.identifiers import check_identifier
from data_stack.util.logger import logger

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
            dataset of the same name.
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


class InstalledPlugins:
    """The plugins that the distributions on ``sys.path`` bring, at one moment; skips those that cannot be read.

    Args:
        disabled: see :func:`read_disabled`.

    Attributes:
        datasets: name of a dataset to its providers; more than one where the name is ambiguous.
        behaviour: plugins that implement hooks, sorted by distribution.
        unusable: plugins that are broken or blocked.
    """

    def __init__(self, disabled: frozenset[str] = frozenset()) -> None:
        self.datasets: dict[str, tuple[PluginRecord, ...]] = {}
        self.behaviour, self.unusable = list[PluginRecord](), list[PluginRecord]()
        for record in sorted(
            _find(), key=lambda record: (_normalise(record.distribution), record.name)
        ):
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


def _find() -> Iterator[PluginRecord]:
    """All entry points of our groups; of two copies of a distribution on ``sys.path`` the first one counts."""
    seen = set()
    for distribution in importlib.metadata.distributions():
        try:
            if BEHAVIOUR_GROUP not in (
                distribution.read_text("entry_points.txt") or ""
            ):  # both groups begin so
                continue
            entry_points = [
                each
                for each in distribution.entry_points
                if each.group in (DATASETS_GROUP, BEHAVIOUR_GROUP)
            ]
            name, version = str(distribution.metadata["Name"]), str(distribution.version)
        except Exception as error:  # noqa: BLE001 - any finder of distributions may be installed; none may disturb the others
            logger.warning(
                "cannot read the entry points of %s: %s",
                getattr(distribution, "_path", distribution),
                error,
            )
            continue
        if entry_points and _normalise(name) not in seen:
            seen.add(_normalise(name))
            yield from {
                PluginRecord(each.name, each.group, name, version, entry_point=each.value)
                for each in entry_points
            }


def _normalise(name: str) -> str:
    """Names as https://packaging.python.org/specifications/name-normalization compares them."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()
