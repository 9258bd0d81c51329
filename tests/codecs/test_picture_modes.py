"""Pictures of every mode become arrays of their own type, as numpy.asarray(PIL.Image.open(file)) does; wherever they are read."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps
from writing import image_bytes

from data_stack.codecs import codec_of
from data_stack.codecs.codec import type_of_bytes
from data_stack.codecs.images import decode_image
from data_stack.formats import ImageFolderIterator, WebDatasetIterator

RNG = np.random.default_rng(0)
BYTES = RNG.integers(0, 256, (6, 5, 4), np.uint8)
INDICES = RNG.integers(0, 21, (6, 5), np.uint8)


def mask() -> Image.Image:
    """Indices of classes, with the palette in which PASCAL VOC draws them."""
    image = Image.fromarray(INDICES)
    image.putpalette([value % 256 for value in range(0, 768 * 7, 7)])
    return image


def see_through() -> Image.Image:
    """Colours of which one is transparent, which OpenCV would read as another channel."""
    image = Image.fromarray(BYTES[..., :3])
    image.info["transparency"] = (1, 2, 3)
    return image


IMAGES: dict[str, tuple[str, Image.Image]] = {
    "1.png": ("PNG", Image.fromarray(INDICES > 9)),
    "p.png": ("PNG", mask()),
    "la.png": ("PNG", Image.fromarray(BYTES[..., :2])),
    "rgb.png": ("PNG", Image.fromarray(BYTES[..., :3])),
    "transparent.png": ("PNG", see_through()),
    "rgba.png": ("PNG", Image.fromarray(BYTES)),
    "i16.png": ("PNG", Image.fromarray(INDICES.astype(np.uint16) * 3000)),
    "l.jpg": ("JPEG", Image.fromarray(BYTES[..., 0])),
    "rgb.jpg": ("JPEG", Image.fromarray(BYTES[..., :3])),
    "cmyk.jpg": ("JPEG", Image.fromarray(BYTES, "CMYK")),
    "rgb.webp": ("WEBP", Image.fromarray(BYTES[..., :3])),
    "p.tif": ("TIFF", mask()),
    "cmyk.tiff": ("TIFF", Image.fromarray(BYTES, "CMYK")),
    "i16.tif": ("TIFF", Image.fromarray(INDICES.astype(np.uint16) * 3000)),
    "i32.tif": ("TIFF", Image.fromarray(INDICES.astype(np.int32) * 100_000_000)),
    "f32.tif": ("TIFF", Image.fromarray(np.array([[0.7, 1.1, 1.5], [-2, 1e30, 0]], np.float32))),
    "p.gif": ("GIF", mask()),
    "rgb.bmp": ("BMP", Image.fromarray(BYTES[..., :3])),
    "l.pgm": ("PPM", Image.fromarray(BYTES[..., 0])),
}
TYPES = {"1": "bool", "I;16": "uint16", "I": "int32", "F": "float32"}


FILES: Mapping[str, bytes] = {
    name: image_bytes(image, kind) for name, (kind, image) in IMAGES.items()
}


def assert_same(found: Any, name: str) -> None:
    """Values, dtype and shape of an image of its own are what numpy and Pillow give."""
    with Image.open(io.BytesIO(FILES[name])) as image:
        wanted = np.asarray(image)
        assert wanted.dtype.name == TYPES.get(image.mode, "uint8")
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert (found == wanted).all()
    assert found.flags.writeable


@pytest.mark.parametrize("name", FILES)
def test_codecs_and_decode_image_give_the_type_of_the_picture(name: str) -> None:
    assert_same(codec_of(type_of_bytes(FILES[name][:16]) or "none").decode(FILES[name]), name)
    assert_same(decode_image(FILES[name]), name)


def test_folders_and_shards_give_the_type_of_the_picture(tmp_path: Path) -> None:
    names = sorted(FILES)
    folder_path = tmp_path / "folder"
    folder_path.mkdir()
    for name in names:
        (folder_path / name).write_bytes(FILES[name])
    with tarfile.open(tmp_path / "shard.tar", "w") as tar:
        for name in names:
            tar.add(folder_path / name, f"{names.index(name):03}.{name.rpartition('.')[2]}")

    folder = ImageFolderIterator(folder_path)
    shard = WebDatasetIterator(tmp_path / "shard.tar")

    for position, name in enumerate(names):
        assert_same(folder[position]["image"], name)
        assert_same(shard[position][name.rpartition(".")[2]], name)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF"])
@pytest.mark.parametrize("orientation", [None, 1, 3, 6, 8])
@pytest.mark.parametrize("is_xmp", [False, True] if vars(Image)["__version__"] >= "12" else [False])
def test_an_image_is_turned_as_its_file_says(
    kind: str, orientation: int | None, is_xmp: bool
) -> None:
    options: dict[str, Any] = {"quality": 90, "progressive": True} if kind == "JPEG" else {}
    if orientation is not None and is_xmp and kind == "JPEG":
        options["xmp"] = (
            f'<x:xmpmeta xmlns:x="adobe:ns:meta/"><r tiff:Orientation="{orientation}"/></x:xmpmeta>'.encode()
        )
    elif orientation is not None:
        options["exif"] = exif = Image.Exif()
        exif[0x112] = orientation
    picture = Image.fromarray(BYTES[..., :3]).resize((61, 47), Image.Resampling.BICUBIC)
    data = image_bytes(picture, kind, **options)

    found = decode_image(data)

    wanted = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    assert found.shape == ((61, 47, 3) if orientation in (6, 8) else (47, 61, 3))
    assert (found == wanted).all()


def test_a_picture_never_runs_a_program() -> None:
    with pytest.raises(ValueError, match="cannot be decoded"):
        decode_image(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n")
