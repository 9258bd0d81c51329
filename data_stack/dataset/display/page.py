"""Describes an iterator to a reader: what it is, eight of its samples, its columns and classes, its stack."""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from data_stack.dataset.display.cells import cell_of, is_picture
from data_stack.dataset.display.kinds import Look, look_at, shorten
from data_stack.dataset.display.pictures import span_of
from data_stack.dataset.display.samples import default_keys, hints_of, label_text, overlays_of, part_of
from data_stack.dataset.iterator.access import DefaultAccess, SampleAccess, access_to
from data_stack.dataset.iterator.contract import DatasetIteratorIF, column_names
from data_stack.dataset.iterator.registry import OPERATIONS
from data_stack.dataset.iterator.stacking import stack_values
from data_stack.dataset.reports.column_report import ColumnReport
from data_stack.dataset.reports.column_statistics import columns_of_samples
from data_stack.dataset.reports.explanation import Explanation, explain
from data_stack.dataset.reports.markup import (
    Beside,
    Block,
    Document,
    Fold,
    Gallery,
    Heading,
    Paragraph,
    Rich,
    Table,
    as_text,
)
from data_stack.dataset.reports.report import table_of_columns, table_of_targets
from data_stack.dataset.reports.target_distribution import target_distribution

__all__ = ["IteratorPage", "Parts"]

_Value = TypeVar("_Value")

_MOST_COLUMNS_OF_SAMPLES = 12
_MOST_CLASSES = 16
_MOST_TARGET_BYTES = 1_000_000
_MOST_BLOCKS = 100
_SECONDS = 1.0
_MOST_CAPTIONS = 3


@dataclass(frozen=True, slots=True)
class _Failed:
    """A sample that could not be read."""

    reason: str


@dataclass(frozen=True)
class Parts:
    """The parts of a page, each a list of blocks: facts, samples, columns, targets, stack."""

    title: str
    facts: list[Block]
    samples: list[Block]
    columns: list[Block]
    targets: list[Block]
    stack: list[Block]


@dataclass(frozen=True)
class IteratorPage(Document):
    """What a notebook shows of an iterator; as a document it is text, Markdown and HTML. Making it raises nothing.

    It reads ``n_samples`` samples, spread over the iterator (of one that is read in blocks: over the first block), within a
    second; and the target where its columns can be read by themselves and take at most 1 MB. What fails is said in its place.

    Args:
        iterator: any ``DatasetIteratorIF``.
        n_samples: how many are shown.
        n_bytes: what pictures and sound may take together.
    """

    iterator: Any
    n_samples: int = 8
    n_bytes: int = 130_000

    def document(self, level: int = 1) -> list[Block]:
        """Its parts; ``level`` is that of the title."""
        parts = self.parts()
        sides = [side for side in (parts.columns, parts.targets) if side]
        beside: list[Block] = [Beside(sides)] if sides else []
        return [Heading(level, parts.title), *parts.facts, *parts.samples, *beside, *parts.stack]

    def __str__(self) -> str:
        return as_text(self.document())

    def parts(self) -> Parts:
        """The parts of the page."""
        found = _Found(self)
        return Parts(
            title=_or_else(lambda: found.title, type(self.iterator).__name__),
            facts=_blocks_or_said("its facts", lambda: [Paragraph(" · ".join(found.facts()))]),
            samples=_blocks_or_said("samples", found.samples_block),
            columns=_blocks_or_said("columns", found.columns_block),
            targets=_blocks_or_said("targets", found.targets_block),
            stack=_blocks_or_said("the stack", found.stack_block),
        )


def _or_else(make: Callable[[], _Value], otherwise: _Value) -> _Value:
    try:
        return make()
    except Exception:  # noqa: BLE001  # foreign code
        return otherwise


def _blocks_or_said(what: str, make: Callable[[], list[Block]]) -> list[Block]:
    try:
        return make()
    except Exception as error:  # noqa: BLE001  # foreign code
        return [Paragraph(f"{what} cannot be shown: {_reason(error)}")]


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {_or_else(lambda: shorten(str(error)), '')}"


class _Found:
    """What is known of an iterator, each part read when it is first needed."""

    def __init__(self, page: IteratorPage) -> None:
        self._page, self._iterator = page, page.iterator
        self._meta = _or_else(lambda: getattr(page.iterator, "dataset_meta", None), None)

    @cached_property
    def _explanation(self) -> Explanation:
        return explain(self._iterator)

    @cached_property
    def _rows(self) -> list[tuple[int, Any]]:
        return _read_some(self._iterator, self._page.n_samples)

    @cached_property
    def _whole(self) -> list[Any]:
        return [sample for _, sample in self._rows if not isinstance(sample, _Failed)]

    @cached_property
    def _target_key(self) -> Any:
        return default_keys(self._meta, self._whole[0])[1] if self._whole else None

    @cached_property
    def _hints(self) -> dict[Any, str]:
        return _or_else(lambda: {**hints_of(self._iterator)}, {})

    @cached_property
    def _columns(self) -> Sequence[ColumnReport]:
        if not self._whole:
            return ()
        nameless: tuple[str, ...] = ()
        names = _or_else(lambda: column_names(self._iterator), nameless)
        declared = access_to(self._iterator).unwrap()[0].declare_columns()
        return columns_of_samples(self._whole, self._meta, names, declared)

    @cached_property
    def _counts(self) -> dict[Any, int]:
        return _or_else(lambda: _count_targets(self._iterator, self._target_key, self._whole), {})

    @property
    def title(self) -> str:
        """Name, version and split."""
        layers = self._explanation.layers
        origins = [layer.dataset for layer in layers if layer.is_origin and layer.dataset]
        known = [shorten(name) for name in origins] or [shorten(layers[0].dataset or type(self._iterator).__name__)]
        return " + ".join(known[:3] + ["…"] * (len(known) > 3))

    def facts(self) -> list[str]:
        """Length, licences, class."""
        n_samples = self._explanation.layers[0].n_samples
        length = "unknown length" if n_samples is None else f"{n_samples:,} sample{'' if n_samples == 1 else 's'}"
        licences = [f"licence {shorten(each)}" if each else "licence not known" for each in self._explanation.licenses]
        kind = type(self._iterator).__name__
        return [length, *licences[:3], *([] if kind in ("InformedDatasetIterator", self.title) else [kind])]

    def samples_block(self) -> list[Block]:
        """The samples, as pictures where each has one, otherwise as a table."""
        if not self._rows:
            return []
        keys = [column.key for column in self._columns][:_MOST_COLUMNS_OF_SAMPLES]
        rows = [
            (position, sample if isinstance(sample, _Failed) else {key: self._look(sample, key) for key in keys}, sample)
            for position, sample in self._rows
        ]
        looks = [found for _, found, _ in rows if not isinstance(found, _Failed)]
        pictured = [key for key in keys if any(is_picture(each[key]) for each in looks)]
        if any(each[key].kind == "image" for each in looks for key in pictured):
            pictured = [key for key in pictured if not self._hints.get(key, "").startswith(("mask", "boxes"))]
        n_bytes = self._page.n_bytes // max(1, len(rows) * len(pictured))
        spans = {key: span_of([each[key].data for each in looks if each[key].kind == "image"]) for key in pictured}

        def cell(found: dict[Any, Look], sample: Any, key: Any) -> str:
            is_image = found[key].kind == "image"
            over = overlays_of(sample, self._hints) if is_image and key in pictured else {}
            try:
                return cell_of(found[key], n_bytes, spans.get(key) if is_image else None, over)
            except Exception as error:  # noqa: BLE001  # foreign values
                return _reason(error)

        if len(pictured) == 1:
            return [Gallery([self._tile(row, pictured[0], cell) for row in rows])]
        names = ["" if each.key is None else str(each.name or each.key) for each in self._columns[: len(keys)]]
        table = [
            [f"#{position:,}", *([found.reason] if isinstance(found, _Failed) else [cell(found, sample, key) for key in keys])]
            for position, found, sample in rows
        ]
        n_cells = max(map(len, table))
        numbers = {n for n, key in enumerate(keys, start=1) if all(each[key].kind in ("number", "missing") for each in looks)}
        header = ["", *names, *[""] * (n_cells - 1 - len(names))]
        return [Table(header, [row + [""] * (n_cells - len(row)) for row in table], frozenset(numbers))]

    def _look(self, sample: Any, key: Any) -> Look:
        return look_at(part_of(sample, key), self._hints.get(key))

    def _tile(self, row: tuple[int, Any, Any], key: Any, cell: Callable[..., str]) -> tuple[str, list[str]]:
        position, found, sample = row
        if isinstance(found, _Failed):
            return found.reason, [f"#{position:,}"]
        captions = [f"#{position:,}"]
        if self._target_key in found and self._target_key != key and not is_picture(found[self._target_key]):
            text = label_text(part_of(sample, self._target_key), getattr(self._meta, "class_names", None))
            captions.insert(0, Rich(text, f"<b>{html.escape(text)}</b>"))
        others = [each for each in self._columns if each.key in found and each.key not in (key, self._target_key)]
        others = [each for each in others if each.role != "tag" and found[each.key].kind in ("text", "number")]
        captions += [f"{each.name or each.key} {shorten(found[each.key].data, 40)}" for each in others[:_MOST_CAPTIONS]]
        return cell(found, sample, key), captions

    def columns_block(self) -> list[Block]:
        """The columns with what is known of their values."""
        if not self._columns:
            return []
        known = {self._target_key: _values_text(self._counts)} if self._counts else {}
        return [Heading(2, "Columns"), table_of_columns(self._columns, known)]

    def targets_block(self) -> list[Block]:
        """The classes with their counts."""
        if len(self._counts) < 2 or max(self._counts.values()) < 2:
            return []
        most = dict(sorted(self._counts.items(), key=lambda each: -each[1])[:_MOST_CLASSES])
        shown = {target: count for target, count in self._counts.items() if target in most}
        meta = self._meta
        table = table_of_targets(shown, getattr(meta, "class_names", None), getattr(meta, "target_kind", None))
        n_more = len(self._counts) - len(shown)
        more = [Paragraph(f"… {n_more:,} more, of at most {min(most.values()):,} samples each")] if n_more else []
        name = next((str(each.name or each.key) for each in self._columns if each.key == self._target_key), "target")
        return [Heading(2, f"Classes of {shorten(name)}"), table, *more]

    def stack_block(self) -> list[Block]:
        """The tree of layers."""
        names = [layer.layer for layer in self._explanation.layers]
        more = f" ← … {len(names) - 4:,} more" if len(names) > 4 else ""
        return [Fold(f"Stack: {' ← '.join(map(shorten, names[:4]))}{more}", self._explanation.document())]


def _read_some(iterator: Any, n_samples: int) -> list[tuple[int, Any]]:
    """Samples with their positions, or why they cannot be read; fewer where that takes long."""
    n_total = len(iterator)
    blocks = access_to(iterator).blocks()
    n_near = n_total if blocks is None or not len(blocks) else int(blocks[np.flatnonzero(blocks)[0]]) if blocks.any() else 0
    positions = dict.fromkeys(np.linspace(0, max(0, n_near - 1), min(n_samples, n_near)).astype(np.int64).tolist())
    rows: list[tuple[int, Any]] = []
    started = time.perf_counter()
    for position in positions:
        try:
            rows.append((position, iterator[position]))
        except Exception as error:  # noqa: BLE001  # foreign code, damaged files
            rows.append((position, _Failed(_reason(error))))
        if time.perf_counter() - started > _SECONDS:
            break
    return rows


def _count_targets(iterator: DatasetIteratorIF, key: Any, samples: Sequence[Any]) -> dict[Any, int]:
    """How many samples there are of each target; empty where that is not known at little cost."""
    values = [part_of(sample, key) for sample in samples]
    kinds = {look_at(value).kind for value in values}
    if not kinds <= {"number", "text", "missing"} or kinds == {"missing"}:
        return {}
    n_bytes = max(len(value) if isinstance(value, (str, bytes)) else stack_values([value]).itemsize for value in values)
    if len(iterator) * n_bytes > _MOST_TARGET_BYTES or not _reads_columns(iterator):
        return {}
    return target_distribution(iterator.read_column(key))


def _reads_columns(iterator: Any) -> bool:
    """Whether one column is read without the others, in each layer of the stack, and without calling functions."""
    waiting = [iterator]
    while waiting:
        layer = waiting.pop()
        source = access_to(layer).unwrap()[0]
        has_own = type(source).columns is not SampleAccess.columns and not isinstance(source, DefaultAccess)
        blocks = source.blocks()
        if not has_own or "function" in layer._made_with or (blocks is not None and len(blocks) > _MOST_BLOCKS):
            return False
        waiting += layer._stack_on()
    return True


def _values_text(counts: dict[Any, int]) -> str:
    numbers = [target for target in counts if isinstance(target, (int, float)) and not isinstance(target, bool)]
    if any(isinstance(target, str) and target.startswith("[") and target.endswith((")", "]")) for target in counts):
        edges = [target for target in counts if isinstance(target, str) and target.startswith("[")]
        return f"{edges[0][1:].partition(',')[0]} … {edges[-1].rpartition(', ')[2][:-1]}"
    if numbers and len(numbers) == len(counts) and len(counts) > _MOST_CLASSES:
        return f"{min(numbers):g} … {max(numbers):g}, {len(counts):,} distinct"
    return f"{len(counts):,} classes" if len(counts) > 1 else "one class"


OPERATIONS["page"] = IteratorPage
