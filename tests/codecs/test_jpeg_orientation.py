"""Upright JPEG files are told from those that may be turned, as Pillow reads their metadata."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps
from writing import image_bytes

from data_stack.codecs import JpgCodec
from data_stack.codecs.jpeg_orientation import is_certainly_upright

PLAIN = image_bytes(Image.new("RGB", (9, 7)), "JPEG")


def with_segments(*segments: tuple[int, bytes], data: bytes = PLAIN) -> bytes:
    """A JPEG file with further segments, markers and contents, at its start."""
    head = b"".join(
        bytes([0xFF, marker]) + struct.pack(">H", len(content) + 2) + content
        for marker, content in segments
    )
    return data[:2] + head + data[2:]


def exif_of(orientation: int | None, byte_order: str = "<") -> bytes:
    """EXIF metadata with a width, and an orientation where one is given."""
    entries = [struct.pack(byte_order + "HHIHxx", 0x0100, 3, 1, 9)]
    if orientation is not None:
        entries.append(struct.pack(byte_order + "HHIHxx", 0x0112, 3, 1, orientation))
    mark = b"II" if byte_order == "<" else b"MM"
    head = mark + struct.pack(byte_order + "HIH", 42, 8, len(entries))
    return b"Exif\0\0" + head + b"".join(entries) + bytes(4)


def xmp_of(orientation: int) -> bytes:
    packet = f'<x:xmpmeta><r tiff:Orientation="{orientation}"/></x:xmpmeta>'
    return b"http://ns.adobe.com/xap/1.0/\0" + packet.encode()


#: A segment of a program for itself (APP9), nearly as long as one can be.
LONG = (0xE9, bytes(65_000))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("byte_order", ["<", ">"])
@pytest.mark.parametrize("before", [(), (LONG,) * 3], ids=["first", "after long segments"])
def test_exif_metadata_turn_an_image_wherever_they_stand(
    orientation: int, byte_order: str, before: tuple[tuple[int, bytes], ...]
) -> None:
    data = with_segments(*before, (0xE1, exif_of(orientation, byte_order)))

    pixels = JpgCodec().decode(data)

    wanted = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    assert np.array_equal(pixels, wanted)
    assert is_certainly_upright(data) == (orientation == 1)


@pytest.mark.parametrize(
    ("segments", "is_upright"),
    [
        ([], True),
        ([(0xFE, b"the Orientation of this comment, Exif\0\0")], True),
        ([(0xE0, exif_of(6))], True),  # EXIF is in segments APP1 alone
        ([(0xE1, exif_of(None))], False),
        ([(0xE1, xmp_of(6))], False),
        ([(0xE1, xmp_of(6)), (0xE1, exif_of(1))], True),
        ([(0xE1, exif_of(None)), (0xE1, xmp_of(6))], False),
        ([(0xE1, b"Exif\0\0")], False),
        ([(0xE1, b"http://ns.adobe.com/xap/1.0/\0<x:xmpmeta/>")], True),
    ],
)
def test_metadata_decide_whether_pillow_is_asked(
    segments: list[tuple[int, bytes]], is_upright: bool
) -> None:
    data = with_segments(*segments)

    found = is_certainly_upright(data)

    assert found == is_upright
    wanted = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    assert JpgCodec().decode(data).shape == wanted.shape


def test_fill_bytes_before_a_marker_hide_no_metadata() -> None:
    turned = with_segments((0xE1, exif_of(6)))
    data = turned[:2] + b"\xff\xff" + turned[2:]

    assert not is_certainly_upright(data)
    assert JpgCodec().decode(data).shape == (9, 7, 3)


def test_a_file_without_a_scan_is_not_called_upright() -> None:
    start_of_scan = PLAIN.index(b"\xff\xda")

    for n_bytes in range(start_of_scan + 1):
        assert not is_certainly_upright(PLAIN[:n_bytes])
    assert is_certainly_upright(PLAIN)


@given(st.binary(max_size=200))
def test_any_bytes_are_told_without_an_error(content: bytes) -> None:
    for data in (content, b"\xff\xd8" + content, with_segments((0xE1, b"Exif\0\0" + content))):
        assert is_certainly_upright(data) in (True, False)
