"""Describes iterators in notebooks: facts, eight samples, columns, classes, the stack."""

from __future__ import annotations

import base64
import contextlib
import html
import io
import time
import wave
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any

import numpy as np

from data_stack.dataset.iterator.access import DefaultAccess, SampleAccess, access_to
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.show import sample_parts
from data_stack.show.column_statistics import ColumnReport, columns_of, target_distribution
from data_stack.show.display_value import (
    DisplayValue,
    shorten,
    span_of,
    thin_out_values,
    to_display_value,
)
from data_stack.show.explanation import Explanation, explain, samples_text
from data_stack.show.markup import (
    Block,
    Document,
    Fold,
    Gallery,
    Heading,
    Paragraph,
    Rich,
    SideBySide,
    Table,
    as_text,
)
from data_stack.show.reporting import table_of_columns, table_of_targets
from data_stack.values.stacked_values import stack_values

_EDGE = 112  # of a picture on the page
_MAX_CLASSES = 16
_N_BYTES = 130_000


def _picture(
    look: DisplayValue, n_bytes: int, span: tuple[float, float] | None, over: Mapping[str, Any]
) -> Rich:
    """A picture of about ``n_bytes`` at most, shrunk to fit; those that share a span share black and white."""
    from data_stack.show.pictures import draw, file_of  # needs Pillow

    n_bytes, max_pixels, media, data = 3 * n_bytes // 4, 2 * _EDGE * _EDGE, "png", b""
    while not data or (len(data) > n_bytes and max_pixels > 256):
        image = draw(look, max_pixels, span, **over)
        media, data = "png", file_of(image)
        if len(data) > n_bytes and image.mode == "RGB":
            media, data = "jpeg", file_of(image, "jpeg")
        max_pixels //= 2
    is_series, shape = look.kind == "series", look.data.shape
    height, width = (
        (image.height, image.width)
        if is_series
        else shape[-2:]
        if look.kind == "array"
        else shape[:2]
    )
    scale = (170 if is_series else _EDGE) / max(height, width)
    scale, style = (int(scale), ' style="image-rendering:pixelated"') if scale >= 3 else (scale, "")
    size = f'width="{max(4, round(width * scale))}" height="{max(4, round(height * scale))}"'
    text = f"{look.data.dtype} {' × '.join(f'{extent:,}' for extent in (shape[:1] if is_series and shape[1] == 1 else shape))}"
    shown = f'<img {size}{style} alt="{text}" src="data:image/{media};base64,{base64.b64encode(data).decode("ascii")}"/>'
    if not is_series and look.kind != "array":
        return Rich(text, shown)
    finite = thin_out_values(look.data)[np.isfinite(thin_out_values(look.data))]
    return Rich(
        text,
        shown
        + _soft(f"{finite.min():.4g} … {finite.max():.4g}" if finite.size else "no finite numbers"),
    )


def _player(look: DisplayValue, n_bytes: int) -> Rich:
    """A player of one channel of 8 bits; long sound has a lower sampling rate, or only its beginning."""
    samples = look.data[: look.rate * 60].astype(np.float64).mean(axis=1)
    samples = np.nan_to_num(samples) / (
        np.iinfo(look.data.dtype).max if look.data.dtype.kind in "iu" else 1
    )
    rate, room = look.rate, 3 * n_bytes // 4
    while rate >= 16_000 and len(samples) > room:
        samples, rate = samples[: len(samples) // 2 * 2].reshape(-1, 2).mean(axis=1), rate // 2
    samples = samples[:room]
    seconds, shown = len(look.data) / look.rate, len(samples) / rate
    text = (
        f"{seconds:.2f} s, {look.rate:,} Hz"
        if shown > 0.98 * seconds
        else f"the first {shown:.1f} s of {seconds:.1f} s"
    )
    loudest = max(1.0, float(np.abs(samples).max(initial=0)))
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, 1, rate, 0, "NONE", ""))
        writer.writeframes((128 + 127 * samples / loudest).round().astype(np.uint8).tobytes())
    source = base64.b64encode(file.getvalue()).decode("ascii")
    player = f'<audio controls="controls" preload="none" style="width:180px" src="data:audio/wav;base64,{source}"></audio>'
    return Rich(text, player + _soft(text))


def _soft(text: str) -> str:
    return f'<span class="soft">{html.escape(text)}</span>'


def _reason(error: Exception) -> str:
    with contextlib.suppress(Exception):  # foreign code
        return f"{type(error).__name__}: {shorten(str(error))}"
    return type(error).__name__


def _part(make: Callable[[IteratorPage], list[Block]]) -> Callable[[IteratorPage], list[Block]]:
    """Decorates a part of a page; if it raises, the page shows the error in its place."""

    @wraps(make)
    def part(page: IteratorPage) -> list[Block]:
        try:
            return make(page)
        except Exception as error:  # noqa: BLE001  # foreign code
            return [Paragraph(f"{make.__name__} cannot be shown: {_reason(error)}")]

    return part


@dataclass(frozen=True)
class IteratorPage(Document):
    """What a notebook shows of an iterator; it never raises.

    The page reads ``n_samples`` samples, spread over the iterator (over its first block if the source is read in blocks), within
    a second. It reads the target column if that reads no other column and takes at most 1 MB. ``str`` reads no sample.

    Args:
        iterator: any ``DatasetIteratorIF``.
        n_samples: number of samples shown.
        n_bytes: maximum size of all pictures and sounds together.
    """

    iterator: Any
    n_samples: int = 8
    n_bytes: int = _N_BYTES

    def document(self, level: int = 1) -> list[Block]:
        """All parts; ``level`` is that of the title."""
        sides = [side for side in (self.columns(), self.targets()) if side]
        beside: list[Block] = [SideBySide(sides)] if sides else []
        return [Heading(level, self.title), *self.facts(), *self.samples(), *beside, *self.stack()]

    def __str__(self) -> str:
        return as_text([Heading(1, self.title), *self.facts(), *self.tree()])

    @cached_property
    def _explanation(self) -> Explanation:
        return explain(self.iterator)

    @cached_property
    def _rows(self) -> list[tuple[int, Any, str]]:
        """Positions, samples, and why these cannot be read; stops after a second."""
        iterator, blocks = self.iterator, access_to(self.iterator).blocks()
        n_near = (
            len(iterator) if blocks is None else int(next(iter(blocks[np.flatnonzero(blocks)]), 0))
        )
        places = (
            np.linspace(0, max(0, n_near - 1), min(self.n_samples, n_near))
            .astype(np.int64)
            .tolist()
        )
        rows: list[tuple[int, Any, str]] = []
        started = time.perf_counter()
        for position in dict.fromkeys(places):
            try:
                rows.append((position, iterator[position], ""))
            except Exception as error:  # noqa: BLE001  # foreign code, damaged files
                rows.append((position, None, _reason(error)))
            if time.perf_counter() - started > 1.0:
                break
        return rows

    @cached_property
    def _whole(self) -> list[Any]:
        return [sample for _, sample, reason in self._rows if not reason]

    @cached_property
    def _target_key(self) -> Any:
        return sample_parts.default_keys(self._meta, self._whole[0])[1] if self._whole else None

    _meta = property(lambda self: getattr(self.iterator, "dataset_meta", None))

    @cached_property
    def _columns(self) -> Sequence[ColumnReport]:
        return columns_of(self.iterator, self._whole) if self._whole else ()

    @cached_property
    def _counts(self) -> tuple[dict[Any, int], str]:
        """The number of samples of each target, and the range of the targets in words; empty if counting takes long or fails."""
        with contextlib.suppress(Exception):  # foreign code
            return _count_targets(self.iterator, self._target_key, self._whole)
        return {}, ""

    @cached_property
    def title(self) -> str:
        """Name, version and split."""
        known: list[str] = []
        with contextlib.suppress(Exception):  # foreign code
            layers = self._explanation.layers
            origins = [layer.dataset for layer in layers if layer.is_origin and layer.dataset]
            known = list(map(shorten, origins or filter(None, [layers[0].dataset])))
        return " + ".join(known[:3] + ["…"] * (len(known) > 3)) or type(self.iterator).__name__

    @_part
    def facts(self) -> list[Block]:
        """Length, licenses and class."""
        n_samples = self._explanation.layers[0].n_samples
        length = "unknown length" if n_samples is None else samples_text(n_samples)
        licenses = [
            f"license {shorten(each)}" if each else "license unknown"
            for each in self._explanation.licenses
        ]
        kind = type(self.iterator).__name__
        kinds = [] if kind in ("InformedDatasetIterator", self.title) else [kind]
        return [Paragraph(" · ".join([length, *licenses[:3], *kinds]))]

    @_part
    def samples(self) -> list[Block]:
        """The samples: pictures side by side if each has one, otherwise a table."""
        if not self._rows:
            return []
        shown = self._columns[:12]
        keys: list[Any] = [each.key for each in shown]
        hints: dict[Any, str] = {**sample_parts.hints_of(self.iterator)}
        views: list[dict[Any, DisplayValue]] = [
            {}
            if reason
            else {
                key: to_display_value(sample_parts.part_of(sample, key), hints.get(key))
                for key in keys
            }
            for _, sample, reason in self._rows
        ]
        whole = list(filter(None, views))
        pictured = [key for key in keys if any(row[key].is_picture for row in whole)]
        if any(row[key].kind == "image" for row in whole for key in pictured):
            pictured = [
                key for key in pictured if not hints.get(key, "").startswith(("mask", "boxes"))
            ]
        n_bytes = self.n_bytes // max(1, len(self._rows) * len(pictured))
        spans = {
            key: span_of([row[key].data for row in whole if row[key].kind == "image"])
            for key in pictured
        }

        def cell(sample: Any, look: DisplayValue, key: Any) -> str:
            over = (
                sample_parts.overlays_of(sample, hints)
                if look.kind == "image" and key in pictured
                else {}
            )
            try:
                if look.is_picture:
                    return (
                        _player(look, n_bytes)
                        if look.kind == "audio"
                        else _picture(look, n_bytes, spans.get(key), over)
                    )
                return "missing" if look.kind == "missing" else shorten(look.data, 240)
            except Exception as error:  # noqa: BLE001  # foreign values
                return _reason(error)

        tiles: list[tuple[str, list[str]]] = []
        table: list[list[str]] = []
        for (at, sample, reason), row in zip(self._rows, views, strict=True):
            cells = (
                [reason, *[""] * (len(keys) - 1)]
                if reason
                else [cell(sample, row[key], key) for key in keys]
            )
            table.append([f"#{at:,}", *cells])
            if len(pictured) == 1:
                key = pictured[0]
                tiles.append(
                    (reason or cells[keys.index(key)], self._captions(at, sample, row, key))
                )
        if tiles:
            return [Gallery(tiles)]
        names = ["" if each.key is None else str(each.name or each.key) for each in shown] or [""]
        kinds = [{row[key].kind for row in whole} for key in keys]
        numbers = {
            number for number, each in enumerate(kinds, start=1) if each <= {"number", "missing"}
        }
        return [Table(["", *names], table, frozenset(numbers))]

    def _captions(
        self, position: int, sample: Any, row: dict[Any, DisplayValue], key: Any
    ) -> list[str]:
        captions = [f"#{position:,}"]
        if (
            self._target_key in row
            and self._target_key != key
            and not row[self._target_key].is_picture
        ):
            text = sample_parts.label_text(
                sample_parts.part_of(sample, self._target_key),
                getattr(self._meta, "class_names", None),
            )
            captions.insert(0, Rich(text, f"<b>{html.escape(text)}</b>"))
        others = [
            each
            for each in self._columns
            if each.key in row and each.key not in (key, self._target_key)
        ]
        others = [
            each
            for each in others
            if each.role != "tag" and row[each.key].kind in ("text", "number")
        ]
        return captions + [
            f"{each.name or each.key} {shorten(row[each.key].data, 40)}" for each in others[:3]
        ]

    @_part
    def columns(self) -> list[Block]:
        """The columns, with the range or the number of classes of their values where these are known."""
        if not self._columns:
            return []
        names = getattr(self._meta, "class_names", None)
        about = self._counts[1] or (f"{len(names):,} classes" if names else "")
        values = {self._target_key: about} if about else {}
        return [Heading(2, "Columns"), table_of_columns(self._columns, values)]

    @_part
    def targets(self) -> list[Block]:
        """The classes with their counts."""
        counts, meta = self._counts[0], self._meta
        if len(counts) < 2 or max(counts.values()) < 2:
            return []
        if len(counts) > _MAX_CLASSES:
            counts = dict(Counter(counts).most_common())
        table = table_of_targets(
            counts, getattr(meta, "class_names", None), getattr(meta, "target_kind", None)
        )
        name = next(
            (str(each.name or each.key) for each in self._columns if each.key == self._target_key),
            "target",
        )
        return [
            Heading(2, f"Classes of {shorten(name)}"),
            table._replace(max_rows=_MAX_CLASSES),
        ]

    @_part
    def tree(self) -> list[Block]:
        """The tree of layers."""
        return self._explanation.document()

    @_part
    def stack(self) -> list[Block]:
        """The tree of layers, folded below their names."""
        names = [layer.layer for layer in self._explanation.layers]
        more = f" ← … {len(names) - 4:,} more" if len(names) > 4 else ""
        return [
            Fold(
                f"Stack: {' ← '.join(map(shorten, names[:4]))}{more}",
                self._explanation.document(),
            )
        ]


def _count_targets(
    iterator: DatasetIteratorIF, key: Any, samples: Sequence[Any]
) -> tuple[dict[Any, int], str]:
    values = [sample_parts.part_of(sample, key) for sample in samples]
    kinds = {to_display_value(value).kind for value in values}
    if not kinds <= {"number", "text", "missing"} or kinds == {"missing"}:
        return {}, ""
    n_bytes = max(
        32 + len(value) if isinstance(value, str) else stack_values([value]).itemsize
        for value in values
    )
    if len(iterator) * n_bytes > 1_000_000 or not _reads_columns(iterator):
        return {}, ""
    column = iterator.read_column(key)
    counts = target_distribution(column)
    n_missing = counts.pop("nan" if column.dtype.kind == "f" else None, 0)
    finite = column[np.isfinite(column)] if column.dtype.kind in "iuf" else column[:0]
    text = f"{len(counts):,} classes" if len(counts) > 1 else "one class"
    if len(finite) and (column.dtype.kind == "f" or len(counts) > _MAX_CLASSES):
        text = f"{finite.min():g} … {finite.max():g}"
    return counts, f"{text}, {n_missing:,} missing" if n_missing else text


def _reads_columns(iterator: Any) -> bool:
    """Whether each layer of the stack reads one column without the others, and without calling functions."""
    waiting = [iterator]
    while waiting:
        layer = waiting.pop()
        source = access_to(layer).unwrap()[0]
        has_own = type(source).columns is not SampleAccess.columns and not isinstance(
            source, DefaultAccess
        )
        blocks = source.blocks()
        if (
            not has_own
            or "function" in layer._made_with
            or (blocks is not None and len(blocks) > 100)
        ):
            return False
        waiting += layer._iterators_below()
    return True
