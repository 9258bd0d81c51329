"""Codecs of images, sound and videos: what comes back, and what becomes of damaged files."""

from __future__ import annotations

import contextlib
import io
import pickle
from pathlib import Path
from typing import Any

import granular
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from PIL import Image, ImageFile
from process_harness import flipped
from sizes import sized
from writing import image_bytes

from data_stack.codecs import (
    FlacCodec,
    JpgCodec,
    Mp4Codec,
    PngCodec,
    WavCodec,
    WebmCodec,
    WebpCodec,
    codec_of,
    pillow_images,
)
from data_stack.exception import LeftOutWarning


def picture(height: int = 48, width: int = 64, channels: int = 3) -> np.ndarray[Any, Any]:
    """A smooth picture, uint8, shape ``(height, width, channels)``."""
    rows, columns = np.mgrid[:height, :width]
    parts = [
        128 + 100 * np.sin(rows / (9 + part)) * np.cos(columns / (7 + 2 * part))
        for part in range(channels)
    ]
    return np.stack(parts, -1).astype(np.uint8)


def video(n_frames: int = 6, height: int = 32, width: int = 48) -> np.ndarray[Any, Any]:
    """A smooth picture that moves, uint8, shape ``(n_frames, height, width, 3)``."""
    return np.stack(
        [np.roll(picture(height, width), 2 * number, axis=1) for number in range(n_frames)]
    )


@pytest.fixture(params=["simplejpeg", "Pillow"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What JPEG is decoded by: as if simplejpeg were not installed."""
    if request.param == "Pillow":
        monkeypatch.setattr(pillow_images, "simplejpeg", None)
    return str(request.param)


# ---------------------------------------------------------------------- JPEG


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("shape", [(48, 64), (17, 9, 3)])
def test_jpegs_are_decoded_as_granular_does(
    decoder: str, shape: tuple[int, ...], progressive: bool
) -> None:
    pixels = picture(*shape[:2]) if len(shape) == 3 else picture(*shape)[:, :, 0]
    record = image_bytes(pixels, "JPEG", progressive=progressive)

    found = codec_of("jpg").decode(record)

    expected = granular.decoders["jpg"](record)
    assert (found.dtype, found.shape) == (np.uint8, shape)
    np.testing.assert_allclose(found.astype(int), expected.astype(int), atol=2)
    assert found.flags.writeable
    assert found.flags.c_contiguous


def test_grey_jpegs_of_either_shape_are_stored_as_grey(decoder: str) -> None:
    grey = picture()[:, :, :1]

    records = [
        codec_of("jpg").encode(each)
        for each in (grey, grey[:, :, 0], Image.fromarray(grey[:, :, 0]))
    ]

    assert records[0] == records[1] == records[2]
    assert codec_of("jpg").decode(records[0]).shape == (48, 64)
    assert JpgCodec(mode="RGB").decode(records[0]).shape == (48, 64, 3)
    assert JpgCodec(mode="L").decode(codec_of("jpg").encode(picture())).shape == (48, 64)
    assert JpgCodec(mode="RGBA").decode(records[0]).shape == (48, 64, 4)


def test_files_of_images_are_stored_as_they_are(decoder: str) -> None:
    for name, form in (("jpg", "JPEG"), ("png", "PNG"), ("webp", "WEBP")):
        record = image_bytes(picture(), form)

        assert codec_of(name).encode(record) == codec_of(name).encode(memoryview(record)) == record
        with pytest.raises(ValueError, match=r"not a \w+ image"):
            codec_of(name).encode(b"GIF89a" + record)


@pytest.mark.parametrize(
    ("form", "option"),
    [
        ("JPEG", "optimize"),
        ("JPEG", "progressive"),
        ("PNG", "optimize"),
        ("WEBP", "exact"),
        ("WEBP", "lossless"),
    ],
)
def test_images_cut_short_anywhere_are_refused(decoder: str, form: str, option: str) -> None:
    record = image_bytes(picture(24, 32), form, quality=90, **{option: True})
    codec = codec_of({"JPEG": "jpg", "PNG": "png", "WEBP": "webp"}[form])
    assert codec.decode(record).shape == (24, 32, 3)
    assert not ImageFile.LOAD_TRUNCATED_IMAGES

    for length in range(0, len(record), sized(7, 1)):
        with pytest.raises(ValueError, match=r"."):
            codec.decode(record[:length])


def test_images_of_too_many_pixels_are_refused_before_decoding(decoder: str) -> None:
    codecs: dict[str, Any] = {"JPEG": JpgCodec, "PNG": PngCodec, "WEBP": WebpCodec}
    for name, codec in [
        (name, codec_class(max_pixels=3000)) for name, codec_class in codecs.items()
    ]:
        with pytest.raises(ValueError, match=r"64 x 48 pixels exceeds max_pixels=3000"):
            codec.decode(image_bytes(picture(), name))
        with pytest.raises(ValueError, match="max_pixels=3000"):
            codec.encode(picture())
    for options in ({"lossless": True}, {"exif": b"Exif\0\0MM"}):  # which have other headers
        with pytest.raises(ValueError, match=r"64 x 48 pixels exceeds max_pixels=3000"):
            WebpCodec(max_pixels=3000).decode(image_bytes(picture(), "WEBP", **options))
    large = bytearray(image_bytes(picture(), "JPEG"))
    start = large.index(b"\xff\xc0")
    large[start + 5 : start + 9] = b"\xff\xdc\xff\xdc"
    with pytest.raises(ValueError, match="65500 x 65500 pixels"):
        codec_of("jpg").decode(bytes(large))


def test_a_jpeg_of_countless_scans_is_refused(decoder: str) -> None:
    record = image_bytes(picture(), "JPEG", progressive=True)
    start = record.rindex(b"\xff\xda")
    many = record[:-2] + record[start:-2] * 2000 + record[-2:]

    with pytest.raises(ValueError, match=r"in 20.. scans would take too long"):
        JpgCodec(max_pixels=48 * 64).decode(many)


# ---------------------------------------------------------------------- PNG and WebP


PNG_ARRAYS = st.one_of(
    nps.arrays(np.uint8, st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(2, 4))),
    nps.arrays(
        st.sampled_from([np.uint8, np.uint16, np.bool_]),
        st.tuples(st.integers(1, 9), st.integers(1, 9)),
    ),
)


@given(pixels=PNG_ARRAYS)
def test_pngs_come_back_without_loss_and_have_granulars_bytes(pixels: np.ndarray[Any, Any]) -> None:
    record = codec_of("png").encode(pixels)

    found = codec_of("png").decode(record)

    assert (found.dtype, found.shape) == (pixels.dtype, pixels.shape)
    assert np.array_equal(found, pixels)
    assert found.flags.writeable
    assert record == granular.encoders["png"](pixels)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF", "TIFF"])
def test_the_first_of_several_images_is_read_with_a_warning(kind: str) -> None:
    frames = [Image.fromarray(frame).convert("RGB") for frame in video(3)]
    options = {"lossless": True} if kind == "WEBP" else {}
    record = image_bytes(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    with Image.open(io.BytesIO(record)) as image:
        first = np.asarray(image)

    with pytest.warns(LeftOutWarning, match="holds 3 images, of which the first is read"):
        decoded = codec_of(kind.lower()).decode(record)

    assert np.array_equal(decoded, first)


# ---------------------------------------------------------------------- sound


def wav_of(sizes: dict[str, int]) -> bytes:
    """A WAV file of 100 samples whose head states other sizes, by the names of their chunks."""
    record = bytearray(codec_of("wav").encode((np.arange(100, dtype=np.int16), 8000)))
    for name, n_bytes in sizes.items():
        start = record.index(name.encode()) + 4
        record[start : start + 4] = n_bytes.to_bytes(4, "little")
    return bytes(record)


@pytest.mark.parametrize(
    "sizes",
    [
        {"RIFF": 0xFFFFFFFF},
        {"RIFF": 0xFFFFFFFF, "data": 0xFFFFFFFF},
        {"RIFF": 0x7FFFFFFF, "data": 0x7FFFFFDB},
        {"RIFF": 0},
        {"RIFF": 244},
    ],
    ids=str,
)
def test_sizes_in_the_head_of_wav_files_are_not_trusted(sizes: dict[str, int]) -> None:
    samples, rate = codec_of("wav").decode(wav_of(sizes))

    assert rate == 8000
    assert samples.tolist() == list(range(100))


def test_a_wav_file_that_ends_before_its_samples_is_refused() -> None:
    whole = wav_of({})

    for n_bytes in range(len(whole)):
        with pytest.raises(ValueError, match=r"cut short|not a WAV file"):
            codec_of("wav").decode(whole[:n_bytes])


def tone(n: int = 2000, channels: int | None = None, dtype: str = "int16") -> np.ndarray[Any, Any]:
    """A tone of shape ``(n,)`` or ``(n, channels)``."""
    wave = np.sin(np.arange(n * (channels or 1)) / 20).reshape(
        (n,) if channels is None else (n, channels)
    )
    return wave.astype(dtype) if dtype[0] == "f" else (wave * np.iinfo(dtype).max).astype(dtype)


SOUNDS = st.tuples(
    st.sampled_from(["int16", "int32", "float32", "float64", ">i2"]).flatmap(
        lambda dtype: nps.arrays(
            dtype, st.one_of(st.tuples(st.integers(0, 50)), st.tuples(st.integers(0, 50), st.integers(2, 8))),
            elements=None if "i" in dtype else st.floats(-1, 1, width=32),
        )
    ),
    st.sampled_from([1, 8000, 11_025, 44_100, 192_000]),
)  # fmt: skip


@given(sound=SOUNDS)
def test_wav_comes_back_without_loss(sound: tuple[np.ndarray[Any, Any], int]) -> None:
    samples, rate = sound

    record = codec_of("wav").encode((samples, np.int64(rate)))
    assert record == codec_of("wav").encode((samples, rate))
    found, found_rate = codec_of("wav").decode(record)

    assert found_rate == rate
    assert found.dtype == samples.dtype.newbyteorder("<")
    assert found.shape == samples.shape
    assert np.array_equal(found, samples)
    assert found.flags.writeable


@pytest.mark.parametrize("codec_class", [WavCodec, FlacCodec])
def test_with_a_rate_of_the_codec_values_are_arrays_alone(codec_class: Any) -> None:
    codec = codec_class(rate=16_000)

    record = codec.encode(tone())

    assert np.array_equal(codec.decode(record), tone())
    assert codec.decode(codec.encode(tone()[:, None])).shape == (2000,)
    assert codec_class().decode(record)[1] == 16_000
    with pytest.raises(ValueError, match="rate=8000, got 16000"):
        codec_class(rate=8000).decode(record)
    with pytest.raises(TypeError, match="without a rate"):
        codec.encode((tone(), 16_000))


# ---------------------------------------------------------------------- videos


@pytest.mark.parametrize("name", ["mp4", "webm"])
def test_videos_come_back_nearly_the_same_and_encoded_ones_unchanged(name: str) -> None:
    codec = codec_of(name)

    record = codec.encode(video())
    found = codec.decode(record)

    assert (found.dtype, found.shape) == (np.uint8, (6, 32, 48, 3))
    assert np.abs(found.astype(int) - video()).mean() < 12
    assert found.flags.writeable
    assert codec.encode(record) == record
    assert pickle.loads(pickle.dumps(codec)).decode(record).tolist() == found.tolist()


def test_a_column_of_videos_reads_no_list_of_other_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret.mp4"
    secret.write_bytes(codec_of("mp4").encode(video()))
    playlist = f"#EXTM3U\n#EXTINF:1,\n{secret}\n".encode()
    concat = f"ffconcat version 1.0\nfile '{secret}'\n".encode()

    for name in ("mp4", "webm"):
        for record in (
            playlist,
            concat,
            secret.read_bytes() if name == "webm" else b"\x00\x00\x00\x08ftyp" + playlist,
        ):
            with pytest.raises(ValueError, match=r"."):
                codec_of(name).decode(record)


@pytest.mark.parametrize("name", ["wav", "flac", "mp4", "webm"])
def test_damaged_sound_and_videos_never_crash(
    name: str,
) -> None:
    codec, is_video = codec_of(name), name in ("mp4", "webm")
    record = codec.encode(video(3, 16, 16) if is_video else (tone(500), 8000))

    for length in (
        range(0, len(record), 7 if is_video else sized(7, 1)) if name != "webm" else ()
    ):  # of which is read what is there
        with contextlib.suppress(ValueError) if is_video else pytest.raises(ValueError, match=r"."):
            assert len(codec.decode(record[:length])) == 3
    for position in range(
        0, 8 * len(record[: None if is_video else 400]), 61 if is_video else sized(7, 1)
    ):
        with contextlib.suppress(ValueError):
            codec.decode(flipped(record, position))


SILENCE = (np.zeros(2_000_000, np.int16), 8000)


@pytest.mark.parametrize(
    ("codec_class", "value", "max_bytes"),
    [
        (WavCodec, SILENCE, 3_000_000),
        (FlacCodec, SILENCE, 3_000_000),
        (Mp4Codec, video(), 10_000),
        (WebmCodec, video(), 10_000),
    ],
)
def test_sound_and_videos_of_too_many_bytes_are_refused(
    codec_class: Any, value: Any, max_bytes: int
) -> None:
    record, small = codec_class().encode(value), codec_class(max_bytes=max_bytes)

    with pytest.raises(
        ValueError, match=f"max_bytes={max_bytes}" + ("|damaged" if max_bytes == 10_000 else "")
    ):
        small.decode(record)
    with pytest.raises(ValueError, match=f"max_bytes={max_bytes}"):
        small.encode(value)
    assert len(codec_class().decode(record)) == (2 if value is SILENCE else len(value))
