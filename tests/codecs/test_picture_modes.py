"""Pictures of every mode become arrays of their own type, as numpy.asarray(PIL.Image.open(file))
does; wherever they are read.
"""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps
from writing import image_bytes

from data_stack import load
from data_stack.codecs import JpgCodec, PnmCodec, codec_of
from data_stack.codecs.images import decode_image
from data_stack.codecs.registry import type_of_bytes
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats import ImageFolderIterator, WebDatasetIterator, convert
from data_stack.formats.records import RecordReader, RecordWriter

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


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_every_reader_turns_a_picture_by_one_rule(
    tmp_path: Path, kind: str, orientation: int
) -> None:
    exif = Image.Exif()
    exif[0x112] = orientation
    options = {"quality": 90} if kind == "JPEG" else {}
    picture = Image.fromarray(BYTES[..., :3]).resize((9, 7), Image.Resampling.BICUBIC)
    data = image_bytes(picture, kind, exif=exif, **options)
    suffix = {"JPEG": "jpg", "TIFF": "tiff"}.get(kind, kind.lower())
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / f"a.{suffix}").write_bytes(data)
    with tarfile.open(tmp_path / "shard.tar", "w") as tar:
        tar.add(tmp_path / "folder" / f"a.{suffix}", f"a.{suffix}")
    with RecordWriter(tmp_path / "records", {"image": suffix}) as writer:
        writer.append({"image": data})

    read = [
        ImageFolderIterator(tmp_path / "folder")[0]["image"],
        WebDatasetIterator(tmp_path / "shard.tar")[0][suffix],
        RecordReader(tmp_path / "records")[0]["image"],
        decode_image(data),
    ]

    with Image.open(io.BytesIO(data)) as image:
        upright = np.asarray(ImageOps.exif_transpose(image))
    for pixels in read:
        assert np.array_equal(pixels, upright)
        assert pixels.flags.c_contiguous


def test_a_codec_can_leave_pictures_as_they_are_stored() -> None:
    exif = Image.Exif()
    exif[0x112] = 6
    data = image_bytes(Image.new("RGB", (9, 7)), "JPEG", exif=exif)

    assert JpgCodec().decode(data).shape == (9, 7, 3)
    assert JpgCodec(orient=False).decode(data).shape == (7, 9, 3)


def test_broken_metadata_turn_nothing() -> None:
    exif = Image.Exif()
    exif[0x112] = 6
    data = image_bytes(Image.new("RGB", (9, 7)), "JPEG", exif=exif)
    start = data.index(b"Exif\0\0") + 6

    for broken in (
        data[:start] + b"XX" + data[start + 2 :],
        data[:start] + b"\xff" * 8 + data[start + 8 :],
    ):
        assert codec_of("jpg").decode(broken).shape == (7, 9, 3)


# ---------------------------------------------------------------------- values that Pillow changes


def tiff_of(pixels: np.ndarray[Any, Any], sample_format: int) -> bytes:
    """A TIFF file of one strip as its standard describes it, of values that Pillow does not
    write.
    """
    height, width = pixels.shape[:2]
    n_channels = pixels.shape[2] if pixels.ndim == 3 else 1
    n_bits = 8 * pixels.dtype.itemsize
    values = {
        256: (4, width), 257: (4, height), 258: (3, n_bits), 259: (3, 1), 262: (3, 2 if n_channels == 3 else 1),
        273: (4, 0), 277: (3, n_channels), 278: (4, height), 279: (4, pixels.nbytes), 284: (3, 1), 339: (3, sample_format),
    }  # fmt: skip
    n_head = 8 + 2 + 12 * len(values) + 4
    bits = struct.pack("<3H", n_bits, n_bits, n_bits)
    entries = b""
    for tag, (kind, value) in values.items():
        if tag == 273:
            value = n_head + len(bits)
        if tag in (258, 339) and n_channels == 3:
            entries += (
                struct.pack("<HHII", tag, 3, 3, n_head)
                if tag == 258
                else struct.pack("<HHIHH", tag, 3, 1, value, 0)
            )
        else:
            entries += struct.pack("<HHII", tag, kind, 1, value)
    head = b"II*\0" + struct.pack("<IH", 8, len(values)) + entries + bytes(4)
    return head + bits + pixels.astype(pixels.dtype.newbyteorder("<")).tobytes()


@pytest.mark.parametrize(
    ("dtype", "sample_format"),
    [
        ("uint8", 1),
        ("uint16", 1),
        ("int16", 2),
        ("int32", 2),
        ("uint32", 1),
        ("int8", 2),
        ("float32", 3),
    ],
)
def test_tiff_files_keep_their_values(tmp_path: Path, dtype: str, sample_format: int) -> None:
    limits: Any = np.finfo(dtype) if dtype == "float32" else np.iinfo(dtype)
    pixels = np.array([[limits.min, limits.max, 1], [0, 2, 100]], dtype)
    (tmp_path / "a.tif").write_bytes(tiff_of(pixels, sample_format))

    read = ImageFolderIterator(tmp_path)[0]["image"]

    assert read.tolist() == pixels.tolist()


@pytest.mark.parametrize(
    ("pixels", "sample_format"),
    [(np.array([[1e300, 0.1]]), 3), (np.full((2, 2, 3), 40_000, np.uint16), 1)],
)
def test_tiff_files_that_pillow_would_round_are_refused(
    pixels: np.ndarray[Any, Any], sample_format: int
) -> None:
    with pytest.raises(ValueError, match=r"of which Pillow reads|unknown pixel mode"):
        codec_of("tiff").decode(tiff_of(pixels, sample_format))


@pytest.mark.parametrize("largest", [1, 100, 255, 256, 4095, 65_534, 65_535])
def test_pgm_files_keep_their_values(largest: int) -> None:
    pixels = np.unique(np.linspace(0, largest, 40).astype(np.int64))[None]
    stored = pixels.astype(">u2" if largest > 255 else np.uint8).tobytes()
    head = f"P5\n# a comment\n{pixels.shape[1]} 1\n{largest}\n".encode()

    assert codec_of("pnm").decode(head + stored).tolist() == pixels.tolist()


def test_ppm_files_of_16_bits_are_refused() -> None:
    with pytest.raises(ValueError, match="its values reach 65535, of which Pillow reads 8 bits"):
        codec_of("pnm").decode(b"P6\n1 1\n65535\n" + bytes(6))
    assert PnmCodec(mode="RGB").decode(b"P6\n1 1\n65535\n" + bytes(6)).tolist() == [[[0, 0, 0]]]


# ---------------------------------------------------------------------- suffixes of other formats


def test_the_content_decides_not_the_suffix(tmp_path: Path) -> None:
    pixels = BYTES[..., :3]
    names = {"a.jpg": "PNG", "b.JPEG": "BMP", "c.png": "WEBP", "d.gif": "TIFF", "e.bmp": "PPM"}
    for name, kind in names.items():
        options = {"lossless": True} if kind == "WEBP" else {}
        (tmp_path / name).write_bytes(image_bytes(Image.fromarray(pixels), kind, **options))
    with tarfile.open(tmp_path.parent / f"{tmp_path.name}.tar", "w") as tar:
        for number, name in enumerate(names):
            tar.add(tmp_path / name, f"{number}.{name.rpartition('.')[2].lower()}")

    folder = ImageFolderIterator(tmp_path, on_error="skip")
    shard = WebDatasetIterator(tmp_path.parent / f"{tmp_path.name}.tar")
    convert(load(tmp_path).select("image"), tmp_path.parent / f"{tmp_path.name}-records")

    assert len(folder) == len(names)
    for number, name in enumerate(names):
        assert np.array_equal(folder[number]["image"], pixels), name
        assert np.array_equal(shard[number][name.rpartition(".")[2].lower()], pixels), name
    for sample in RecordReader(tmp_path.parent / f"{tmp_path.name}-records"):
        assert np.array_equal(sample["image"], pixels)


def test_a_folder_of_one_content_is_converted_without_decoding(tmp_path: Path) -> None:
    for name in ("a.png", "b.jpg"):
        Image.fromarray(BYTES[..., :3]).save(tmp_path / name, "JPEG")

    convert(tmp_path, tmp_path.parent / f"{tmp_path.name}-records", source_format="images")

    with RecordReader(tmp_path.parent / f"{tmp_path.name}-records") as records:
        assert records.spec["image"] == "jpg"


def test_an_empty_file_is_called_empty(tmp_path: Path) -> None:
    Image.fromarray(BYTES[..., :3]).save(tmp_path / "a.png")
    (tmp_path / "b.png").touch()

    with pytest.raises(
        DatasetFileCorruptError, match=r"b\.png cannot be decoded: the file is empty"
    ):
        ImageFolderIterator(tmp_path)[1]
    skipping = ImageFolderIterator(tmp_path, on_error="skip")
    assert (len(skipping), list(skipping.broken)) == (1, ["b.png"])


def test_a_picture_never_runs_a_program() -> None:
    with pytest.raises(ValueError, match="cannot be decoded"):
        decode_image(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n")
