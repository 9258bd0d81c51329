"""Codecs of cells in Petastorm's spelling."""

from __future__ import annotations

from data_stack.exception import ConfigError
from data_stack.formats.parquet import CompressedNdarrayCodec, JpegCodec, NdarrayCodec, PngCodec, ScalarCodec

__all__ = ["CompressedImageCodec", "CompressedNdarrayCodec", "NdarrayCodec", "ScalarCodec"]


def CompressedImageCodec(image_codec: str = "png", quality: int = 80) -> PngCodec | JpegCodec:  # noqa: N802  # as Petastorm calls it
    """``PngCodec()`` for "png", ``JpegCodec(quality)`` for "jpeg" or "jpg".

    Raises:
        ConfigError: another codec, or an invalid quality.
    """
    if image_codec == "png":
        return PngCodec()
    if image_codec in ("jpeg", "jpg"):
        return JpegCodec(quality)
    raise ConfigError(f"images are compressed as 'png' or 'jpeg', not {image_codec!r:.60}")
