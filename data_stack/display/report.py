"""What a prepared dataset holds, as values and as text for a terminal."""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from data_stack.dataset.reporting import positions_looked_at
from data_stack.display.samples import Position, as_array, as_label, class_order, content, default_positions, field, text_of
from data_stack.display.text import columns, size_text
from data_stack.repository.default_storage import Storage, as_storage_connector
from data_stack.repository.repository import DatasetDescription, default_repository

if TYPE_CHECKING:
    from data_stack.dataset.iterator import DatasetIteratorIF
    from data_stack.dataset.manifest import Manifest

__all__ = ["DatasetReport", "SplitReport"]

#: A target with more different values than this is reported by its range, not value by value.
_MOST_CLASSES = 1_000
_CLASSES_SHOWN = 20
_BAR = 24


@dataclasses.dataclass(frozen=True, slots=True)
class SplitReport:
    """The samples of one split.

    Attributes:
        name: of the split.
        n_samples: how many.
        sample: type and shape of eight samples, e.g. ``"uint8 8×8"``, or ``"int or None"``; empty if there is none.
        target: type and shape of their targets, likewise.
        classes: (class, number of samples), sorted by class; None where the target is no class.
        target_range: smallest and largest target where it is a number but no class; else None.
    """

    name: str
    n_samples: int
    sample: str
    target: str
    classes: tuple[tuple[Any, int], ...] | None
    target_range: tuple[float, float] | None

    @classmethod
    def of(cls, name: str, iterator: DatasetIteratorIF) -> SplitReport:
        """Read eight samples, from the first to the last, and all targets of ``iterator``."""
        if len(iterator) == 0:
            return cls(name, 0, "", "", (), None)
        first = iterator[0]
        sample_pos, target_pos = default_positions(iterator, first)
        samples = [first, *(iterator[position] for position in positions_looked_at(len(iterator))[1:])]
        targets = [field(sample, target_pos) for sample in samples]
        counts = _counts(iterator, target_pos) if any(target is not None for target in targets) else {}
        classes, target_range = _classes(counts, len(iterator))
        kind = _kind_of([content(sample, sample_pos) for sample in samples])
        return cls(name, len(iterator), kind, _kind_of(targets), classes, target_range)


@dataclasses.dataclass(frozen=True, slots=True)
class DatasetReport:
    """A prepared dataset: what its author says of it, its splits, its bytes, and the time they took.

    Attributes:
        description: name, version, licence and so on.
        storage: where the bytes are, without credentials.
        splits: one report for each split, in the dataset's order.
        class_names: the name of each class, by its number; None if the dataset names none.
        manifest: resources with sizes and digests; None for factories written in the original's manner.
        steps: (what was done, seconds), in order.
    """

    description: DatasetDescription
    storage: str
    splits: tuple[SplitReport, ...]
    class_names: tuple[str, ...] | None
    manifest: Manifest | None
    steps: tuple[tuple[str, float], ...]

    @classmethod
    def of(
        cls,
        name: str,
        split: str | None = None,
        *,
        storage: Storage | None = None,
        config: Mapping[str, Any] | None = None,
        offline: bool | None = None,
    ) -> DatasetReport:
        """Prepare a dataset if it is not ready, and look at its splits: all targets are read, and eight samples of each.

        Args:
            name: of the dataset, as for ``data_stack.load``.
            split: the only split to look at; None for all.
            storage: where the dataset is kept: a connector, a path or a URL; None for the default store.
            config: further options of the dataset.
            offline: touch no network; None for what ``DATA_STACK_OFFLINE`` says.

        Raises:
            DataStackError: as ``data_stack.load`` raises.
        """
        repository = default_repository()
        connector = None if storage is None else as_storage_connector(storage)
        factory: Any = repository.get_factory(name, connector)
        steps = list(factory.prepare(offline=offline).steps) if hasattr(factory, "prepare") else []
        started = time.perf_counter()
        loaded = repository.load(name, split, connector, **(config or {}))
        steps.append(("open", time.perf_counter() - started))
        splits = loaded if isinstance(loaded, dict) else {split or "all": loaded}
        started = time.perf_counter()
        reports = tuple(SplitReport.of(each, iterator) for each, iterator in splits.items())
        steps.append(("read all targets", time.perf_counter() - started))
        class_names = getattr(factory, "class_names", None)
        return cls(
            description=repository.describe(name),
            storage=repr(factory.storage_connector),
            splits=reports,
            class_names=None if class_names is None else tuple(class_names),
            manifest=factory.manifest() if hasattr(factory, "manifest") else None,
            steps=tuple(steps),
        )

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON data; full digests, sizes in bytes, times in seconds."""
        fields: dict[str, Any] = {
            **dataclasses.asdict(self.description),
            "storage": self.storage,
            "splits": [
                {
                    "name": split.name,
                    "n_samples": split.n_samples,
                    "sample": split.sample,
                    "target": split.target,
                    "classes": None
                    if split.classes is None
                    else [{"class": each, "name": self._class_name(each), "n_samples": n} for each, n in split.classes],
                    "target_range": split.target_range,
                }
                for split in self.splits
            ],
            "manifest": dataclasses.asdict(self.manifest) if self.manifest is not None else None,
            "steps": [{"step": step, "seconds": round(seconds, 6)} for step, seconds in self.steps],
        }
        return fields

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        about = self.description
        title = f"{about.name} {about.version or ''}".rstrip()
        yield title
        yield "=" * len(title)
        if about.description:
            yield about.description.partition("\n\n")[0]
            yield ""
        for name in ("license", "homepage", "citation"):
            if value := getattr(about, name):
                yield f"{name:<10}{value}"
        if about.distribution:
            yield f"{'from':<10}{about.distribution} {about.distribution_version}"
        if self.storage:
            yield f"{'stored in':<10}{self.storage}"
        yield ""
        yield from columns(
            [("split", "samples", "sample", "target")]
            + [(split.name, f"{split.n_samples:,}", split.sample or "-", split.target or "-") for split in self.splits],
            right={1},
        )
        yield from self._class_lines()
        for split in self.splits:
            if split.target_range is not None:
                yield f"targets of {split.name}: {split.target_range[0]:.6g} to {split.target_range[1]:.6g}"
        if self.manifest is not None:
            yield ""
            raw = {each.identifier for each in self.manifest.sources}
            rows: list[Sequence[str]] = [
                (each.identifier, size_text(each.size), each.sha256 or f"md5 {each.md5_sum}") for each in self.manifest.sources
            ]
            # Where there is no preprocessing the sources are what is opened.
            rows += [
                (each.identifier, size_text(each.size), each.sha256 or "-")
                for each in self.manifest.prepared
                if each.identifier not in raw
            ]
            yield from columns([("resource", "size", "sha256"), *rows], right={1})
            for source in self.manifest.sources:
                verified = "verified" if source.verified else "NOT VERIFIED: its definition promises no digest"
                yield f"{source.identifier}: from {source.origin or 'the store'}, {verified}"
            if self.manifest.adopted:
                yield "adopted: it was found complete in the store, without a manifest"
        if self.steps:
            yield ""
            total = sum(seconds for _, seconds in self.steps)
            times = [(step, f"{seconds:.3f} s") for step, seconds in self.steps]
            yield from columns([("step", "time"), *times, ("all", f"{total:.3f} s")], right={1})

    def _class_lines(self) -> Iterator[str]:
        splits = [split for split in self.splits if split.classes]
        if not splits:
            return
        counts = [dict(split.classes or ()) for split in splits]
        classes = sorted({label for each in counts for label in each}, key=class_order)
        totals = {label: sum(each.get(label, 0) for each in counts) for label in classes}
        most, all_samples = max(totals.values()), sum(totals.values())
        rows: list[Sequence[str]] = [("class", *(split.name for split in splits), "share", "")]
        for label in classes[:_CLASSES_SHOWN]:
            bar = "█" * max(1, round(_BAR * totals[label] / most))
            share = f"{100 * totals[label] / all_samples:.1f} %"
            rows.append((self._class_name(label), *(f"{each.get(label, 0):,}" for each in counts), share, bar))
        yield ""
        yield from columns(rows, right=set(range(1, len(splits) + 2)))
        if len(classes) > _CLASSES_SHOWN:
            yield f"… and {len(classes) - _CLASSES_SHOWN:,} more classes"

    def _class_name(self, label: Any) -> str:
        names = self.class_names or ()
        return names[label] if isinstance(label, int) and 0 <= label < len(names) else text_of(label)


def _counts(iterator: DatasetIteratorIF, target_pos: Position) -> dict[Any, int]:
    column = np.asarray(iterator.read_column(target_pos))
    if column.ndim == 1 and column.dtype.kind in "biuU":
        values, counts = np.unique(column, return_counts=True)
        return dict(zip(values.tolist(), counts.tolist(), strict=True))
    return dict(Counter(as_label(target) for target in column))


def _classes(counts: dict[Any, int], n_samples: int) -> tuple[tuple[tuple[Any, int], ...] | None, tuple[float, float] | None]:
    is_measurement = (
        any(isinstance(label, float) for label in counts)
        or len(counts) > _MOST_CLASSES
        or (len(counts) > _CLASSES_SHOWN and len(counts) > n_samples // 2)
    )
    if not counts or is_measurement:
        numbers = [float(label) for label in counts if isinstance(label, (int, float))]
        numbers = [number for number in numbers if not math.isnan(number)]
        return None, (min(numbers), max(numbers)) if numbers else None
    return tuple(sorted(counts.items(), key=lambda item: class_order(item[0]))), None


def _kind_of(values: Sequence[Any]) -> str:
    """Type and shape of values, or what differs in them."""
    kinds = list(dict.fromkeys(_kind(value) for value in values if value is not None))
    dtypes = {kind.rpartition(" ")[0] for kind in kinds}
    if len(kinds) > 1 and len(dtypes) == 1 and all(as_array(value) is not None for value in values if value is not None):
        kinds = [f"{dtypes.pop()} of various shapes"]
    return " or ".join([*kinds, "None"] if kinds and any(value is None for value in values) else kinds)


def _kind(value: Any) -> str:
    """Type and shape of a value, e.g. ``"float32 3×32×32"``, ``"int"``, ``"text"``."""
    if value is None:
        return ""
    if isinstance(value, str):
        return "text"
    if isinstance(value, bytes):
        return "bytes"
    if isinstance(value, (bool, int, float)):
        return type(value).__name__
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_kind(part)}" for key, part in value.items())
    array = as_array(value)
    if array is None:
        return type(value).__name__
    return f"{array.dtype} {'×'.join(map(str, array.shape))}".strip()
