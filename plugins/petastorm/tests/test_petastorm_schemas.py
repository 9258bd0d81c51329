"""Schemas and codecs that are declared as Petastorm's programs do, and rows that are written and read with them."""

from __future__ import annotations

import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_stack_petastorm import codecs
from data_stack_petastorm.pickles.schema_reader import read_pickled_schema
from data_stack_petastorm.schemas import as_schema, as_unischema
from data_stack_petastorm.unischema import Unischema, UnischemaField, match_unischema_fields

from data_stack.exception import ConfigError
from data_stack.formats.parquet import (
    Field,
    JpegCodec,
    ParquetDataset,
    ParquetWriter,
    PngCodec,
    ScalarCodec,
    Schema,
)

Frames = Unischema(
    "Frames",
    [
        UnischemaField("id", np.int64, (), None, False),
        UnischemaField(
            "price",
            numpy_dtype=Decimal,
            shape=(),
            codec=codecs.ScalarCodec("decimal(10,3)"),
            nullable=True,
        ),
        UnischemaField("image", np.uint8, (32, 16, 3), codecs.CompressedImageCodec("png"), False),
        UnischemaField("points", np.float32, (None, 3), codecs.NdarrayCodec(), False),
    ],
)


class ScaledCodec(codecs.DataframeColumnCodec):
    """Numbers as text of a codec of a user's, with attributes of several kinds."""

    def __init__(self, factor: float) -> None:
        self._factor, self._names, self._dtype = factor, ("a", "b"), np.float32

    def encode(self, unischema_field: Any, value: Any) -> Any:
        return " ".join(str(each * self._factor) for each in value)

    def decode(self, unischema_field: Any, value: Any) -> Any:
        return np.array(
            [float(each) / self._factor for each in value.split()], unischema_field.numpy_dtype
        )

    def spark_dtype(self) -> Any:
        return "string"


def test_a_declared_schema_is_the_one_of_fields_and_back() -> None:
    assert as_schema(Frames) == Schema(
        "Frames",
        [
            Field("id", "int64", (), ScalarCodec("bigint")),
            Field("price", Decimal, (), ScalarCodec("decimal(10,3)"), nullable=True),
            Field("image", "uint8", (32, 16, 3), PngCodec()),
            Field("points", "float32", (None, 3)),
        ],
    )
    assert as_unischema(Schema.from_json(as_schema(Frames).to_json())) == Frames
    assert pickle.loads(pickle.dumps(Frames)) == Frames


def test_fields_are_attributes_and_named_tuples() -> None:
    name, _, shape, codec, _ = Frames.image

    assert (name, shape, str(codec)) == ("image", (32, 16, 3), "CompressedImageCodec('png', 80)")
    assert Frames.image == Frames.image._replace(codec=None) != Frames.image._replace(nullable=True)
    with pytest.raises(AttributeError, match="imaje"):
        _ = Frames.imaje


def test_a_view_has_fields_and_those_that_patterns_match() -> None:
    other = UnischemaField("image", np.uint8, (None, None, 3), codecs.CompressedImageCodec("jpeg"))

    view = Frames.create_schema_view(["i.$", other])

    assert (view._name, set(view.fields), view.image.shape) == (
        "Frames_view",
        {"id", "image"},
        (32, 16, 3),
    )
    assert not Frames.create_schema_view(["colour"]).fields
    with pytest.warns(UserWarning, match="entire field name"):
        assert match_unischema_fields(Frames, ["poin"]) == []
    with pytest.raises(ConfigError, match="does not belong"):
        Frames.create_schema_view([other._replace(name="colour")])


@pytest.mark.parametrize(
    ("arguments", "stored"),
    [
        ((), PngCodec()),
        (("png", 80), PngCodec()),
        (("jpeg",), JpegCodec(80)),
        (("jpg", 95), JpegCodec(95)),
    ],
)
def test_images_are_compressed_as_png_or_jpeg(arguments: tuple[Any, ...], stored: Any) -> None:
    assert codecs.CompressedImageCodec(*arguments).stored == stored
    with pytest.raises(ConfigError, match="'webp'"):
        codecs.CompressedImageCodec("webp")


def test_numbers_that_fit_are_written_and_text_as_bytes(tmp_path: Path) -> None:
    schema = Unischema(
        "numbers",
        [
            UnischemaField("small", np.uint8, ()),
            UnischemaField("float", np.float32, ()),
            UnischemaField("half", np.float16, ()),
            UnischemaField("text", np.bytes_, ()),
            UnischemaField("flag", np.bool_, (), codecs.ScalarCodec("boolean")),
        ],
    )
    row = {"small": np.int64(200), "float": np.float64(0.1), "half": 0.5, "text": "a", "flag": 1}

    with ParquetWriter(tmp_path / "numbers", as_schema(schema), petastorm=True) as writer:
        writer.append(row)
        for wrong in (
            {"small": 256},
            {"small": 1.5},
            {"small": "1"},
            {"float": 1e300},
            {"flag": 2},
            {"text": 3},
        ):
            with pytest.raises(ConfigError, match=next(iter(wrong))):
                writer.append(row | wrong)

    read = ParquetDataset(tmp_path / "numbers")[0]
    assert read == {"small": 200, "float": np.float32(0.1), "half": 0.5, "text": b"a", "flag": True}
    assert (read["small"].dtype, read["half"].dtype) == (np.uint8, np.float16)


def test_a_users_codec_is_found_by_name_never_unpickled(tmp_path: Path) -> None:
    schema = Unischema("scaled", [UnischemaField("x", np.float32, (2,), ScaledCodec(4.0))])
    with ParquetWriter(tmp_path / "scaled", as_schema(schema)) as writer:
        writer.append_columns({"x": np.array([[1, 2], [3, 4]], "float32")})

    dataset = ParquetDataset(tmp_path / "scaled")

    np.testing.assert_array_equal(
        dataset.read_batch(np.arange(2))["x"], np.array([[1, 2], [3, 4]], "float32")
    )
    codec = as_unischema(dataset.schema).x.codec
    assert (type(codec), vars(codec)) == (
        ScaledCodec,
        {"_factor": 4.0, "_names": ("a", "b"), "_dtype": np.float32},
    )
    with pytest.raises(ConfigError, match="import its module"):
        Field.from_json({**dataset.schema["x"].to_json(), "codec_class": "os.system"})
    _, (field,) = read_pickled_schema(
        pickle.dumps(schema, 2).replace(b"data_stack_petastorm", b"petastorm")
    )
    assert (type(field.codec), vars(field.codec)) == (ScaledCodec, vars(codec))
