"""The four workloads: what is written, and the truth that every system is checked against."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Field:
    """One field of the samples.

    Attributes:
        name: its name.
        kind: ``"scalar"``, ``"array"``, ``"blob"`` or ``"jpeg"``.
        dtype: of scalars and arrays.
        shape: of each array.
    """

    name: str
    kind: str
    dtype: str = ""
    shape: tuple[int, ...] = ()


def check_values(field: Field, values: Any, truth: Any) -> None:
    """Hold the values of a batch against what was written.

    Raises:
        ValueError: a value, dtype or shape differs.
    """
    if field.kind == "blob":
        equal = list(values) == truth
    elif field.kind == "jpeg":  # decoders differ in the last bits
        difference = np.abs(np.asarray(values, np.int16) - truth)
        equal = values.dtype == np.uint8 and difference.max() <= 24 and difference.mean() < 1
    else:
        equal = values.dtype == truth.dtype and np.array_equal(values, truth)
    if not equal:
        raise ValueError(f"{field.name} of a batch is not what was written")


@dataclass(frozen=True)
class Schema:
    """What a reader must know of a workload; small, for it goes to worker processes.

    Attributes:
        name: ``"W1"`` to ``"W4"``.
        fields: in the order of their names.
        n: number of samples.
    """

    name: str
    fields: tuple[Field, ...]
    n: int

    @property
    def packed(self) -> np.dtype[Any] | None:
        """All fields end to end as one record; None for blobs."""
        if any(field.dtype == "" for field in self.fields):
            return None
        return np.dtype([(field.name, field.dtype, field.shape) for field in self.fields])


@dataclass(frozen=True, eq=False)
class Workload:
    """A workload.

    Attributes:
        schema: what the samples are.
        title: what it is, for people.
        columns: arrays of shape ``(n, ...)``, or a list of bytes for blobs and JPEGs.
    """

    schema: Schema
    title: str
    columns: dict[str, Any]

    @property
    def name(self) -> str:
        """``"W1"`` to ``"W4"``."""
        return self.schema.name

    @property
    def n(self) -> int:
        """Number of samples."""
        return self.schema.n

    def samples(self) -> Iterator[dict[str, Any]]:
        """The samples as dicts, for appending: scalars are ints of Python, arrays rows."""
        columns = [
            column.tolist() if isinstance(column, np.ndarray) and column.ndim == 1 else column
            for column in self.columns.values()
        ]
        names = tuple(self.columns)
        for values in zip(*columns, strict=True):
            yield dict(zip(names, values, strict=True))

    @cached_property
    def truth(self) -> dict[str, Any]:
        """The values that come back: the columns, JPEGs decoded by Pillow."""
        truth = dict(self.columns)
        for field in self.schema.fields:
            if field.kind == "jpeg":
                from record_peers.system import decoded

                truth[field.name] = np.stack([decoded(jpeg) for jpeg in self.columns[field.name]])
        return truth

    def check(self, batch: dict[str, Any], indices: np.ndarray[Any, Any]) -> None:
        """Hold a batch against the samples of these positions.

        Raises:
            ValueError: a value, dtype or shape differs.
        """
        for field in self.schema.fields:
            truth = self.truth[field.name]
            check_values(
                field,
                batch[field.name],
                [truth[i] for i in indices.tolist()] if field.kind == "blob" else truth[indices],
            )

    @cached_property
    def record_array(self) -> np.ndarray[Any, Any]:
        """All samples as one structured array."""
        packed = np.empty(self.n, self.schema.packed)
        for name, column in self.columns.items():
            packed[name] = column
        return packed

    def packed_records(self) -> Iterator[bytes]:
        """One record of bytes a sample: the fields end to end, or the only blob."""
        if self.schema.packed is None:
            (column,) = self.columns.values()
            yield from column
            return
        whole, size = self.record_array.tobytes(), self.schema.packed.itemsize
        for start in range(0, len(whole), size):
            yield whole[start : start + size]


def w1(small: bool) -> Workload:
    """200,000 samples of {id int64, label int32, x float32[64]}."""
    n, rng = 20_000 if small else 200_000, np.random.default_rng(1)
    fields = (
        Field("id", "scalar", "<i8"),
        Field("label", "scalar", "<i4"),
        Field("x", "array", "<f4", (64,)),
    )
    columns = {
        "id": np.arange(n, dtype=np.int64) * 7 - 3,
        "label": rng.integers(-1000, 1000, n, dtype=np.int32),
        "x": rng.random((n, 64), dtype=np.float32),
    }
    return Workload(
        Schema("W1", fields, n), f"{n:,} x {{id int64, label int32, x float32[64]}}", columns
    )


def w2(small: bool) -> Workload:
    """20,000 blobs of 10 to 30 KB."""
    n, rng = 2_000 if small else 20_000, np.random.default_rng(2)
    lengths = rng.integers(10_000, 30_001, n).tolist()
    blobs = [rng.bytes(length) for length in lengths]
    return Workload(
        Schema("W2", (Field("blob", "blob"),), n), f"{n:,} blobs of 10 to 30 KB", {"blob": blobs}
    )


def w3(small: bool) -> Workload:
    """5,000 pictures of 96 x 96, like photographs in what they cost to decode."""
    n = 500 if small else 5_000
    jpegs = [jpeg_of(picture(number, 96)) for number in range(n)]
    return Workload(
        Schema("W3", (Field("image", "jpeg"),), n),
        f"{n:,} JPEGs of 96 x 96, decoded",
        {"image": jpegs},
    )


def w4(small: bool) -> Workload:
    """60,000 pictures of 28 x 28, not compressed, with their labels."""
    n, rng = 6_000 if small else 60_000, np.random.default_rng(4)
    fields = Field("image", "array", "|u1", (28, 28)), Field("label", "scalar", "<i8")
    columns = {
        "image": rng.integers(0, 256, (n, 28, 28), dtype=np.uint8),
        "label": rng.integers(0, 10, n, dtype=np.int64),
    }
    return Workload(
        Schema("W4", fields, n), f"{n:,} x {{image uint8[28, 28], label int64}}", columns
    )


WORKLOADS = {"W1": w1, "W2": w2, "W3": w3, "W4": w4}


def picture(seed: int, size: int) -> np.ndarray[Any, Any]:
    """Soft colours with some detail, shape ``(size, size, 3)``, uint8: about 1 bit a pixel as a
    JPEG of quality 75.
    """
    rng = np.random.default_rng([3, seed])
    across = np.linspace(0, 1, size)[:, None]
    y, x = np.broadcast_to(across, (size, size)), np.broadcast_to(across.T, (size, size))
    waves = np.zeros((size, size, 3))
    for power in range(8):
        frequency = 2.0**power * rng.normal(size=(2, 3))
        waves += np.sin(
            y[..., None] * frequency[0] * 6 + x[..., None] * frequency[1] * 6 + rng.random(3) * 6
        ) / (1 + power)
    waves += rng.normal(size=(size, size, 1)) * 0.12
    return np.clip(128 + 50 * waves, 0, 255).astype(np.uint8)


def jpeg_of(image: np.ndarray[Any, Any]) -> bytes:
    """A picture as Granular stores it: Pillow's JPEG of default quality."""
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(image).save(stream, format="JPEG")
    return stream.getvalue()
