"""Draws samples of a dataset on one picture, each with its label."""

from __future__ import annotations

import functools
import math
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.contract import column_key
from data_stack.dataset.iterator.stacking import exact_array
from data_stack.dataset.reports.markup import readable
from data_stack.dataset.reports.target_distribution import n_values_of, plain_value
from data_stack.exception import ConfigError, MissingDependencyError

try:
    from PIL import Image, ImageDraw, ImageFont
except ImportError as error:
    raise MissingDependencyError("contact_sheet", "Pillow", "images") from error

if TYPE_CHECKING:
    from data_stack.dataset.iterator import DatasetIteratorIF

__all__ = ["contact_sheet"]

_PAPER, _INK, _GREY = "#ffffff", "#1b1f24", "#6a737d"
_MARGIN, _GAP, _LINE_HEIGHT, _TITLE_HEIGHT = 28, 10, 22, 66
_TITLE_SIZE, _TEXT_SIZE = 24, 15
_CELL_PIXELS, _LARGEST_CELL = 80, 160
_N_SAMPLES = 100
_LEAST_EDGE = 4  # smaller arrays are drawn as text
#: At most so many labels are read, evenly spread.
_N_LABELS_READ = 10_000

_Array = npt.NDArray[Any]
_Key = int | str | None


def contact_sheet(
    iterator: DatasetIteratorIF,
    *,
    n_samples: int | None = None,
    n_columns: int | None = None,
    seed: int | None = None,
    title: str | None = None,
    sample_pos: int | str | None = None,
    target_pos: int | str | None = None,
) -> Image.Image:
    """Draw samples with their labels side by side; ``.save("sheet.png")`` writes the picture.

    The choice is deterministic: equally many samples of each class, the first ones, or random ones with ``seed``; for targets
    that are not classes, samples evenly over the dataset. Pictures have the shape ``(height, width)``, ``(height, width, c)``
    or ``(c, height, width)`` with 1, 3 or 4 channels of any number type; small ones are enlarged. All share one range of
    values. Other samples are drawn as text.

    Args:
        iterator: tuples or dicts; reads the drawn samples and up to 10,000 targets.
        n_samples: how many to draw at most; None: 100.
        n_columns: pictures in a row; None: one for each class of a few, otherwise 10.
        seed: draws random samples; any int not below 0.
        title: the first line; None: the dataset's name and tag.
        sample_pos: position, name or key of the picture; None: by the meta, or the first part of a tuple, or the first picture
            of a dict.
        target_pos: position, name or key of the label; None: by the meta, or the second part of a tuple, or the first single
            value of a dict.

    Raises:
        ConfigError: ``n_samples`` or ``n_columns`` is below 1, or ``seed`` below 0.
    """
    for name, value, least in (("n_samples", n_samples, 1), ("n_columns", n_columns, 1), ("seed", seed, 0)):
        if value is not None and value < least:
            raise ConfigError(f"{name} must be at least {least}, got {value}")
    meta = getattr(iterator, "dataset_meta", None)
    if title is None:
        names = [getattr(meta, "dataset_name", None), getattr(meta, "dataset_tag", None)]
        title = " · ".join(str(name) for name in names if name) or type(iterator).__name__
    n_total = len(iterator)
    if n_total == 0:
        return _sheet(title, "no samples", 320, 0)[0]
    first = iterator[0]
    sample_key, target_key = _default_keys(meta, first)
    sample_key = sample_key if sample_pos is None else column_key(iterator, sample_pos)
    target_key = target_key if target_pos is None else column_key(iterator, target_pos)
    chosen, n_classes = _chosen(iterator, target_key, min(n_samples or _N_SAMPLES, n_total), seed)
    samples = [iterator[position] for position in chosen]
    labels = [_label_text(_part(sample, target_key), getattr(meta, "class_names", None)) for sample in samples]
    about = f"{len(samples):,} of {n_total:,} samples"
    parts = [_part(sample, sample_key) for sample in samples]
    return _draw(_tiles(parts), labels, n_columns or (n_classes if 4 <= n_classes <= 12 else 10), title, about)


# ------------------------------------------------------------------ samples


def _default_keys(meta: Any, first: Any) -> tuple[_Key, _Key]:
    """The keys of samples and targets: those of the meta if ``first`` has them."""
    sample_key, target_key = getattr(meta, "sample_pos", 0), getattr(meta, "target_pos", 1)
    if isinstance(first, Mapping):
        if sample_key not in first:
            sample_key = next((key for key in first if _as_picture(first[key]) is not None), next(iter(first), None))
        if target_key not in first:
            target_key = next((key for key in first if key != sample_key and n_values_of(first[key]) == 1), None)
    return sample_key, target_key


def _part(sample: Any, key: _Key) -> Any:
    """The part of a sample at ``key``, if it has one; a bare sample is its own part 0."""
    if isinstance(sample, Mapping):
        return sample.get(key)
    if isinstance(sample, (tuple, list)):
        return sample[key] if isinstance(key, int) and -len(sample) <= key < len(sample) else None
    return sample if key == 0 else None


def _as_numbers(value: Any) -> _Array | None:
    array = exact_array(value)
    return None if array is None or array.dtype.kind not in "biuf" else array


def _as_picture(value: Any) -> _Array | None:
    """``value`` as an array of shape ``(height, width)`` or ``(height, width, c)``, c 3 or 4, if it is a picture."""
    array = _as_numbers(value)
    if array is None or array.ndim not in (2, 3):
        return None
    if array.ndim == 3 and array.shape[2] not in (1, 3, 4):
        array = np.moveaxis(array, 0, 2)
    if array.ndim == 3 and array.shape[2] not in (1, 3, 4):
        return None
    if min(array.shape[:2]) < _LEAST_EDGE:
        return None
    return array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array


def _label(target: Any) -> Any:
    """A target as a plain value; a one-hot vector is the position of its one."""
    array = _as_numbers(target)
    if array is not None and array.ndim == 1 and np.count_nonzero(array) == 1 and array.max() == 1 and array.size > 1:
        return int(array.argmax())
    if array is not None and array.size == 1:
        return array.item()
    return plain_value(target)


def _label_text(target: Any, class_names: Sequence[Any] | None) -> str:
    label = _label(target)
    if class_names and type(label) is int and 0 <= label < len(class_names):
        label = class_names[label]
    return "" if label is None else readable(label, 28)


def _chosen(iterator: DatasetIteratorIF, target_key: Any, n_samples: int, seed: int | None) -> tuple[list[int], int]:
    """Positions to draw, the classes in turn, and the number of classes (0 if targets are not classes)."""
    n_total = len(iterator)
    candidates = np.linspace(0, n_total - 1, min(n_total, _N_LABELS_READ)).astype(np.intp)
    if seed is not None:
        np.random.default_rng(seed).shuffle(candidates)
    try:
        labels = [_label(target) for target in iterator.read_column(target_key, candidates)]
    except (ConfigError, LookupError, TypeError):  # there is no such column
        labels = [None]
    classes = set(labels) - {None}
    if not classes or len(classes) > len(labels) // 2 or any(isinstance(label, float) for label in classes):
        return candidates[np.linspace(0, len(candidates) - 1, n_samples).astype(np.intp)].tolist(), 0
    n_before: Counter[Any] = Counter()
    in_turn = []
    for position, label in zip(candidates.tolist(), labels, strict=True):
        order = (0, label, "") if isinstance(label, int) else (1, 0, str(label))
        in_turn.append((n_before[label], order, position))
        n_before[label] += 1
    return [position for _, _, position in sorted(in_turn)[:n_samples]], len(classes)


# ------------------------------------------------------------------ drawing


def _draw(tiles: Sequence[Image.Image], labels: Sequence[str], n_columns: int, title: str, about: str) -> Image.Image:
    n_columns = min(n_columns, len(tiles))
    width = max(tile.width for tile in tiles) + _GAP
    height = max(tile.height for tile in tiles) + _LINE_HEIGHT + _GAP
    sheet, draw = _sheet(title, about, n_columns * width, math.ceil(len(tiles) / n_columns) * height)
    for number, (tile, label) in enumerate(zip(tiles, labels, strict=True)):
        left, top = _MARGIN + number % n_columns * width, _MARGIN + _TITLE_HEIGHT + number // n_columns * height
        sheet.paste(tile, (left, top))
        while label and _text_width(label) > width:
            label = label[:-2] + "…" if len(label) > 2 else ""
        draw.text((left, top + height - _LINE_HEIGHT - _GAP + 2), label, _INK, _font(_TEXT_SIZE))
    return sheet


def _tiles(parts: Sequence[Any]) -> list[Image.Image]:
    """A picture or text for each sample."""
    pictures = [_as_picture(part) for part in parts]
    in_bytes = iter(_as_bytes([picture for picture in pictures if picture is not None]))
    return [
        _text_tile(part) if picture is None else _thumbnail(next(in_bytes)) for part, picture in zip(parts, pictures, strict=True)
    ]


def _text_tile(value: Any) -> Image.Image:
    tile = Image.new("RGB", (_LARGEST_CELL, _CELL_PIXELS), _PAPER)
    text = textwrap.fill(readable(value, 100), 20)
    ImageDraw.Draw(tile).multiline_text((0, 0), text, _INK, _font(_TEXT_SIZE))
    return tile


def _as_bytes(pictures: Sequence[_Array]) -> list[npt.NDArray[np.uint8]]:
    """Pictures as uint8, black for the smallest value of all, or for 0 if none is negative, and white for the largest."""
    finite = np.concatenate([picture[np.isfinite(picture)].astype(np.float64) for picture in pictures] or [np.zeros(0)])
    low, high = finite.min(initial=0), finite.max(initial=0)
    with np.errstate(all="ignore"):
        scaled = [np.interp(picture.astype(np.float64), (low, high if high > low else low + 1), (0, 255)) for picture in pictures]
        return [np.nan_to_num(each).round().astype(np.uint8) for each in scaled]


def _thumbnail(pixels: npt.NDArray[np.uint8]) -> Image.Image:
    """Enlarges a small picture by a whole factor, and shrinks a large one."""
    image = Image.fromarray(pixels)
    if image.mode == "RGBA":
        image = Image.alpha_composite(Image.new("RGBA", image.size, _PAPER), image)
    image = image.convert("RGB")
    edge = max(image.size)
    if edge > _LARGEST_CELL:
        image.thumbnail((_LARGEST_CELL, _LARGEST_CELL))
        return image
    factor = math.ceil(_CELL_PIXELS / edge)
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)


def _sheet(title: str, about: str, width: int, height: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """White paper with a title, a subtitle, and room of this size below."""
    title = readable(title)
    width = max(width, _text_width(title, _TITLE_SIZE), _text_width(about)) + 2 * _MARGIN
    image = Image.new("RGB", (width, height + _TITLE_HEIGHT + 2 * _MARGIN), _PAPER)
    draw = ImageDraw.Draw(image)
    draw.text((_MARGIN, _MARGIN - 6), title, _INK, _font(_TITLE_SIZE))
    draw.text((_MARGIN, _MARGIN + 28), about, _GREY, _font(_TEXT_SIZE))
    return image, draw


def _text_width(text: str, size: int = _TEXT_SIZE) -> int:
    return int(_font(size).getlength(text)) + 1


@functools.cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """An installed font with many scripts, or Pillow's own."""
    for name in ("NotoSansCJK-Regular.ttc", "DejaVuSans.ttf", "arial.ttf"):
        try:
            return ImageFont.truetype(name, size)
        except OSError:
            continue
    return ImageFont.load_default(size)
