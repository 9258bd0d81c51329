"""Finds fonts that have the letters of a text."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Union

from data_stack.exception import MissingDependencyError

try:
    from PIL import ImageFont
except ImportError as error:
    raise MissingDependencyError("contact_sheet", "Pillow", "images") from error

__all__ = ["Font", "drawable"]

Font = Union[ImageFont.FreeTypeFont, ImageFont.ImageFont]

_SUFFIXES = (".ttf", ".otf", ".ttc", ".otc", ".bdf", ".pcf")
#: Fonts of many scripts, looked at before others, by parts of their names; sans serif, and regular, where there is a choice.
_WELL_KNOWN = (
    "dejavusans", "notosanscjk", "notosans-regular", "pingfang", "hiraginosans", "msyh", "malgun", "yugoth", "arialuni", "arial",
    "wqy", "sourcehan", "droidsansfallback", "ipaexg", "nanumgothic", "unifont",
)  # fmt: skip
_MOST_FONTS = 256


def drawable(text: str, size: int) -> tuple[str, Font]:
    """``text`` and a font of ``size`` pixels that has all its letters: Pillow's own, matplotlib's, or one of this machine.

    Where there is no such font, letters that the best one lacks are written without their accents, or as Python's escapes.
    """
    letters = frozenset(each for each in text if not each.isspace())
    fonts = [_own(size)]
    lacking = _lacking(fonts[0], letters)
    if lacking:
        paths = dict.fromkeys(path for letter in sorted(lacking) if (path := _path_with(letter, size)) is not None)
        fonts += [font for path in paths if (font := _opened(path, size)) is not None]
    font = min(fonts, key=lambda each: len(_lacking(each, letters)))  # the first of several that are as good
    lacking = _lacking(font, letters)
    return "".join(_written(each, font) if each in lacking else each for each in text), font


@functools.lru_cache(maxsize=16)
def _own(size: int) -> Font:
    return ImageFont.load_default(size)


@functools.lru_cache(maxsize=256)
def _opened(path: str, size: int) -> Font | None:
    """The font of a file; None where it is none, or has no letters of that size."""
    try:
        return ImageFont.truetype(path, size)
    except (OSError, ValueError):
        return None


@functools.lru_cache(maxsize=4096)
def _path_with(letter: str, size: int) -> str | None:
    """The first font that has a letter; None if none has it."""
    return next((path for path in _paths() if (font := _opened(path, size)) is not None and _has(font, letter)), None)


def _lacking(font: Font, letters: frozenset[str]) -> frozenset[str]:
    return frozenset(each for each in letters if not _has(font, each))


def _has(font: Font, letter: str) -> bool:
    """Whether a font draws a letter as something else than what it draws for letters that it lacks."""
    try:
        mask = font.getmask(letter)
        return bool(mask.getbbox()) and (mask.size, bytes(mask)) != _nothing(font)
    except (OSError, ValueError, UnicodeError):  # of a damaged font, or one of few letters
        return False


@functools.lru_cache(maxsize=64)
def _nothing(font: Font) -> tuple[tuple[int, int], bytes]:
    mask = font.getmask("\U0010ffff")  # is no letter, and never will be one
    return mask.size, bytes(mask)


def _written(letter: str, font: Font) -> str:
    """A letter that ``font`` lacks, by letters that every font has."""
    plain = "".join(each for each in unicodedata.normalize("NFKD", letter) if not unicodedata.combining(each))
    if plain and not _lacking(font, frozenset(plain)):
        return plain
    return letter.encode("ascii", "backslashreplace").decode("ascii")


@functools.cache
def _paths() -> tuple[str, ...]:
    """Fonts beside Pillow's own, the more useful ones first: matplotlib's, and those where systems keep theirs."""
    found = {path: None for folder in _folders() for path in _fonts_in(folder)}
    return tuple(sorted(found, key=_usefulness)[:_MOST_FONTS])


def _usefulness(path: str) -> tuple[int, int, str]:
    name = os.path.basename(path).lower().replace(" ", "")
    place = next((place for place, known in enumerate(_WELL_KNOWN) if name.startswith(known)), len(_WELL_KNOWN))
    return place, len(name), path  # "DejaVuSans" before "DejaVuSans-BoldOblique"


def _fonts_in(folder: Path) -> Iterator[str]:
    for parent, _, names in os.walk(folder):
        yield from (os.path.join(parent, name) for name in names if name.lower().endswith(_SUFFIXES))


def _folders() -> list[Path]:
    home = Path(os.path.expanduser("~"))
    folders = []
    spec = importlib.util.find_spec("matplotlib")  # which is not imported for it
    if spec is not None and spec.origin is not None:
        folders.append(Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf")
    if sys.platform == "darwin":
        return [*folders, home / "Library/Fonts", Path("/Library/Fonts"), Path("/System/Library/Fonts")]
    if sys.platform == "win32":
        return [*folders, Path(os.environ.get("WINDIR", "C:\\Windows")) / "Fonts"]
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share")
    return [*folders, home / ".fonts", data / "fonts", Path("/usr/local/share/fonts"), Path("/usr/share/fonts")]
