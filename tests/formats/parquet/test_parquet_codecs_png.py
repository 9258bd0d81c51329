"""PNG files are the same whether OpenCV or Pillow decodes them; damaged ones are refused by both."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from data_stack.codecs.png import PngCodec

pytest.importorskip("cv2")


def pixels_of(shape: tuple[int, ...], dtype: str = "uint8") -> npt.NDArray[Any]:
    return np.random.default_rng(0).integers(np.iinfo(dtype).max, size=shape, dtype=dtype, endpoint=True)


def test_coloured_images_of_16_bits_keep_them_only_if_asked() -> None:
    pixels = pixels_of((6, 5, 3), "uint16")

    record = PngCodec(deep=True).encode(pixels)

    assert np.array_equal(PngCodec(deep=True).decode(record), pixels)
    assert PngCodec().decode(record).dtype == np.uint8
    assert PngCodec().decode(record).shape == (6, 5, 3)
    with pytest.raises(TypeError, match="uint16"):
        PngCodec().encode(pixels)


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 4)])
def test_a_file_that_is_cut_or_changed_anywhere_is_refused(shape: tuple[int, ...]) -> None:
    codec = PngCodec()
    record = codec.encode(pixels_of(shape))
    assert np.array_equal(codec.decode(record), pixels_of(shape))
    step = max(1, len(record) // 150)
    damaged = [record[:end] for end in range(0, len(record), step)]
    damaged += [record[:at] + bytes([record[at] ^ 1]) + record[at + 1 :] for at in [*range(60), *range(60, len(record), step)]]

    for each in damaged:
        with pytest.raises(ValueError, match=r"png|chunk|image"):
            codec.decode(each)


def test_pixels_that_do_not_decompress_are_refused_though_their_checksum_is_right() -> None:
    record = PngCodec().encode(pixels_of((6, 5)))
    start = record.index(b"IDAT")
    size = int.from_bytes(record[start - 4 : start], "big")
    body = b"IDAT" + bytes(size)
    hostile = record[:start] + body + zlib.crc32(body).to_bytes(4, "big") + record[start + size + 8 :]

    with pytest.raises(ValueError, match="damaged"):
        PngCodec().decode(hostile)
