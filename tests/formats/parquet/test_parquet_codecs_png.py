"""PNG files are the same whether OpenCV or Pillow decodes them; damaged ones are refused by both."""

from __future__ import annotations

import io
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from data_stack.codecs.png import PngCodec, decode_png, plain_png

pytest.importorskip("cv2")


def pixels_of(shape: tuple[int, ...], dtype: str = "uint8") -> npt.NDArray[Any]:
    return np.random.default_rng(0).integers(np.iinfo(dtype).max, size=shape, dtype=dtype, endpoint=True)


def by_pillow(record: bytes) -> npt.NDArray[Any]:
    return np.array(Image.open(io.BytesIO(record)))


def file_of(image: Image.Image, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "PNG", **options)
    return stream.getvalue()


@pytest.mark.parametrize("shape", [(1, 1), (28, 28), (300, 200, 3), (5, 7, 4)])
def test_plain_files_are_decoded_as_pillow_decodes_them(shape: tuple[int, ...]) -> None:
    record = PngCodec().encode(pixels_of(shape))

    plain = plain_png(record)
    pixels = PngCodec().decode(record)

    assert plain is not None
    assert decode_png(record, plain) is not None
    assert np.array_equal(pixels, by_pillow(record))
    assert np.array_equal(pixels, pixels_of(shape))
    assert pixels.flags.c_contiguous
    assert pixels.flags.writeable


def test_what_is_not_plain_is_left_to_pillow() -> None:
    palette = Image.fromarray(pixels_of((8, 9))).convert("P")
    turned = Image.fromarray(pixels_of((8, 9, 3)))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    records = {
        "palette": file_of(palette),
        "transparent colour": file_of(Image.fromarray(pixels_of((8, 9, 3))), transparency=(1, 2, 3)),
        "grey and alpha": PngCodec().encode(pixels_of((8, 9, 2))),
        "one bit": PngCodec().encode(pixels_of((8, 9)) > 100),
        "orientation": file_of(turned, exif=exif),
        "colour profile": file_of(turned, icc_profile=b"none"),
    }

    for what, record in records.items():
        plain = plain_png(record)
        assert plain is None or decode_png(record, plain) is None, what
        assert np.array_equal(PngCodec().decode(record), by_pillow(record)), what


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


def test_the_size_is_looked_at_before_a_pixel_is_decoded() -> None:
    record = PngCodec().encode(pixels_of((6, 5)))
    body = b"IHDR" + (60_000).to_bytes(4, "big") * 2 + record[24:29]
    hostile = record[:12] + body + zlib.crc32(body).to_bytes(4, "big") + record[33:]

    for codec, claimed in ((PngCodec(), hostile), (PngCodec(max_pixels=29), record)):
        with pytest.raises(ValueError, match="exceeds max_pixels"):
            codec.decode(claimed)
