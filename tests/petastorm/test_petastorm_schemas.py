"""Schemas that are declared as Petastorm's programs do."""

from __future__ import annotations

import pickle
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from data_stack_petastorm.codecs import CompressedImageCodec
from data_stack_petastorm.unischema import Unischema, UnischemaField

from data_stack.exception import ConfigError
from data_stack.formats.parquet import Field, JpegCodec, NdarrayCodec, PngCodec, ScalarCodec, Schema

Frames = Unischema(
    "Frames",
    [
        UnischemaField("id", np.int64, (), None, False),
        UnischemaField("price", numpy_dtype=Decimal, shape=(), codec=ScalarCodec("decimal(10,3)"), nullable=True),
        UnischemaField("image", np.uint8, (32, 16, 3), CompressedImageCodec("png"), False),
        UnischemaField("fields", np.float32, (None, 3), NdarrayCodec(), False),
    ],
)


def test_a_declared_schema_is_the_one_of_fields() -> None:
    assert Frames == Schema(
        "Frames",
        [
            Field("id", "int64"),
            Field("price", Decimal, (), ScalarCodec("decimal(10,3)"), nullable=True),
            Field("image", "uint8", (32, 16, 3), PngCodec()),
            Field("fields", "float32", (None, 3), NdarrayCodec()),
        ],
    )
    assert Schema.from_json(Frames.to_json()) == Frames


def test_fields_are_attributes_unless_schemas_have_such_a_one() -> None:
    assert Frames.image is Frames["image"]
    assert list(Frames.fields) == ["id", "price", "image", "fields"]
    with pytest.raises(AttributeError, match="imaje"):
        _ = Frames.imaje


def test_a_view_is_a_schema_of_fields_that_are_attributes() -> None:
    other = UnischemaField("image", np.uint8, (None, None, 3), CompressedImageCodec("jpeg"))

    view = Frames.create_schema_view(["i.", other])

    assert (view.name, list(view.fields), view.image) == ("Frames_view", ["id", "image"], Frames.image)
    assert pickle.loads(pickle.dumps(view)) == view
    with pytest.raises(ConfigError, match="colour"):
        Frames.create_schema_view(["colour"])


@pytest.mark.parametrize("type_", [SimpleNamespace(simpleString=lambda: "decimal(10,3)"), pa.decimal128(10, 3), "decimal(10,3)"])
def test_scalars_are_of_types_of_spark_or_arrow_or_of_their_names(type_: Any) -> None:
    assert ScalarCodec(type_).type == "decimal(10,3)"


@pytest.mark.parametrize(
    ("arguments", "codec"),
    [((), PngCodec()), (("png", 80), PngCodec()), (("jpeg",), JpegCodec(80)), (("jpg", 95), JpegCodec(95))],
)
def test_images_are_compressed_as_png_or_jpeg(arguments: tuple[Any, ...], codec: Any) -> None:
    assert CompressedImageCodec(*arguments) == codec
    with pytest.raises(ConfigError, match="'webp'"):
        CompressedImageCodec("webp")
