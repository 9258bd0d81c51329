"""Schemas and codecs, declared as in Petastorm's programs, and rows written and read by them."""

from __future__ import annotations

import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_stack_petastorm import codecs
from data_stack_petastorm.lenient_scalar_codec import fit_number
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
    """Numbers as text: a codec of a user, with attributes of several kinds."""

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._names = ("a", "b")
        self._dtype = np.float32

    def encode(self, unischema_field: Any, value: Any) -> Any:
        return " ".join(str(number * self._factor) for number in value)

    def decode(self, unischema_field: Any, value: Any) -> Any:
        numbers = [float(text) / self._factor for text in value.split()]
        return np.array(numbers, unischema_field.numpy_dtype)

    def spark_dtype(self) -> Any:
        return "string"


ATTRIBUTES_OF_SCALED_CODEC = {"_factor": 4.0, "_names": ("a", "b"), "_dtype": np.float32}


def test_a_declared_schema_is_the_one_of_fields() -> None:
    assert as_schema(Frames) == Schema(
        "Frames",
        [
            Field("id", "int64", (), ScalarCodec("bigint")),
            Field("price", Decimal, (), ScalarCodec("decimal(10,3)"), nullable=True),
            Field("image", "uint8", (32, 16, 3), PngCodec()),
            Field("points", "float32", (None, 3)),
        ],
    )


def test_a_declared_schema_comes_back() -> None:
    stored = as_schema(Frames).to_json()

    assert as_unischema(Schema.from_json(stored)) == Frames
    assert pickle.loads(pickle.dumps(Frames)) == Frames


def test_fields_are_attributes_and_named_tuples() -> None:
    name, _, shape, codec, _ = Frames.image

    assert name == "image"
    assert shape == (32, 16, 3)
    assert str(codec) == "CompressedImageCodec('png', 80)"
    with pytest.raises(AttributeError, match="imaje"):
        _ = Frames.imaje


def test_fields_that_only_differ_in_their_codec_are_equal() -> None:
    without_codec = Frames.image._replace(codec=None)

    assert Frames.image == without_codec
    assert hash(Frames.image) == hash(without_codec)
    assert Frames.image != Frames.image._replace(nullable=True)
    assert Frames.image != ("image",)


def test_a_view_has_fields_and_those_that_patterns_match() -> None:
    other = UnischemaField("image", np.uint8, (None, None, 3), codecs.CompressedImageCodec("jpeg"))

    view = Frames.create_schema_view(["i.$", other])

    assert view._name == "Frames_view"
    assert set(view.fields) == {"id", "image"}
    assert view.image.shape == (32, 16, 3)
    assert not Frames.create_schema_view(["colour"]).fields


def test_a_view_of_other_things_is_refused() -> None:
    unknown = Frames.id._replace(name="colour")
    number: Any = 3

    with pytest.raises(ConfigError, match="does not belong"):
        Frames.create_schema_view([unknown])
    with pytest.raises(ConfigError, match="a regular expression"):
        Frames.create_schema_view([number])


def test_a_pattern_of_a_beginning_warns() -> None:
    with pytest.warns(UserWarning, match="entire field name"):
        assert match_unischema_fields(Frames, ["poin"]) == []


def test_a_field_with_the_name_of_a_method_warns() -> None:
    field = Frames.id._replace(name="fields")

    with pytest.warns(UserWarning, match="dynamic property fields"):
        schema = Unischema("Own", [field])

    assert schema.fields["fields"] == field


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


Numbers = Unischema(
    "numbers",
    [
        UnischemaField("small", np.uint8, ()),
        UnischemaField("float", np.float32, ()),
        UnischemaField("half", np.float16, ()),
        UnischemaField("text", np.bytes_, ()),
        UnischemaField("flag", np.bool_, (), codecs.ScalarCodec("boolean")),
    ],
)
ROW = {"small": np.int64(200), "float": np.float64(0.1), "half": 0.5, "text": "a", "flag": 1}


def test_numbers_that_fit_are_written_and_text_as_bytes(tmp_path: Path) -> None:
    with ParquetWriter(tmp_path / "numbers", as_schema(Numbers), petastorm=True) as writer:
        writer.append(ROW)

    row = ParquetDataset(tmp_path / "numbers")[0]
    assert row == {"small": 200, "float": np.float32(0.1), "half": 0.5, "text": b"a", "flag": True}
    assert row["small"].dtype == np.uint8
    assert row["half"].dtype == np.float16


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("small", 256),
        ("small", 1.5),
        ("small", "1"),
        ("float", 1e300),
        ("flag", 2),
        ("text", 3),
    ],
)
def test_a_number_that_does_not_fit_is_refused(tmp_path: Path, name: str, value: Any) -> None:
    schema = as_schema(Numbers)
    with ParquetWriter(tmp_path / "numbers", schema, petastorm=True) as writer:
        with pytest.raises(ConfigError, match=name):
            writer.append({**ROW, name: value})
        writer.append(ROW)


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("uint8", np.int64(255), 255),
        ("int64", 3.0, 3),
        ("int64", Decimal(3), 3),
        ("bool", np.int8(1), True),
        ("float32", 16_777_216, 16_777_216.0),
        ("float32", np.inf, np.inf),
        ("float16", np.float64(0.1), 0.1),
    ],
)
def test_a_number_fits_as_pythons_number(dtype: str, value: Any, expected: Any) -> None:
    number = fit_number(np.dtype(dtype), value)

    assert number == expected
    assert type(number) is type(expected)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("uint8", -1),
        ("uint8", np.nan),
        ("bool", 2),
        ("float32", 2**53 + 1),
        ("float32", 1e300),
        ("float64", "1"),
        ("int64", None),
    ],
)
def test_other_values_fit_no_number(dtype: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"does not fit|expected a number"):
        fit_number(np.dtype(dtype), value)


# ------------------------------------------------------------------------------ codecs of users

Scaled = Unischema("scaled", [UnischemaField("x", np.float32, (2,), ScaledCodec(4.0))])


def test_a_users_codec_is_found_by_name_never_unpickled(tmp_path: Path) -> None:
    values = np.array([[1, 2], [3, 4]], "float32")
    with ParquetWriter(tmp_path / "scaled", as_schema(Scaled)) as writer:
        writer.append_columns({"x": values})

    dataset = ParquetDataset(tmp_path / "scaled")

    np.testing.assert_array_equal(dataset.read_batch(np.arange(2))["x"], values)
    codec = as_unischema(dataset.schema).x.codec
    assert type(codec) is ScaledCodec
    assert vars(codec) == ATTRIBUTES_OF_SCALED_CODEC


def test_the_class_of_a_codec_is_never_imported() -> None:
    stored = as_schema(Scaled)["x"].to_json()

    with pytest.raises(ConfigError, match="import its module"):
        Field.from_json({**stored, "codec_class": "os.system"})


def test_a_users_codec_in_petastorms_pickle_is_restored() -> None:
    data = pickle.dumps(Scaled, 2).replace(b"data_stack_petastorm", b"petastorm")

    _, (field,) = read_pickled_schema(data)

    assert type(field.codec) is ScaledCodec
    assert vars(field.codec) == ATTRIBUTES_OF_SCALED_CODEC


def test_a_local_class_cannot_be_found_again() -> None:
    class LocalCodec(ScaledCodec):
        pass

    schema = Unischema("local", [UnischemaField("x", np.float32, (2,), LocalCodec(1.0))])

    with pytest.raises(ConfigError, match="at the top of a module"):
        as_schema(schema).to_json()
