"""Draws samples of a dataset in one picture, each with its label."""

from __future__ import annotations

import functools
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from data_stack.dataset.meta import column_key
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.show.kinds import look_at, shorten, span_of
from data_stack.show.markup import readable
from data_stack.show.pictures import draw
from data_stack.show.samples import choose, default_keys, hints_of, label_text, overlays_of, part_of, title_of

try:
    from PIL import Image, ImageDraw, ImageFont
except ImportError as error:
    raise MissingDependencyError("contact_sheet", "Pillow", "images") from error

if TYPE_CHECKING:
    from data_stack.dataset.iterator import DatasetIteratorIF

_PAPER, _INK, _GREY = "#ffffff", "#1b1f24", "#6a737d"
_MARGIN, _GAP, _LINE_HEIGHT, _TITLE_HEIGHT = 28, 10, 22, 66
_TITLE_SIZE, _TEXT_SIZE = 24, 15
_CELL_PIXELS, _MAX_CELL = 80, 160
_N_SAMPLES = 100
_MAX_PIXELS = 1 << 18  # of a picture before Pillow fits it into its cell


def contact_sheet(
    iterator: DatasetIteratorIF,
    *,
    n_samples: int | None = None,
    n_columns: int | None = None,
    seed: int | None = None,
    per_class: int | None = None,
    title: str | None = None,
    sample_pos: int | str | None = None,
    target_pos: int | str | Sequence[int | str] | None = None,
) -> Image.Image:
    """Draw samples with their labels side by side; ``.save("sheet.png")`` writes the picture.

    The choice is deterministic: equally many samples of each class, the first ones, or random ones with ``seed``; for targets
    that are not classes, samples evenly over the dataset. Pictures have the shape ``(height, width)``, ``(height, width, c)``
    or ``(c, height, width)`` with 1, 3 or 4 channels of any number type; small ones are enlarged. All share one range of
    values. Boxes and masks that the meta names are drawn over them. Series and sound are lines, other samples text.

    Args:
        iterator: tuples or dicts; reads the drawn samples and up to 10,000 targets.
        n_samples: how many to draw at most; None: 100.
        n_columns: pictures in a row; None: one for each class of a few, or a row for each class with ``per_class``, otherwise 10.
        seed: draws random samples; any int not below 0.
        per_class: how many of each class to draw at most; without ``n_samples`` of all classes.
        title: the first line; None: the dataset's name and tag.
        sample_pos: position, name or key of the picture; None: by the meta, or the first part of a tuple, or the first picture
            of a dict.
        target_pos: position, name or key of the label, or several; None: by the meta, or the second part of a tuple, or the
            first single value of a dict.

    Raises:
        ConfigError: ``n_samples``, ``n_columns`` or ``per_class`` is below 1, or ``seed`` below 0; ``per_class`` without classes.
    """
    for name, value in {"n_samples": n_samples, "n_columns": n_columns, "per_class": per_class, "seed": seed}.items():
        least = 0 if name == "seed" else 1
        if value is not None and value < least:
            raise ConfigError(f"{name} must be at least {least}, got {value}")
    title = title_of(iterator) if title is None else title
    meta, n_total = getattr(iterator, "dataset_meta", None), len(iterator)
    if n_total == 0:
        return _sheet(title, "no samples", 320, 0)[0]
    sample_key, target_key = default_keys(meta, iterator[0])
    sample_key = sample_key if sample_pos is None else column_key(iterator, sample_pos)
    given = [target_pos] if isinstance(target_pos, (int, str)) else target_pos
    target_keys = [target_key] if given is None else [column_key(iterator, key) for key in given]
    most = n_total if n_samples is None and per_class is not None else min(n_samples or _N_SAMPLES, n_total)
    chosen, n_classes = choose(iterator, target_keys[0] if target_keys else None, most, seed, per_class)
    samples = [iterator[position] for position in chosen]
    classes = {target_key: getattr(meta, "class_names", None)}
    labels = [" · ".join(label_text(part_of(each, key), classes.get(key)) for key in target_keys) for each in samples]
    tiles = _tiles(samples, sample_key, hints_of(iterator))
    if n_columns is None:
        n_columns = per_class if per_class and n_classes else n_classes if 4 <= n_classes <= 12 else 10
    return _draw(tiles, labels, n_columns, title, f"{len(samples):,} of {n_total:,} samples")


def show(iterator: DatasetIteratorIF, *, columns: Sequence[int | str] | int | str | None = None, **options: Any) -> Image.Image:
    """See ``iterator.show``."""
    if columns is not None:
        keys = [columns] if isinstance(columns, (int, str)) else list(columns)
        if not keys:
            raise ConfigError("columns is empty; name the column of the picture, then those of the labels")
        options.update(sample_pos=keys[0], target_pos=keys[1:])
    return contact_sheet(iterator, **options)


# ------------------------------------------------------------------ drawing


def _draw(tiles: Sequence[Image.Image], labels: Sequence[str], n_columns: int, title: str, about: str) -> Image.Image:
    n_columns = min(n_columns, len(tiles))
    width = max(tile.width for tile in tiles) + _GAP
    height = max(tile.height for tile in tiles) + _LINE_HEIGHT + _GAP
    sheet, drawing = _sheet(title, about, n_columns * width, math.ceil(len(tiles) / n_columns) * height)
    for number, (tile, label) in enumerate(zip(tiles, labels, strict=True)):
        left, top = _MARGIN + number % n_columns * width, _MARGIN + _TITLE_HEIGHT + number // n_columns * height
        sheet.paste(tile, (left, top))
        while label and _text_width(label) > width:
            label = label[:-2] + "…" if len(label) > 2 else ""
        drawing.text((left, top + height - _LINE_HEIGHT - _GAP + 2), label, _INK, _font(_TEXT_SIZE))
    return sheet


def _tiles(samples: Sequence[Any], key: Any, hints: Mapping[Any, str]) -> list[Image.Image]:
    """A picture or text for each sample."""
    looks = [look_at(part_of(sample, key), hints.get(key, "image")) for sample in samples]
    span = span_of([look.data for look in looks if look.kind == "image"])
    tiles = []
    for sample, look in zip(samples, looks, strict=True):
        if look.is_picture:
            over = overlays_of(sample, hints) if look.kind == "image" else {}
            tiles.append(_thumbnail(draw(look, _MAX_PIXELS, span, **over)))
        else:
            tiles.append(_text_tile(part_of(sample, key)))
    return tiles


def _text_tile(value: Any) -> Image.Image:
    tile = Image.new("RGB", (_MAX_CELL, _CELL_PIXELS), _PAPER)
    text = textwrap.fill(shorten(value, 100), 20)
    ImageDraw.Draw(tile).multiline_text((0, 0), text, _INK, _font(_TEXT_SIZE))
    return tile


def _thumbnail(image: Image.Image) -> Image.Image:
    """Enlarge a small picture by a whole factor, or shrink a large one."""
    if image.mode == "RGBA":
        image = Image.alpha_composite(Image.new("RGBA", image.size, _PAPER), image)
    image = image.convert("RGB")
    edge = max(image.size)
    if edge > _MAX_CELL:
        image.thumbnail((_MAX_CELL, _MAX_CELL))
        return image
    factor = math.ceil(_CELL_PIXELS / edge)
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)


def _sheet(title: str, about: str, width: int, height: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
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
        try:
            return ImageFont.truetype(name, size)
        except OSError:
            continue
    return ImageFont.load_default(size)
