"""Draws samples side by side on a sheet, with their labels."""

from __future__ import annotations

import contextlib
import functools
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.meta import column_key
from data_stack.dataset.positions import check_integer
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.show.display_value import DisplayValue, shorten, span_of, to_display_value
from data_stack.show.drawing import Span, draw, enlarge
from data_stack.show.markup import readable
from data_stack.show.sample_parts import (
    choose,
    default_keys,
    hints_of,
    label_text,
    overlays_of,
    part_of,
    title_of,
)

try:
    from PIL import Image, ImageDraw, ImageFont
except ImportError as error:
    raise MissingDependencyError("drawing pictures", "Pillow", "images") from error

_PAPER_COLOR = "#ffffff"
_TEXT_COLOR = "#1b1f24"
_SUBTITLE_COLOR = "#6a737d"

# Distances on the sheet, in pixels.

#: Around all that is drawn.
_MARGIN = 28
#: Between two pictures.
_GAP = 10
#: The height of the line below a picture.
_LABEL_HEIGHT = 22
#: The height of the title and the subtitle.
_HEADER_HEIGHT = 66
#: The width of a sheet without samples.
_WIDTH_OF_EMPTY_SHEET = 320

# Sizes of letters, in pixels.
_TITLE_SIZE = 24
_TEXT_SIZE = 15

#: Pictures with a shorter longer edge are enlarged, in pixels.
_MIN_PICTURE_EDGE = 80

#: Pictures with a longer edge are shrunk, in pixels.
_MAX_PICTURE_EDGE = 160

#: The maximum number of pixels of a picture before Pillow fits it into its place.
_MAX_DRAWN_PIXELS = 1 << 18

#: The maximum number of characters of a sample without a picture.
_MAX_TEXT_CHARACTERS = 100

#: The number of characters of its lines.
_LINE_CHARACTERS = 20

#: How many samples are drawn without ``n_samples`` and ``per_class``.
_DEFAULT_N_SAMPLES = 100

#: How many pictures a row has, unless the classes suggest another number.
_DEFAULT_N_COLUMNS = 10

#: The numbers of classes with which a row of the sheet has one sample of each class.
_CLASSES_OF_A_ROW = range(4, 13)

#: The first installed font is used. It has more scripts than Pillow's own.
_FONTS = ("NotoSansCJK-Regular.ttc", "DejaVuSans.ttf", "arial.ttf")


def contact_sheet(
    iterator: DatasetIteratorIF,
    n_samples: int | None = None,
    *,
    seed: int | None = None,
    columns: Sequence[int | str] | int | str | None = None,
    per_class: int | None = None,
    n_columns: int | None = None,
    title: str | None = None,
) -> Image.Image:
    """Draw samples with their labels side by side; ``.save("sheet.png")`` writes the picture.

    Equally many samples of each class are drawn: the first ones, or random ones with ``seed``. If
    the targets are not classes, the samples are spread evenly over the dataset. The choice is
    deterministic.

    Pictures have the shape ``(height, width)``, ``(height, width, c)`` or ``(c, height, width)``
    with 1, 3 or 4 channels of any number type. Small pictures are enlarged, and all share one range
    of values. Boxes and masks that the meta names are drawn over them. Series and sound are drawn
    as lines, other samples as text.

    Args:
        iterator: an iterator of tuples or dicts. The drawn samples and up to 10,000 targets are
            read.
        n_samples: the maximum number of samples; None: 100, or with ``per_class`` all.
        seed: draws random samples; an int from 0 on.
        columns: the columns of the picture and of the labels, as positions, names or keys. None:
            those that the meta names; without meta, the first two parts of a tuple, or the first
            picture and the first single value of a dict.
        per_class: the maximum number of samples of each class; None: no limit.
        n_columns: the number of pictures in a row. None: with ``per_class`` one row for each class,
            with 4 to 12 classes one column for each class, otherwise 10 pictures.
        title: the first line; None: the name and tag of the dataset.

    Raises:
        ConfigError: ``n_samples``, ``n_columns`` or ``per_class`` is below 1, or ``seed`` below 0;
            ``columns`` is empty; or ``per_class`` is given, but the targets are not classes.
    """
    _check_number("n_samples", n_samples, at_least=1)
    _check_number("n_columns", n_columns, at_least=1)
    _check_number("per_class", per_class, at_least=1)
    _check_number("seed", seed, at_least=0)
    if title is None:
        title = title_of(iterator)
    n_total = len(iterator)
    if n_total == 0:
        return _make_sheet(title, "no samples", _WIDTH_OF_EMPTY_SHEET, 0)

    shown = _choose_columns(iterator, columns)
    first_label_key = shown.label_keys[0] if shown.label_keys else None
    max_samples = _max_samples(n_total, n_samples, per_class)
    positions, n_classes = choose(iterator, first_label_key, max_samples, seed, per_class)

    samples = [iterator[position] for position in positions]
    pictures = _draw_pictures(samples, shown.picture_key, hints_of(iterator))
    labels = [_label_of(sample, shown) for sample in samples]
    if n_columns is None:
        n_columns = _default_n_columns(n_classes, per_class)
    subtitle = f"{len(samples):,} of {n_total:,} samples"
    return _lay_out(pictures, labels, n_columns, title, subtitle)


# ------------------------------------------------------------------ choosing


def _check_number(name: str, value: int | None, *, at_least: int) -> None:
    """Check that an argument is None, or an integer of at least ``at_least``."""
    if value is not None:
        check_integer(name, value, at_least=at_least)


class _SheetColumns(NamedTuple):
    """The columns that a sheet shows.

    Attributes:
        picture_key: the key of the pictures.
        label_keys: the keys of the labels.
        class_names: the names of the classes of a label, by its key; None if unknown.
    """

    picture_key: Any
    label_keys: list[Any]
    class_names: dict[Any, Sequence[Any] | None]


def _choose_columns(
    iterator: DatasetIteratorIF, columns: Sequence[int | str] | int | str | None
) -> _SheetColumns:
    """Return the columns that the caller or the meta names.

    Raises:
        ConfigError: ``columns`` is empty, or a column does not exist.
    """
    meta = getattr(iterator, "dataset_meta", None)
    sample_key, target_key = default_keys(meta, iterator[0])
    class_names = {target_key: getattr(meta, "class_names", None)}
    if columns is None:
        return _SheetColumns(sample_key, [target_key], class_names)

    if isinstance(columns, (int, str)):
        columns = [columns]
    keys = [column_key(iterator, column) for column in columns]
    if not keys:
        raise ConfigError(
            "columns is empty; name the column of the picture, then those of the labels"
        )
    return _SheetColumns(keys[0], keys[1:], class_names)


def _max_samples(n_total: int, n_samples: int | None, per_class: int | None) -> int:
    """Return the maximum number of samples to draw."""
    if n_samples is not None:
        return min(n_samples, n_total)
    if per_class is not None:
        return n_total
    return min(_DEFAULT_N_SAMPLES, n_total)


def _default_n_columns(n_classes: int, per_class: int | None) -> int:
    """Return the number of pictures in a row: a row a class, or a class a column, or ten."""
    if per_class and n_classes:
        return per_class
    if n_classes in _CLASSES_OF_A_ROW:
        return n_classes
    return _DEFAULT_N_COLUMNS


def _label_of(sample: Any, shown: _SheetColumns) -> str:
    """Return the line below the picture of a sample: its labels."""
    labels = []
    for key in shown.label_keys:
        labels.append(label_text(part_of(sample, key), shown.class_names.get(key)))
    return " · ".join(labels)


# ------------------------------------------------------------------ drawing


def _draw_pictures(samples: Sequence[Any], key: Any, hints: Mapping[Any, str]) -> list[Image.Image]:
    """Return a picture for each sample: of its value, or of its text."""
    hint = hints.get(key, "image")
    values = [to_display_value(part_of(sample, key), hint) for sample in samples]
    span = span_of([value.data for value in values if value.kind == "image"])
    pictures = []
    for sample, value in zip(samples, values, strict=True):
        if value.is_picture:
            overlays = overlays_of(sample, hints) if value.kind == "image" else {}
            pictures.append(_draw_picture(value, span, overlays))
        else:
            pictures.append(_draw_text(part_of(sample, key)))
    return pictures


def _draw_picture(value: DisplayValue, span: Span, overlays: Mapping[str, Any]) -> Image.Image:
    """Draw a value in a size that fits the sheet."""
    image = draw(value, _MAX_DRAWN_PIXELS, span, **overlays)
    if image.mode == "RGBA":
        image = Image.alpha_composite(Image.new("RGBA", image.size, _PAPER_COLOR), image)
    image = image.convert("RGB")
    image.thumbnail((_MAX_PICTURE_EDGE, _MAX_PICTURE_EDGE))
    return enlarge(image, _MIN_PICTURE_EDGE)


def _draw_text(value: Any) -> Image.Image:
    """Draw a value that is not a picture as a few lines of text."""
    image = Image.new("RGB", (_MAX_PICTURE_EDGE, _MIN_PICTURE_EDGE), _PAPER_COLOR)
    text = textwrap.fill(shorten(value, _MAX_TEXT_CHARACTERS), _LINE_CHARACTERS)
    ImageDraw.Draw(image).multiline_text((0, 0), text, _TEXT_COLOR, _font(_TEXT_SIZE))
    return image


def _lay_out(
    pictures: Sequence[Image.Image],
    labels: Sequence[str],
    n_columns: int,
    title: str,
    subtitle: str,
) -> Image.Image:
    """Return a sheet with the pictures in rows, each above its label."""
    n_columns = min(n_columns, len(pictures))
    n_rows = math.ceil(len(pictures) / n_columns)
    cell_width = max(picture.width for picture in pictures) + _GAP
    cell_height = max(picture.height for picture in pictures) + _LABEL_HEIGHT + _GAP
    sheet = _make_sheet(title, subtitle, n_columns * cell_width, n_rows * cell_height)

    drawing = ImageDraw.Draw(sheet)
    for index, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
        row, column = divmod(index, n_columns)
        left = _MARGIN + column * cell_width
        top = _MARGIN + _HEADER_HEIGHT + row * cell_height
        sheet.paste(picture, (left, top))
        label_top = top + cell_height - _LABEL_HEIGHT - _GAP + 2
        fitting_label = _shorten_to_width(label, cell_width)
        drawing.text((left, label_top), fitting_label, _TEXT_COLOR, _font(_TEXT_SIZE))
    return sheet


def _make_sheet(title: str, subtitle: str, width: int, height: int) -> Image.Image:
    """Return a white sheet with a header, and ``width`` × ``height`` pixels below it."""
    title = readable(title)
    width = max(width, _text_width(title, _TITLE_SIZE), _text_width(subtitle, _TEXT_SIZE))
    size = (width + 2 * _MARGIN, height + _HEADER_HEIGHT + 2 * _MARGIN)
    sheet = Image.new("RGB", size, _PAPER_COLOR)
    drawing = ImageDraw.Draw(sheet)
    drawing.text((_MARGIN, _MARGIN - 6), title, _TEXT_COLOR, _font(_TITLE_SIZE))
    drawing.text((_MARGIN, _MARGIN + 28), subtitle, _SUBTITLE_COLOR, _font(_TEXT_SIZE))
    return sheet


def _shorten_to_width(label: str, width: int) -> str:
    """Return the beginning of a label that fits into a width; empty if none does."""
    while label and _text_width(label, _TEXT_SIZE) > width:
        if len(label) <= 2:
            return ""
        label = f"{label[:-2]}…"
    return label


def _text_width(text: str, size: int) -> int:
    """Return the width of a text in pixels, rounded up."""
    return int(_font(size).getlength(text)) + 1


@functools.cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Return an installed font with many scripts, or Pillow's default font."""
    for name in _FONTS:
        with contextlib.suppress(OSError):
            return ImageFont.truetype(name, size)
    return ImageFont.load_default(size)
