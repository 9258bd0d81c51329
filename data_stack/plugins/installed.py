"""Which plugins are installed, read from the metadata of distributions: nothing is imported."""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from data_stack.exception import MalformedIdentifierError
from data_stack.io.identifiers import check_identifier
from data_stack.plugins.record import BEHAVIOUR_GROUP, DATASETS_GROUP, PluginRecord
from data_stack.util.logger import logger

__all__ = ["InstalledPlugins", "Switches"]

_OURS = "datastack"
_DOTTED = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_OBJECT = re.compile(rf"({_DOTTED})\s*:\s*({_DOTTED})\s*(?:\[.*\])?")
_MODULE = re.compile(rf"({_DOTTED})\s*(?::\s*({_DOTTED}))?\s*(?:\[.*\])?")
_OFF = ("", "0", "false", "no", "off")
_ON = ("1", "true", "yes", "on", "all")


@dataclass(frozen=True, slots=True)
class Switches:
    """Which plugins may be used; built-in datasets are plugins too, but only ``disabled`` by name takes them away.

    Attributes:
        allowed: distributions, names, or ``distribution:name``; None allows all.
        disabled: likewise; these are not used.
        only_built_in: use no plugin but the built-in ones.
    """

    allowed: frozenset[str] | None = None
    disabled: frozenset[str] = frozenset()
    only_built_in: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Switches:
        """Read ``DATA_STACK_PLUGINS``, ``DATA_STACK_DISABLE_PLUGINS``, separated by commas.

        ``DATA_STACK_DISABLE_PLUGINS=1`` disables all plugins that are not built in. An empty variable is as good as none.
        """
        allowed, disabled = (environment.get(f"DATA_STACK_{name}", "").strip() for name in ("PLUGINS", "DISABLE_PLUGINS"))
        only_built_in = disabled.lower() in _ON
        return cls(
            allowed=_names(allowed) or None,
            disabled=frozenset() if only_built_in or disabled.lower() in _OFF else _names(disabled),
            only_built_in=only_built_in,
        )

    def reason_to_block(self, record: PluginRecord) -> str | None:
        """Which variable blocks a plugin; None if none does."""
        names = {_normalise(name) for name in (record.distribution, record.name, record.qualified_name)}
        built_in = _normalise(record.distribution) == _OURS
        if names & self.disabled or (self.only_built_in and not built_in):
            return "DATA_STACK_DISABLE_PLUGINS disables it"
        if self.allowed is not None and not built_in and not names & self.allowed:
            return "DATA_STACK_PLUGINS does not name it"
        return None


@dataclass(frozen=True, slots=True)
class InstalledPlugins:
    """The plugins that the distributions on ``sys.path`` bring, at one moment.

    Attributes:
        datasets: name of a dataset to its providers; more than one where the name is ambiguous.
        behaviour: plugins that implement hooks, sorted by distribution.
        unusable: what is broken or blocked, or hidden by an earlier copy of its distribution.
    """

    datasets: Mapping[str, tuple[PluginRecord, ...]]
    behaviour: tuple[PluginRecord, ...]
    unusable: tuple[PluginRecord, ...]

    @classmethod
    def read(cls, switches: Switches) -> InstalledPlugins:
        """Read the metadata of all distributions; one that cannot be read does not disturb another."""
        datasets: dict[str, list[PluginRecord]] = {}
        behaviour, unusable = [], []
        # In an order of their own: that of a folder's entries is another on every machine.
        for record in sorted(_find(), key=lambda record: (_normalise(record.distribution), record.name)):
            reason = switches.reason_to_block(record) if record.state == "listed" else None
            if reason is not None:
                unusable.append(replace(record, state="blocked", error=reason))
            elif record.state != "listed":
                unusable.append(record)
            elif record.group == BEHAVIOUR_GROUP:
                behaviour.append(record)
            else:
                datasets.setdefault(record.name, []).append(record)
        return cls(
            {name: _tell_apart(providers) for name, providers in datasets.items()},
            tuple(behaviour),
            tuple(unusable),
        )

    @property
    def dataset_names(self) -> list[str]:
        """What datasets can be asked for by, sorted; ambiguous ones as ``distribution:name``."""
        return sorted(
            providers[0].name if len(providers) == 1 else provider.qualified_name
            for providers in self.datasets.values()
            for provider in providers
        )

    def providers(self, name: str) -> tuple[PluginRecord, ...]:
        """Who provides the dataset ``name`` or ``distribution:name``; empty if nobody does."""
        distribution, colon, plain_name = name.rpartition(":")
        if not colon:
            return self.datasets.get(name, ())
        wanted = _normalise(distribution)
        return tuple(r for r in self.datasets.get(plain_name, ()) if _normalise(r.distribution) == wanted)


def _tell_apart(providers: list[PluginRecord]) -> tuple[PluginRecord, ...]:
    if len(providers) == 1:
        return tuple(providers)
    return tuple(
        replace(
            record,
            state="shadowed",
            error=f"a dataset of this name is in {' and '.join(o.distribution for o in providers if o is not record)} too: "
            f"ask for {record.qualified_name!r}, or leave one out by DATA_STACK_DISABLE_PLUGINS",
        )
        for record in providers
    )


def _find() -> Iterator[PluginRecord]:
    """All entry points of our groups: ``listed``, ``broken``, or ``shadowed`` by an earlier copy of their distribution."""
    seen: dict[str, set[PluginRecord]] = {}
    for distribution in importlib.metadata.distributions():
        try:
            if BEHAVIOUR_GROUP not in (distribution.read_text("entry_points.txt") or ""):  # both groups begin so
                continue
            entry_points = [each for each in distribution.entry_points if each.group in (DATASETS_GROUP, BEHAVIOUR_GROUP)]
            name, version = distribution.metadata["Name"], distribution.version
        except Exception as error:  # noqa: BLE001 - any finder of distributions may be installed; none may disturb the others
            logger.warning("cannot read the entry points of %s: %s", getattr(distribution, "_path", distribution), error)
            continue
        records = {
            _check(PluginRecord(each.name, each.group, str(name), str(version), "listed", entry_point=each.value))
            for each in entry_points
        }
        if not records:
            continue
        earlier = seen.setdefault(_normalise(str(name)), records)
        if earlier is records:
            yield from records
        elif earlier != records:  # else it is the same folder under another name, or an equal copy
            problem = "an earlier copy of its distribution on sys.path hides it; uninstall one of the two"
            yield from (replace(record, state="shadowed", error=problem) for record in records)


def _check(record: PluginRecord) -> PluginRecord:
    error = _malformation(record)
    return record if error is None else replace(record, state="broken", error=error)


def _malformation(record: PluginRecord) -> str | None:
    try:
        check_identifier(record.name)
    except MalformedIdentifierError as error:
        return f"its name cannot be used: {error}"
    if "/" in record.name:
        return "its name cannot be used: a name has no '/'"
    if record.group == DATASETS_GROUP and not _OBJECT.fullmatch(record.entry_point):
        return f"its entry point {record.entry_point!r} does not name a class: write 'package.module:Class'"
    if record.group == BEHAVIOUR_GROUP and not _MODULE.fullmatch(record.entry_point):
        return f"its entry point {record.entry_point!r} does not name a module: write 'package.module'"
    return None


def _names(text: str) -> frozenset[str]:
    return frozenset(_normalise(name) for name in text.split(",") if name.strip())


def _normalise(name: str) -> str:
    """Names as https://packaging.python.org/specifications/name-normalization compares them."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()
