"""A codec that is defined outside of the package is used wherever values become bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from writing import append_all

from data_stack.codecs import (
    Codec,
    ColumnType,
    JpgCodec,
    JsonCodec,
    NpyCodec,
    PngCodec,
    ZstdCodec,
    codec_from_json,
    codec_of,
    register_codec,
    registered_types,
    registry,
)
from data_stack.codecs.codec import fixed_shape
from data_stack.exception import ConfigError
from data_stack.formats.parquet import Field, ParquetDataset, ParquetWriter, Schema

DEGREES = [21.5, -3.25, 0.0]


class DegreesCodec(Codec):
    """Temperatures as text, one decimal place more than a thermometer has."""

    name, extensions, media_type = "degrees", ("deg",), "text/x-degrees"

    def encode(self, value: Any) -> bytes:
        return f"{value:.3f}".encode()

    def decode(self, record: bytes) -> float:
        return float(record)


@dataclass(frozen=True)
class ScaledCodec(Codec):
    """Numbers in units of ``unit``."""

    unit: float = 1.0

    name = "scaled"

    def encode(self, value: Any) -> bytes:
        return str(round(value / self.unit)).encode()

    def decode(self, record: bytes) -> float:
        return int(record) * self.unit


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_classes", dict(registered_types()))
    register_codec(DegreesCodec)
    register_codec(ScaledCodec)


def test_its_values_are_cells_of_parquet(tmp_path: Path) -> None:
    schema = Schema(
        "weather",
        [
            Field("outside", "float64", (), DegreesCodec()),
            Field("packed", object, (), "zstd(degrees)", nullable=True),
            Field("scaled", "float64", (), ScaledCodec(unit=0.25)),
        ],
    )
    rows = ({"outside": value, "packed": value or None, "scaled": value} for value in DEGREES)
    append_all(ParquetWriter(tmp_path, schema), rows)

    dataset = ParquetDataset(tmp_path)

    assert dataset.schema == schema
    assert dataset[0] == {"outside": 21.5, "packed": 21.5, "scaled": 21.5}
    assert dataset.read_column("scaled").tolist() == DEGREES
    assert dataset.read_column("packed").tolist() == [21.5, -3.25, None]


@pytest.mark.parametrize(
    "codec",
    [DegreesCodec(), ScaledCodec(0.5), NpyCodec(), PngCodec(deep=True), ZstdCodec(JsonCodec(), level=9),
     ZstdCodec(ZstdCodec(ScaledCodec(2.0))), JpgCodec(quality=70), JpgCodec(mode="L")],
    ids=repr,
)  # fmt: skip
def test_a_codec_survives_json(codec: Codec) -> None:
    stored = json.loads(json.dumps(codec.to_json()))

    assert codec_from_json(stored) == codec


def test_a_name_is_of_one_codec_and_is_a_name() -> None:
    class Other(DegreesCodec):
        pass

    class Nameless(DegreesCodec):
        name = ""

    with pytest.raises(ConfigError, match=r"'degrees' is .*DegreesCodec"):
        register_codec(Other)
    with pytest.raises(ConfigError, match="a name such as"):
        register_codec(Nameless)
    with pytest.raises(ConfigError, match="register it"):
        Field("x", "float64", (), Nameless())
    with pytest.raises(ConfigError, match="register"):
        Field("x", "float64", (), Other())


@pytest.mark.parametrize(
    "content",
    [{}, {"codec": 5}, {"codec": "unheard"}, {"codec": "json", "options": 5}, {"codec": "json", "options": {"what": 1}},
     {"codec": "zstd"}, {"codec": "zstd", "options": {"inner": {"codec": "unheard"}}}, 5],
)  # fmt: skip
def test_what_describes_no_codec_is_refused(content: Any) -> None:
    with pytest.raises(ConfigError):
        codec_from_json(content)


@pytest.mark.parametrize(
    "value",
    [
        None,
        2**80,
        float("-inf"),
        3j,
        "\ud800",
        b"\0",
        (1, [2.5]),
        {1: frozenset({"a"})},
        range(3),
        np.float32(1.5),
    ],
)
def test_any_plain_value_of_python_comes_back_as_it_was(value: Any) -> None:
    codec = codec_of("python")

    again = codec.decode(codec.encode(value))

    assert again == value
    assert type(again) is type(value)


@pytest.mark.filterwarnings("ignore:.*is_around is deprecated")
def test_codec_with_is_around_wraps_another_codec() -> None:
    class ReversedCodec(Codec):
        name = "reversed"
        is_around = True

        def __init__(self, inner: Codec) -> None:
            self.inner = inner

        def encode(self, value: Any) -> bytes:
            return self.inner.encode(value)[::-1]

        def decode(self, record: bytes) -> Any:
            return self.inner.decode(record[::-1])

    register_codec(ReversedCodec)

    record = codec_of("reversed(utf8)").encode("abc")

    assert record == b"cba"
    assert ReversedCodec.wraps_codec


def test_is_around_warns_that_it_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match="is_around is deprecated .* use wraps_codec"):

        class AroundCodec(DegreesCodec):
            is_around = True


def test_is_around_still_says_what_wraps_codec_says() -> None:
    assert ZstdCodec.is_around
    assert not JsonCodec.is_around


@pytest.mark.parametrize(
    ("shape", "expected"),
    [(None, None), ((), ()), ((2, 3), (2, 3)), ((None, 3), None), ((0,), (0,))],
)
def test_shape_is_fixed_if_no_size_varies(
    shape: tuple[int | None, ...] | None, expected: tuple[int, ...] | None
) -> None:
    assert fixed_shape(ColumnType("array", "u1", shape)) == expected
