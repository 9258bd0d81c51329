"""Some samples of a dataset on one picture, each with its label."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from data_stack.dataset.iterator import column_names
from data_stack.dataset.iterator.contract import column_key
from data_stack.dataset.reports.markup import printable
from data_stack.display.samples import (
    Position,
    as_array,
    as_label,
    as_picture,
    class_order,
    content,
    default_positions,
    field,
    text_of,
    to_bytes,
    value_range,
)
from data_stack.exception import ConfigError, MissingDependencyError

try:
    from PIL import Image, ImageDraw, ImageFont
except ImportError as error:
    raise MissingDependencyError("contact_sheet", "Pillow", "images") from error

if TYPE_CHECKING:
    from data_stack.dataset.iterator import DatasetIteratorIF

__all__ = ["contact_sheet"]

_PAPER, _INK, _GREY, _RULE, _STRIPE = "#ffffff", "#1b1f24", "#6a737d", "#d8dee4", "#f6f8fa"
_MARGIN, _GAP, _ROW_GAP, _LABEL_HEIGHT = 28, 10, 14, 22
_TITLE_SIZE, _SMALL_SIZE, _LABEL_SIZE = 24, 14, 15
_CELL_PIXELS, _LARGEST_CELL = 80, 160
_N_PICTURES, _N_ROWS = 100, 24
_MOST_COLUMNS = 12
#: Labels are read at so many positions at most, evenly spread: a sheet of a dataset of millions stays a matter of moments.
_N_LABELS_READ = 10_000
#: A target with more different values than this is a measurement; samples are then taken evenly over the dataset.
_MOST_CLASSES = 1_000


def contact_sheet(
    iterator: DatasetIteratorIF,
    *,
    n_samples: int | None = None,
    n_columns: int | None = None,
    seed: int | None = None,
    title: str | None = None,
    sample_pos: Position | None = None,
    target_pos: Position | None = None,
) -> Image.Image:
    """Draw samples with their labels, pictures side by side, anything else as a table; ``.save("sheet.png")`` writes it.

    The samples are the same every time: as many of each class as there is room for, class by class in turn (of a
    target that is no class, evenly over the dataset), the first ones of each, or random ones if ``seed`` is given.
    Pictures have the shape ``(height, width)``, ``(height, width, c)`` or ``(c, height, width)`` with 1, 3 or 4 channels
    of any number type; small ones are enlarged by a whole factor, pixel by pixel. How values become grey is told by
    :func:`data_stack.display.samples.value_range`.

    Args:
        iterator: tuples or dicts; only samples drawn are read, and up to 10,000 of the targets.
        n_samples: how many to draw at most; None: 100 pictures, or 24 rows of a table.
        n_columns: pictures in a row; None: one for each class where these are few, else 10.
        seed: chooses random samples instead of the first ones; any int not below 0.
        title: the first line; None: the dataset's name and tag where the iterator knows them.
        sample_pos: position, name or key of what is drawn; None: as the iterator's meta says; else the first part of a tuple, and
            of a dict what looks most like a picture.
        target_pos: position, name or key of its label; None: as the iterator's meta says; else the second part of a tuple, and
            of a dict what is called a label, or the first part that could be one.

    Raises:
        ConfigError: ``n_samples`` or ``n_columns`` is below 1, or ``seed`` below 0.
    """
    for name, value, least in (("n_samples", n_samples, 1), ("n_columns", n_columns, 1), ("seed", seed, 0)):
        if value is not None and value < least:
            raise ConfigError(f"{name} must be at least {least}, got {value}")
    meta = getattr(iterator, "dataset_meta", None)
    title = title if title is not None else _title_of(meta, iterator)
    n_total = len(iterator)
    if n_total == 0:
        return _Sheet(title, "no samples", 320, 0).image
    first = iterator[0]
    found = default_positions(iterator, first)
    sample_pos = found[0] if sample_pos is None else column_key(iterator, sample_pos)
    target_pos = found[1] if target_pos is None else column_key(iterator, target_pos)
    is_picture = as_picture(content(first, sample_pos)) is not None
    n_samples = min(n_samples or (_N_PICTURES if is_picture else _N_ROWS), n_total)
    chosen, classes = _choose(iterator, target_pos, n_samples, seed)
    if not is_picture:
        chosen.sort()
    samples = [iterator[index] for index in chosen]
    labels = [_label_text(field(sample, target_pos), getattr(meta, "class_names", None)) for sample in samples]
    pictures = [picture for sample in samples if (picture := as_picture(content(sample, sample_pos))) is not None]
    count = f"{len(samples):,} of {n_total:,} samples"
    if len(pictures) == len(samples):
        if n_columns is None:
            n_columns = len(classes) if 4 <= len(classes) <= _MOST_COLUMNS else 10
        return _draw_pictures(pictures, labels, n_columns, title, count)
    header, rows = _table(iterator, samples, labels, sample_pos, target_pos)
    return _draw_table(["", *header], [[f"{index:,}", *row] for index, row in zip(chosen, rows, strict=True)], title, count)


def _title_of(meta: Any, iterator: Any) -> str:
    parts = [getattr(meta, "dataset_name", None), getattr(meta, "dataset_tag", None)]
    return " · ".join(str(part) for part in parts if part) or type(iterator).__name__


def _choose(iterator: DatasetIteratorIF, target_pos: Position, n_samples: int, seed: int | None) -> tuple[list[int], list[Any]]:
    """Positions to draw, the classes taking turns, and the classes in order (none if the target is no class)."""
    n_total = len(iterator)
    candidates = np.arange(n_total)
    if n_total > _N_LABELS_READ:
        candidates = np.linspace(0, n_total - 1, _N_LABELS_READ).astype(np.int64)
    try:
        labels = [as_label(target) for target in iterator.read_column(target_pos, candidates)]
    except (ConfigError, LookupError, TypeError):  # there is no such column
        labels = []
    by_class: dict[Any, list[int]] = {}
    for index, label in zip(candidates.tolist(), labels, strict=False):
        by_class.setdefault(label, []).append(index)
    is_class = bool(labels) and len(by_class) <= min(_MOST_CLASSES, max(1, len(labels) // 2))
    if not is_class or any(isinstance(label, float) for label in by_class):
        by_class = {None: candidates.tolist()}
        if seed is None:
            by_class[None] = candidates[np.linspace(0, len(candidates) - 1, n_samples).astype(np.int64)].tolist()
    classes = sorted(by_class, key=class_order)
    if seed is not None:
        generator = np.random.default_rng(seed)
        by_class = {label: generator.permutation(by_class[label]).tolist() for label in classes}
    turns = max(len(positions) for positions in by_class.values())
    in_turn = [by_class[label][turn] for turn in range(turns) for label in classes if turn < len(by_class[label])]
    return in_turn[:n_samples], [label for label in classes if label is not None]


def _label_text(target: Any, class_names: Sequence[str] | None) -> str:
    if target is None:
        return ""
    label = as_label(target)
    if class_names and isinstance(label, int) and 0 <= label < len(class_names):
        return text_of(class_names[label])
    return text_of(label)


# ------------------------------------------------------------------ pictures


def _draw_pictures(
    pictures: Sequence[np.ndarray[Any, Any]], labels: Sequence[str], n_columns: int, title: str, count: str
) -> Image.Image:
    low, high = value_range(pictures)
    thumbnails = [_thumbnail(to_bytes(picture, low, high)) for picture in pictures]
    cell_width = max(thumbnail.width for thumbnail in thumbnails)
    cell_height = max(thumbnail.height for thumbnail in thumbnails)
    n_columns = min(n_columns, len(pictures))
    n_rows = -(-len(pictures) // n_columns)
    label_height = _LABEL_HEIGHT if any(labels) else 0
    shape = " x ".join(map(str, pictures[0].shape[:2])) if len({picture.shape for picture in pictures}) == 1 else "various sizes"
    about = f"{count}   ·   {shape} {pictures[0].dtype}, {low:.4g} black to {high:.4g} white"
    sheet = _Sheet(
        title,
        about,
        n_columns * cell_width + (n_columns - 1) * _GAP,
        n_rows * (cell_height + label_height) + (n_rows - 1) * _ROW_GAP,
    )
    for position, (thumbnail, label) in enumerate(zip(thumbnails, labels, strict=True)):
        row, column = divmod(position, n_columns)
        left = sheet.left + column * (cell_width + _GAP)
        top = sheet.top + row * (cell_height + label_height + _ROW_GAP)
        x, y = left + (cell_width - thumbnail.width) // 2, top + (cell_height - thumbnail.height) // 2
        sheet.image.paste(thumbnail, (x, y))
        sheet.draw.rectangle((x - 1, y - 1, x + thumbnail.width, y + thumbnail.height), outline=_RULE)
        sheet.text(
            (left + cell_width // 2, top + cell_height + 3), label, _LABEL_SIZE, _INK, anchor="ma", width=cell_width + _GAP
        )
    return sheet.image


def _thumbnail(pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> Image.Image:
    """Small pictures enlarged by a whole factor, so that a pixel stays a square; large ones made smaller."""
    image = Image.fromarray(pixels)
    if image.mode == "RGBA":
        paper = Image.new("RGBA", image.size, _PAPER)
        image = Image.alpha_composite(paper, image)
    image = image.convert("RGB")
    edge = max(image.size)
    if edge > _LARGEST_CELL:
        factor = _LARGEST_CELL / edge
        size = max(1, round(image.width * factor)), max(1, round(image.height * factor))
        return image.resize(size, Image.Resampling.LANCZOS)
    whole = -(-_CELL_PIXELS // edge)
    return image.resize((image.width * whole, image.height * whole), Image.Resampling.NEAREST)


# ------------------------------------------------------------------ tables


def _table(
    iterator: Any, samples: Sequence[Any], labels: Sequence[str], sample_pos: Position, target_pos: Position
) -> tuple[list[str], list[list[str]]]:
    """The header and one row of text for each sample: its values, cut to what fits, and its label last."""
    names, feature_names = column_names(iterator), getattr(getattr(iterator, "dataset_meta", None), "feature_names", None)
    rows: list[tuple[list[str], str]] = []
    header: list[str] = []
    for sample, label in zip(samples, labels, strict=True):
        cells = _cells(sample, sample_pos, target_pos, feature_names)
        if len(cells) > _MOST_COLUMNS:
            cells = [*cells[: _MOST_COLUMNS - 1], ("…", f"{len(cells) - _MOST_COLUMNS + 1:,} more")]
        header = [name for name, _ in cells] if len(cells) >= len(header) else header
        rows.append(([text for _, text in cells], label))
    has_labels = any(labels)
    target_name = target_pos if isinstance(target_pos, str) else names[target_pos] if target_pos < len(names) else "target"
    padded = [[*cells, *[""] * (len(header) - len(cells)), *([label] if has_labels else [])] for cells, label in rows]
    return [*header, *([target_name] if has_labels else [])], padded


def _cells(sample: Any, sample_pos: Position, target_pos: Position, feature_names: Sequence[str] | None) -> list[tuple[str, str]]:
    if isinstance(sample, Mapping):
        return [(str(key), text_of(value)) for key, value in sample.items() if key != target_pos]
    value = content(sample, sample_pos)
    if isinstance(value, Mapping):
        return [(str(key), text_of(part)) for key, part in value.items()]
    array = as_array(value)
    if array is None or array.ndim != 1:
        return [("sample", text_of(value))]
    names = list(feature_names or ()) if feature_names is not None and len(feature_names) == array.size else []
    return [(names[i] if names else f"x{i}", text_of(part)) for i, part in enumerate(array.tolist())]


def _draw_table(header: Sequence[str], rows: Sequence[Sequence[str]], title: str, count: str) -> Image.Image:
    row_height, padding = 28, 14
    widths = [max(_width(text, _LABEL_SIZE) for text in column) + 2 * padding for column in zip(header, *rows, strict=True)]
    sheet = _Sheet(title, count, sum(widths), row_height * (len(rows) + 1))
    for number, row in enumerate([header, *rows]):
        top = sheet.top + number * row_height
        if number % 2 == 0 and number > 0:
            sheet.draw.rectangle((sheet.left, top, sheet.left + sum(widths) - 1, top + row_height - 1), fill=_STRIPE)
        right = sheet.left
        for column, text in enumerate(row):
            right += widths[column]
            sheet.text((right - padding, top + 5), text, _LABEL_SIZE, _GREY if number == 0 or column == 0 else _INK, anchor="ra")
    line = sheet.top + row_height - 1
    sheet.draw.line((sheet.left, line, sheet.left + sum(widths), line), fill=_INK)
    return sheet.image


# ------------------------------------------------------------------ paper


@functools.cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """A font of this machine with the letters of many scripts, or Pillow's own."""
    for name in ("NotoSansCJK-Regular.ttc", "DejaVuSans.ttf", "Arial Unicode.ttf", "arial.ttf"):
        try:
            return ImageFont.truetype(name, size)
        except OSError:
            continue
    return ImageFont.load_default(size)


def _width(text: str, size: int) -> int:
    return int(_font(size).getlength(printable(text))) + 1


class _Sheet:
    """White paper with a title, a line about what is on it, and room of the size asked for at ``left``, ``top``."""

    def __init__(self, title: str, about: str, width: int, height: int) -> None:
        page_width = max(width, _width(title, _TITLE_SIZE), _width(about, _SMALL_SIZE)) + 2 * _MARGIN
        self.left = (page_width - width) // 2
        self.top = _MARGIN + 66
        self.image = Image.new("RGB", (page_width, self.top + height + _MARGIN), _PAPER)
        self.draw = ImageDraw.Draw(self.image)
        self.text((_MARGIN, _MARGIN - 6), title, _TITLE_SIZE, _INK)
        self.text((_MARGIN, _MARGIN + 28), about, _SMALL_SIZE, _GREY)

    def text(
        self, position: tuple[int, int], text: str, size: int, fill: str, anchor: str = "la", width: int | None = None
    ) -> None:
        """Write one line; cut short if it is wider than ``width`` pixels."""
        text = printable(text)
        while width is not None and len(text) > 1 and _width(text, size) > width:
            text = text[:-2] + "…"
        self.draw.text(position, text, font=_font(size), fill=fill, anchor=anchor)
