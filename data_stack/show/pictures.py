"""Draws values as pictures: one by one, or those of many samples on a sheet."""

from __future__ import annotations

import contextlib
import functools
import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.meta import column_key
from data_stack.dataset.positions import check_integer
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.show import sample_parts
from data_stack.show.display_value import (
    DisplayValue,
    kind_of_value,
    shorten,
    span_of,
    to_display_value,
)
from data_stack.show.markup import readable

try:
    from PIL import Image, ImageDraw, ImageFont
except ImportError as error:
    raise MissingDependencyError("drawing pictures", "Pillow", "images") from error

__all__ = ["as_png", "contact_sheet", "kind_of_value", "shorten"]

_Array = npt.NDArray[Any]
_Span = tuple[float, float] | None


#: Evenly spaced colours of matplotlib's viridis.
_HEAT = np.array([(68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37)])
_LINE_COLOURS = (
    (91, 139, 208),
    (217, 119, 74),
    (74, 165, 138),
    (176, 124, 198),
    (194, 161, 60),
    (138, 143, 152),
)
#: The colours of classes in masks, and of boxes.
_COLOURS = np.array(
    [(230, 75, 53), (77, 187, 213), (0, 160, 135), (240, 180, 40), (132, 94, 194), (240, 120, 180)]
)
_PAPER, _INK, _GREY = "#ffffff", "#1b1f24", "#6a737d"
_MARGIN, _GAP, _LINE_HEIGHT, _TITLE_HEIGHT = 28, 10, 22, 66
_TITLE_SIZE, _TEXT_SIZE = 24, 15
_CELL_PIXELS, _MAX_CELL = 80, 160


def as_png(
    value: Any,
    *,
    max_pixels: int = 1 << 16,
    span: _Span = None,
    hint: str | None = None,
    boxes: Any = None,
    mask: Any = None,
) -> bytes:
    """Draw a value as a PNG file.

    Pictures may have any size and number type, with the channels first or last: shape ``(h, w)``, ``(h, w, c)`` or
    ``(c, h, w)`` with c 1, 3 or 4; series and sound are drawn as lines, arrays of other shapes as heat maps with NaN transparent.
    Large pictures are shrunk; small ones are enlarged only below boxes and masks. The value may also be a Pillow image or the
    bytes of an image file.

    Args:
        value: see :func:`kind_of_value`.
        max_pixels: maximum size of the picture; its longer edge is at most four times the square root of it.
        span: the values drawn as black and white; None: as :func:`~data_stack.show.display_value.span_of` returns.
        hint: the kind of the column in the meta, see :func:`kind_of_value`.
        boxes: drawn over the picture: shape ``(n, 4)``, x and y of two corners, in pixels.
        mask: drawn over the picture: classes or bools, of any shape ``(h, w)``; 0 is transparent.

    Raises:
        ConfigError: the value is not an image, mask, sound or array of numbers.
    """
    look = to_display_value(value, hint)
    if look.kind == "array" and look.data.ndim == 1:
        look = DisplayValue("array", look.data[np.newaxis])
    if not look.is_picture:
        raise ConfigError(
            f"cannot draw {shorten(value)}: expected an image, sound or numbers, got {look.kind}"
        )
    return encode_image(draw(look, max_pixels, span, boxes=boxes, mask=mask))


def encode_image(image: Image.Image, kind: str = "png") -> bytes:
    """An image as a file."""
    file = io.BytesIO()
    image.save(file, kind, quality=90)  # of JPEG
    return file.getvalue()


def draw(
    look: DisplayValue, max_pixels: int, span: _Span = None, *, boxes: Any = None, mask: Any = None
) -> Image.Image:
    """Draw a value as :func:`as_png` does, in grey or colours, with or without transparency."""
    if look.kind in ("series", "audio"):
        return _draw_lines(look.data, max_pixels)
    array = look.data
    while look.kind == "array" and array.ndim > 2:  # the plane in the middle
        array = array[len(array) // 2]
    small = _thin_out(array, max_pixels)
    if look.kind == "mask":
        return _colours_of(small, 255)
    if look.kind == "array":
        low, high = span_of([array], from_zero=False)
        where = np.clip((small.astype(np.float64) - low) / (high - low), 0, 1)
        heat = [np.interp(where, np.linspace(0, 1, len(_HEAT)), channel) for channel in _HEAT.T]
        return Image.fromarray(
            np.nan_to_num(np.stack([*heat, np.where(np.isnan(where), 0, 255)], axis=2)).astype(
                np.uint8
            )
        )
    grey, span = (
        np.ascontiguousarray(_thin_out(array, 16 * max_pixels)),
        span or span_of([array]),
    )
    if grey.dtype != np.uint8 or span != (0.0, 255.0):
        with np.errstate(all="ignore"):
            grey = (
                np.nan_to_num(np.interp(grey.astype(np.float64), span, (0, 255)))
                .round()
                .astype(np.uint8)
            )
    image = Image.fromarray(grey)
    image = image.resize((small.shape[1], small.shape[0]), Image.Resampling.BOX)
    if boxes is None and mask is None:
        return image
    times = math.ceil(
        160 / max(image.size)
    )  # smaller pictures are enlarged before boxes and masks are drawn
    image = image.convert("RGB").resize(
        (image.width * times, image.height * times), Image.Resampling.NEAREST
    )
    if mask is not None and (of_mask := to_display_value(mask, "mask")).kind == "mask":
        over = _colours_of(_thin_out(of_mask.data, image.width * image.height), 128)
        over = over.resize(image.size, Image.Resampling.NEAREST)
        image.paste(over, (0, 0), over)
    if boxes is not None and (of_boxes := to_display_value(boxes, "boxes")).kind == "boxes":
        scale = np.array([image.width / array.shape[1], image.height / array.shape[0]] * 2)
        drawing, thick = ImageDraw.Draw(image), max(1, max(image.size) // 80)
        for number, box in enumerate(of_boxes.data[np.isfinite(of_boxes.data).all(axis=1)][:200]):
            edges = np.clip(box * scale, -1, [*image.size, *image.size]).reshape(2, 2)
            colour = tuple(
                _COLOURS[(number + 3) % len(_COLOURS)].tolist()
            )  # not the colours of the first classes of a mask
            drawing.rectangle(
                (*edges.min(axis=0).tolist(), *edges.max(axis=0).tolist()),
                outline=colour,
                width=thick,
            )
    return image


def _thin_out(array: _Array, max_pixels: int) -> _Array:
    """Evenly spread rows and columns of an array, at most ``max_pixels`` values."""
    height, width = array.shape[:2]
    longest, scale = max(1, 4 * math.isqrt(max_pixels)), math.sqrt(max_pixels / (height * width))
    new = [max(1, min(edge, longest, int(edge * scale))) for edge in (height, width)]
    if new == [height, width]:
        return array
    rows, columns = (np.arange(n) * edge // n for edge, n in zip((height, width), new, strict=True))
    thin: _Array = array[rows][:, columns]
    return thin


def _draw_lines(lines: _Array, max_pixels: int) -> Image.Image:
    """Numbers in time, shape ``(n, lines)``, with gaps where not finite; of many, the least and the largest neighbours."""
    width = min(480, math.isqrt(3 * max_pixels))
    height = width // 3
    low, high = span_of([lines], from_zero=False)
    pixels = np.zeros((height, width, 4), np.uint8)
    with np.errstate(all="ignore"):
        values = np.where(np.isfinite(lines), lines, np.nan)[:, : len(_LINE_COLOURS)].astype(
            np.float64
        )
        heights = (high - values) / (high - low) * (height - 3)
        if len(lines) <= width:
            places = np.linspace(0, len(lines) - 1, width + 1)
            heights = np.stack(
                [np.interp(places, np.arange(len(lines)), line) for line in heights.T], axis=1
            )
        starts = np.linspace(0, len(heights) - 1, width + 1).round().astype(np.intp)
        ranges = np.stack([starts[:-1], starts[1:] + 1], axis=1).ravel()
        padded = np.vstack([heights, np.full((1, heights.shape[1]), np.nan)])
        ends = [extreme.reduceat(padded, ranges)[::2].T for extreme in (np.fmin, np.fmax)]
    rows = np.arange(height)[:, np.newaxis]
    for top, bottom, colour in zip(*ends, _LINE_COLOURS, strict=False):
        pixels[(rows >= np.floor(top)) & (rows < np.floor(bottom) + 3)] = (*colour, 255)
    return Image.fromarray(pixels)


def _colours_of(mask: _Array, opacity: int) -> Image.Image:
    classes = np.nan_to_num(mask).astype(np.int64)
    opacities = np.where(classes == 0, 0, opacity)
    return Image.fromarray(
        np.dstack([_COLOURS[(classes - 1) % len(_COLOURS)], opacities]).astype(np.uint8)
    )


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

    The choice is deterministic: equally many samples of each class, the first ones, or random ones with ``seed``; for targets
    that are not classes, samples evenly over the dataset. Pictures have the shape ``(height, width)``, ``(height, width, c)``
    or ``(c, height, width)`` with 1, 3 or 4 channels of any number type; small ones are enlarged. All share one range of
    values. Boxes and masks that the meta names are drawn over them. Series and sound are lines, other samples text.

    Args:
        iterator: tuples or dicts; reads the drawn samples and up to 10,000 targets.
        n_samples: how many to draw at most; None: 100.
        seed: draws random samples; any int not below 0.
        columns: positions, names or keys of the picture, then of the labels; None: by the meta, or the first part of a tuple and
            the second one, or the first picture of a dict and its first single value.
        per_class: how many of each class to draw at most; without ``n_samples`` of all classes.
        n_columns: pictures in a row; None: one for each class of a few, or a row for each class with ``per_class``, otherwise 10.
        title: the first line; None: the dataset's name and tag.

    Raises:
        ConfigError: ``n_samples``, ``n_columns`` or ``per_class`` is below 1, or ``seed`` below 0; ``columns`` is empty;
            ``per_class`` without classes.
    """
    for name, value in {
        "n_samples": n_samples,
        "n_columns": n_columns,
        "per_class": per_class,
        "seed": seed,
    }.items():
        if value is not None:
            check_integer(name, value, at_least=0 if name == "seed" else 1)
    title = sample_parts.title_of(iterator) if title is None else title
    meta, n_total = getattr(iterator, "dataset_meta", None), len(iterator)
    if n_total == 0:
        return _sheet(title, "no samples", 320, 0)[0]
    sample_key, target_key = sample_parts.default_keys(meta, iterator[0])
    classes, target_keys = {target_key: getattr(meta, "class_names", None)}, [target_key]
    if columns is not None:
        given = [columns] if isinstance(columns, (int, str)) else list(columns)
        if not given:
            raise ConfigError(
                "columns is empty; name the column of the picture, then those of the labels"
            )
        sample_key, *target_keys = (column_key(iterator, key) for key in given)
    most = (
        n_total if n_samples is None and per_class is not None else min(n_samples or 100, n_total)
    )
    chosen, n_classes = sample_parts.choose(
        iterator, target_keys[0] if target_keys else None, most, seed, per_class
    )
    samples = [iterator[position] for position in chosen]
    labels = [
        " · ".join(
            sample_parts.label_text(sample_parts.part_of(each, key), classes.get(key))
            for key in target_keys
        )
        for each in samples
    ]
    tiles = _tiles(samples, sample_key, sample_parts.hints_of(iterator))
    if n_columns is None:
        n_columns = (
            per_class if per_class and n_classes else n_classes if 4 <= n_classes <= 12 else 10
        )
    return _draw(tiles, labels, n_columns, title, f"{len(samples):,} of {n_total:,} samples")


# ------------------------------------------------------------------ drawing


def _draw(
    tiles: Sequence[Image.Image], labels: Sequence[str], n_columns: int, title: str, about: str
) -> Image.Image:
    n_columns = min(n_columns, len(tiles))
    width = max(tile.width for tile in tiles) + _GAP
    height = max(tile.height for tile in tiles) + _LINE_HEIGHT + _GAP
    sheet, drawing = _sheet(
        title, about, n_columns * width, math.ceil(len(tiles) / n_columns) * height
    )
    for number, (tile, label) in enumerate(zip(tiles, labels, strict=True)):
        left, top = (
            _MARGIN + number % n_columns * width,
            _MARGIN + _TITLE_HEIGHT + number // n_columns * height,
        )
        sheet.paste(tile, (left, top))
        while label and _text_width(label) > width:
            label = label[:-2] + "…" if len(label) > 2 else ""
        drawing.text((left, top + height - _LINE_HEIGHT - _GAP + 2), label, _INK, _font(_TEXT_SIZE))
    return sheet


def _tiles(samples: Sequence[Any], key: Any, hints: Mapping[Any, str]) -> list[Image.Image]:
    """A picture or text for each sample."""
    views = [
        to_display_value(sample_parts.part_of(sample, key), hints.get(key, "image"))
        for sample in samples
    ]
    span = span_of([look.data for look in views if look.kind == "image"])
    tiles = []
    for sample, look in zip(samples, views, strict=True):
        if look.is_picture:
            over = sample_parts.overlays_of(sample, hints) if look.kind == "image" else {}
            image = draw(
                look, 1 << 18, span, **over
            )  # of a picture before Pillow fits it into its cell
            if image.mode == "RGBA":
                image = Image.alpha_composite(Image.new("RGBA", image.size, _PAPER), image)
            image = image.convert("RGB")
            image.thumbnail((_MAX_CELL, _MAX_CELL))
            factor = math.ceil(_CELL_PIXELS / max(image.size))  # of a small picture
            tiles.append(
                image.resize(
                    (image.width * factor, image.height * factor), Image.Resampling.NEAREST
                )
            )
        else:
            tiles.append(Image.new("RGB", (_MAX_CELL, _CELL_PIXELS), _PAPER))
            text = textwrap.fill(shorten(sample_parts.part_of(sample, key), 100), 20)
            ImageDraw.Draw(tiles[-1]).multiline_text((0, 0), text, _INK, _font(_TEXT_SIZE))
    return tiles


def _sheet(
    title: str, about: str, width: int, height: int
) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """A white sheet with a title and a subtitle, and ``width`` × ``height`` pixels below them."""
    title = readable(title)
    width = max(width, _text_width(title, _TITLE_SIZE), _text_width(about)) + 2 * _MARGIN
    image = Image.new("RGB", (width, height + _TITLE_HEIGHT + 2 * _MARGIN), _PAPER)
    drawing = ImageDraw.Draw(image)
    drawing.text((_MARGIN, _MARGIN - 6), title, _INK, _font(_TITLE_SIZE))
    drawing.text((_MARGIN, _MARGIN + 28), about, _GREY, _font(_TEXT_SIZE))
    return image, drawing


def _text_width(text: str, size: int = _TEXT_SIZE) -> int:
    return int(_font(size).getlength(text)) + 1


@functools.cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """An installed font with many scripts, or Pillow's default font."""
    for name in ("NotoSansCJK-Regular.ttc", "DejaVuSans.ttf", "arial.ttf"):
        with contextlib.suppress(OSError):
            return ImageFont.truetype(name, size)
    return ImageFont.load_default(size)
