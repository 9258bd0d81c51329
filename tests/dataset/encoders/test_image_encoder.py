"""Pictures as float32, channel by channel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from data_stack.dataset.encoders import EncodingError, ImageEncoder
from data_stack.exception import ConfigError

IMAGES = np.random.default_rng(1).integers(0, 256, size=(20, 6, 5, 3), dtype=np.uint8)
MEAN, STD = [0.4, 0.5, 0.6], [0.2, 0.25, 0.3]


def test_bytes_become_numbers_by_the_stated_formula() -> None:
    encoded = ImageEncoder(MEAN, STD).transform(IMAGES)

    assert encoded.dtype == np.float32
    assert np.allclose(encoded, (IMAGES / 255 - MEAN) / STD, atol=1e-6)


@pytest.mark.parametrize("channels", ["last", "first"])
def test_mean_and_std_of_each_channel_are_learned_in_blocks(channels: Any) -> None:
    images = IMAGES if channels == "last" else np.moveaxis(IMAGES, -1, 1)

    encoder = ImageEncoder(channels=channels).fit(
        images[start : start + 7] for start in range(0, 20, 7)
    )

    assert np.allclose(encoder.mean, (IMAGES / 255).mean(axis=(0, 1, 2)))
    assert np.allclose(encoder.std, (IMAGES / 255).std(axis=(0, 1, 2)))


def test_the_inverse_gives_the_bytes_again() -> None:
    encoder = ImageEncoder().fit(IMAGES)

    inverse = encoder.inverse(encoder.transform(IMAGES))

    assert inverse.dtype == np.uint8
    assert np.array_equal(inverse, IMAGES)
    floats = ImageEncoder(0.5, 2.0, scale=1.0)
    assert np.allclose(floats.inverse(floats.transform(IMAGES / 255)), IMAGES / 255, atol=1e-6)


def test_images_of_different_sizes_are_encoded_one_by_one() -> None:
    ragged = np.fromiter([IMAGES[0], IMAGES[1, :3], IMAGES[2]], dtype=object)
    encoder = ImageEncoder().fit(ragged)

    encoded = encoder.transform(ragged)

    pixels = np.concatenate([image.reshape(-1, 3) for image in ragged]) / 255
    assert np.allclose(encoder.mean, pixels.mean(axis=0))
    assert [image.shape for image in encoded] == [(6, 5, 3), (3, 5, 3), (6, 5, 3)]
    assert np.array_equal(encoded[0], encoder.transform(IMAGES[:1])[0])
    assert np.array_equal(encoder.inverse(encoded)[1], IMAGES[1, :3])
    assert encoder.transform(np.fromiter([IMAGES[0], IMAGES[2]], dtype=object)).shape == (
        2,
        6,
        5,
        3,
    )


def test_what_is_no_image_is_refused() -> None:
    encoder = ImageEncoder(MEAN, STD)

    for images in (
        np.zeros((2, 4, 4, 5)),
        np.zeros((2, 4, 4)),
        np.zeros((2, 4)),
        np.array([["a"]]),
    ):
        with pytest.raises(ConfigError):
            encoder.transform(images)
    with pytest.raises(EncodingError, match="at position 1"):
        encoder.transform(np.fromiter([IMAGES[0], np.zeros(3)], dtype=object))
    for unlearnable in (
        [IMAGES[:3], IMAGES[:2, ..., :2]],
        np.full((1, 2, 2), np.nan),
        np.zeros((2, 0, 3)),
    ):
        with pytest.raises(ConfigError):
            ImageEncoder().fit(unlearnable)


def test_an_image_with_nan_is_named_by_its_position() -> None:
    images = np.zeros((4, 2, 2))
    images[3, 1, 0] = np.nan

    with pytest.raises(EncodingError, match="at position 7, an image must have finite values"):
        ImageEncoder().fit([np.ones((4, 2, 2)), images])


def test_images_of_other_channels_are_refused_in_fitting() -> None:
    with pytest.raises(EncodingError, match=r"at position 2, .* same channels: got 1, .* have 3"):
        ImageEncoder().fit([np.zeros((2, 4, 4, 3)), np.zeros((1, 4, 4, 1))])
