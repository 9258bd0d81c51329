"""Values of any kind as small pictures."""

from __future__ import annotations

import datetime
import io
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch_or_stand_in import torch

from data_stack.codecs.pillow_images import JpgCodec
from data_stack.codecs.sound import WavCodec
from data_stack.show.pictures import as_png, kind_of_value, shorten

PHOTO = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
TONE = np.sin(np.arange(4000) / 10).astype(np.float32)


def opened(png: bytes) -> np.ndarray[Any, Any]:
    return np.asarray(Image.open(io.BytesIO(png)))


@pytest.mark.parametrize(
    ("value", "hint", "kind"),
    [
        (PHOTO, None, "image"),
        (np.moveaxis(PHOTO, 2, 0).astype(np.float32), None, "image"),
        (torch.zeros(1, 28, 28), None, "image"),
        (PHOTO[:, :, 0] > 5, None, "image"),
        (Image.fromarray(PHOTO).convert("P"), None, "image"),
        (JpgCodec().encode(PHOTO), None, "image"),
        (np.full((8, 8), 16.0), None, "image"),
        (np.full((8, 8), -1.0), None, "array"),
        (np.zeros(5), None, "array"),
        (TONE, None, "series"),
        (np.zeros((12, 500)), None, "series"),
        ((TONE, 8000), None, "audio"),
        ({"array": TONE, "sampling_rate": 8000}, None, "audio"),
        (WavCodec(rate=8000).encode(TONE), None, "audio"),
        ("words", None, "text"),
        (b"\x00\x01", None, "bytes"),
        (b"\x89PNG\r\n\x1a\nand no more", None, "bytes"),
        (None, None, "missing"),
        (3, None, "number"),
        ({"a": 1}, None, "other"),
        (torch.zeros(3, dtype=torch.bfloat16), None, "other"),
        (TONE, "audio 8000", "audio"),
        (np.zeros((8, 8), np.uint8), "mask", "mask"),
        (np.array([[0, 0, 4, 4]]), "boxes", "boxes"),
        ([1, 2, 3, 4], "boxes xywh", "boxes"),
        (np.zeros((28, 28)), "array", "array"),
        (b"caf\xc3\xa9", "text", "text"),
        ("a word", "audio 8000", "text"),
        (PHOTO, "nonsense", "image"),
    ],
)
def test_a_value_has_the_kind_of_a_fitting_hint(value: Any, hint: str | None, kind: str) -> None:
    assert kind_of_value(value, hint) == kind


@pytest.mark.parametrize(
    "picture",
    [
        PHOTO,
        np.moveaxis(PHOTO, 2, 0),
        PHOTO.astype(np.float64) / 255,
        np.dstack([PHOTO, np.full((40, 60, 1), 255, np.uint8)]),
    ],
    ids=["hwc", "chw", "float", "rgba"],
)
def test_a_picture_of_any_layout_comes_back_from_png(picture: Any) -> None:
    pixels = opened(as_png(picture))

    assert np.array_equal(pixels[:, :, :3], PHOTO)


def test_grey_pictures_span_black_to_white_or_the_given_span() -> None:
    ramp = np.broadcast_to(np.arange(16), (8, 16))

    for picture in (ramp.astype(np.uint8), ramp / 15.0, ramp.astype(np.uint16) * 4000):
        assert opened(as_png(picture))[0, [0, -1]].tolist() == [0, 255]
    assert opened(as_png(ramp, span=(0, 30)))[0, -1] == 128


@pytest.mark.parametrize("shape", [(1, 1_000_000), (1, 100_000, 3), (3000, 2000, 3), (1, 1, 3)])
def test_pictures_of_any_size_become_small(shape: tuple[int, ...]) -> None:
    pixels = opened(as_png(np.full(shape, 7, np.uint8), max_pixels=4096))

    assert pixels.shape[0] * pixels.shape[1] <= 4096
    assert max(pixels.shape) <= 256


def test_an_array_is_a_heat_map_with_nan_left_clear() -> None:
    array = np.linspace(-1, 1, 100).reshape(10, 10)
    array[0, 0], array[0, 1] = np.nan, np.inf

    pixels = opened(as_png(array))

    assert pixels.shape == (10, 10, 4)
    assert pixels[0, 0, 3] == 0
    assert pixels[-1, -1].tolist() == pixels[0, 1].tolist() == [253, 231, 37, 255]
    assert opened(as_png(np.full((5, 6), np.nan))).shape == (5, 6, 4)


def test_boxes_and_masks_lie_over_an_enlarged_picture() -> None:
    picture, mask = np.full((10, 20), 200, np.uint8), np.zeros((20, 40), np.uint8)
    mask[10:] = 2

    pixels = opened(
        as_png(
            picture, boxes=np.array([[0, 0, 9, 4], [np.nan, 0, 1, 1], [15, -50, 1e9, 5]]), mask=mask
        )
    )

    assert pixels.shape == (80, 160, 3)
    assert pixels[0, 0].tolist() == pixels[32, 72].tolist() == [240, 180, 40]
    assert pixels[10, 10].tolist() == [200, 200, 200]
    assert pixels[60, 10].tolist() not in ([200, 200, 200], pixels[0, 0].tolist())


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a" * 10_000_000, "a" * 200 + "…"),
        ("a\n\x1b[31m\u202eb", "a\\n\\x1b[31m\\u202eb"),
        (float("nan"), "nan"),
        (np.float32(0.1), "0.1"),
        (np.int8(3), "3"),
        (datetime.datetime(2026, 11, 23, 13, 5), "2026-11-23 13:05:00"),
        (np.array([1.0, np.inf]), "[ 1., inf]"),
        (list(range(1_000_000)), "a list of 1,000,000 values"),
    ],
)
def test_any_value_has_a_short_text(value: Any, shown: str) -> None:
    assert shorten(value) == shown
