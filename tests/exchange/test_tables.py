"""Tables of pandas, polars, Arrow and Hugging Face as samples, and back."""

from __future__ import annotations

import datetime
import pickle
from decimal import Decimal
from typing import Any

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing.parametric import dataframes

import data_stack
from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import ConfigError

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
_FLOATS = st.floats(allow_nan=False, width=32)
_SMALL = st.integers(-100, 100)
_TYPES: dict[Any, st.SearchStrategy[Any]] = {
    pa.int8(): _SMALL,
    pa.bool_(): st.booleans(),
    pa.string(): _TEXT,
    pa.string_view(): _TEXT,
    pa.large_binary(): st.binary(max_size=5),
    pa.date32(): st.dates(datetime.date(1900, 1, 1)),
    pa.timestamp("ns", "Asia/Tokyo"): st.integers(0, 2**60),
    pa.duration("ms"): _SMALL,
    pa.decimal128(10, 2): st.decimals(-1000, 1000, places=2),
    pa.dictionary(pa.int8(), pa.large_string() if pa.__version__ > "19" else pa.string()): st.sampled_from(["a", "b", "c"]),
    pa.list_(pa.int16()): st.lists(_SMALL, max_size=3),
    pa.list_(pa.float32(), 2): st.lists(_FLOATS, min_size=2, max_size=2),
    pa.list_(pa.list_(pa.uint8(), 3), 2): st.just([[1, 2, 3], [4, 5, 6]]),
    pa.list_(pa.list_(pa.string())): st.lists(st.lists(_TEXT, max_size=2), max_size=2),
    pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))]): st.fixed_dictionaries({"x": _SMALL, "y": st.lists(_TEXT)}),
    pa.null(): st.none(),
}


@st.composite
def arrow_tables(draw: st.DrawFn) -> pa.Table:
    """Tables of any types, with and without nulls, in one chunk or two."""
    n_rows = draw(st.integers(0, 5))
    columns = {}
    for number, type_ in enumerate(draw(st.lists(st.sampled_from(list(_TYPES)), min_size=1, max_size=4))):
        value = _TYPES[type_]
        value = st.one_of(st.none(), value) if draw(st.booleans()) else value
        columns[f"c{number}"] = pa.array(draw(st.lists(value, min_size=n_rows, max_size=n_rows)), type_)
    table = pa.table(columns)
    cut = draw(st.integers(0, n_rows))
    return pa.concat_tables([table.slice(0, cut), table.slice(cut)])


@given(arrow_tables())
def test_a_table_of_arrow_comes_back_as_it_was(table: pa.Table) -> None:
    iterator = data_stack.from_arrow(table)

    back = iterator.to_arrow()

    assert back.schema == table.schema
    assert back.to_pylist() == table.to_pylist()
    assert iterator.to_arrow(lazy=True).read_all() == back
    assert iterator.fingerprint() == data_stack.from_arrow(table.combine_chunks()).fingerprint()


_COLUMNS: dict[str, list[Any]] = {
    "float32": [1.5, np.nan, 2],
    "complex128": [1j, 2, 3],
    "bool": [True, False, True],
    "datetime64[ns]": [1, None, 3],
    "str": ["a", None, "c"],
    "string": ["a", None, "c"],
    "Int64": [2**53 + 1, None, 3],
    "boolean": [True, None, False],
    "category": ["x", None, "y"],
    "datetime64[us, Europe/Rome]": [1, None, 3],
    "period[M]": ["2020-01", None, "2021-01"],
    "object": [b"x", None, b""],
}


@given(st.lists(st.tuples(st.sampled_from(list(_COLUMNS)), st.lists(st.integers(0, 2), min_size=4, max_size=4)), min_size=1))
def test_a_frame_of_pandas_comes_back_with_its_dtypes(drawn: list[tuple[str, list[int]]]) -> None:
    whole = pd.DataFrame({str(i): pd.Series(_COLUMNS[dtype], dtype=dtype)[rows].array for i, (dtype, rows) in enumerate(drawn)})

    for frame in (whole, whole[:0]):
        pd.testing.assert_frame_equal(data_stack.from_pandas(frame).to_pandas(), frame)


#: polars dies of categories in structs that are null
_CATEGORIES = [pl.Categorical, pl.Enum]
#: It exports no null structs, its decimals may have no precision, and categories without values are unequal.
_IS_OLD = tuple(map(int, pl.__version__.split(".")[:2])) < (1, 30)
_UNKNOWN = [getattr(pl, name) for name in ("Object", "Int128", "UInt128", *["Decimal", "Struct"] * _IS_OLD) if hasattr(pl, name)]


_FRAMES = dataframes(max_size=5, max_cols=4, excluded_dtypes=[*_UNKNOWN, *_CATEGORIES])


@given(_FRAMES if _IS_OLD else _FRAMES | dataframes(max_size=5, allowed_dtypes=_CATEGORIES))
def test_a_frame_of_polars_comes_back_as_it_was(frame: pl.DataFrame) -> None:
    assert data_stack.from_polars(frame).to_polars().equals(frame)
    assert data_stack.from_polars(frame.clear()).to_polars().schema == frame.schema


_FEATURES = {
    "image": (datasets.Image(), st.integers(1, 3).map(lambda size: np.full((size, 2, 3), size, np.uint8))),
    "label": (datasets.ClassLabel(names=["no", "yes"]), st.integers(0, 1)),
    "array": (datasets.Array2D((2, 2), "float32"), st.just([[1.0, 2.0], [3.0, 4.0]])),
    "text": (datasets.Value("string"), st.one_of(st.none(), _TEXT)),
    "box": ({"x": datasets.Value("int8")}, st.fixed_dictionaries({"x": _SMALL})),
}


@given(st.sets(st.sampled_from(list(_FEATURES)), min_size=1), st.data())
@settings(max_examples=3)
def test_a_dataset_of_hugging_face_comes_back_with_its_features(names: set[str], data: st.DataObject) -> None:
    features = datasets.Features({name: _FEATURES[name][0] for name in sorted(names)})
    columns = {name: data.draw(st.lists(_FEATURES[name][1], min_size=2, max_size=2)) for name in features}
    dataset = datasets.Dataset.from_dict(columns, features=features)
    iterator = data_stack.from_huggingface(dataset)

    back, stream = iterator.to_huggingface(), iterator.to_huggingface(streaming=True)

    assert back.features == stream.features == features
    assert str(back.with_format("arrow")[:].to_pylist()) == str(dataset.with_format("arrow")[:].to_pylist())
    assert len(list(stream)) == 2


@pytest.mark.parametrize("read", [data_stack.from_pandas, data_stack.from_polars, data_stack.from_arrow])
def test_a_categorical_target_becomes_class_numbers(read: Any) -> None:
    frame: Any = pd.DataFrame({"x": [1, 2, 3], "y": pd.Categorical(["b", "a", "b"], categories=["b", "a", "c"])})
    frame = {data_stack.from_polars: pl.from_pandas, data_stack.from_arrow: pa.Table.from_pandas}.get(read, lambda it: it)(frame)

    iterator = read(frame, target="y")

    assert iterator.read_column("y").tolist() == [0, 1, 0]
    assert iterator.dataset_meta.class_names[:2] == ("b", "a")
    assert (iterator.dataset_meta.sample_pos, iterator.dataset_meta.target_pos) == ("x", "y")
    assert iterator.to_pandas()["y"].tolist() == ["b", "a", "b"]
    assert read(frame)[1]["y"] == "a"


def test_types_survive_choosing_rows_and_columns_and_a_second_process() -> None:
    frame = pd.DataFrame({"a": pd.array([3, None, 1], dtype="UInt32"), "b": pd.Categorical(["x", "y", "x"]), "c": [1, 2, 3]})
    stack = data_stack.from_pandas(frame).filter(lambda c: c > 1, column="c").select("b", "a").rename({"a": "z"})

    back = pickle.loads(pickle.dumps(stack.shuffle(seed=1).in_memory().underlying_iterators[0])).sort("b").to_pandas()

    assert {name: str(dtype) for name, dtype in back.dtypes.items()} == {"b": "category", "z": "UInt32"}
    assert back["b"].tolist() == ["x", "y"]


def test_values_tell_the_types_of_other_iterators() -> None:
    images = np.zeros((3, 4, 5), np.uint8)
    columns = [images, [1, None, 3], ["a", None, ""], [1, "x", 2.5], [np.ones((2, 2)), None, np.ones((1, 2))], [Decimal(1)] * 3]
    stack = SequenceDatasetIterator(columns).as_dict("image", "number", "text", "mixed", "arrays", "decimal")

    frame, table = stack.to_pandas(), stack.select("image", "number", "text", "arrays", "decimal").to_arrow()

    # pandas 2 has no str
    assert [str(dtype).replace("str", "object") for dtype in frame.dtypes] == ["object", "Int64", *["object"] * 4]
    assert table.schema.field("image").type == pa.list_(pa.list_(pa.uint8(), 5), 4)
    assert table.schema.field("arrays").type == pa.list_(pa.list_(pa.float64()))
    assert stack.select("image", "number").to_polars().schema == {"image": pl.Array(pl.UInt8, (4, 5)), "number": pl.Int64}
    assert data_stack.from_pandas(frame[["image"]]).read_column("image").shape == (3, 4, 5)


def test_images_and_classes_of_a_stack_become_features_of_hugging_face() -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (4, 5, 6), np.uint8)
    stack = data_stack.from_numpy({"image": images, "label": np.arange(4) % 2}, target="label", class_names=["no", "yes"])

    back = data_stack.from_huggingface(stack.to_huggingface())

    assert stack.to_huggingface().features == {"image": datasets.Image(), "label": datasets.ClassLabel(names=["no", "yes"])}
    assert np.array_equal(back.read_column("image"), images)
    assert back.read_column("image", []).shape == (0, 5, 6)
    assert data_stack.from_huggingface(stack.to_huggingface().select([])).read_column("label").dtype == np.int64
    assert stack.as_tuple().select("image").to_huggingface().features == {"image": datasets.Image()}  # without its target


_MIXED = pd.DataFrame({"a": [1, "x"]}, dtype=object)
_FRAME = pd.DataFrame({"a": [1], "b": [2]})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: data_stack.from_pandas(_FRAME, target="aa"), r"target 'aa' is not a column \(did you mean 'a'\?\)"),
        (lambda: data_stack.from_pandas(_FRAME.set_axis(["a", "a"], axis=1)), "different names of text, got \\['a'\\]"),
        (lambda: data_stack.from_pandas(_MIXED), "'a' of dtype object holds values of several"),
        (lambda: data_stack.from_pandas(_FRAME["a"]), "got Series"),
        (lambda: data_stack.from_polars(pl.DataFrame({"a": [object()]})), r"dtype \[Object\] holds Python objects"),
        (lambda: data_stack.from_arrow(pa.table({"u": pa.nulls(1, pa.month_day_nano_interval())})), "the unsupported type"),
        (lambda: data_stack.from_huggingface(datasets.DatasetDict()), r"choose a split: dataset\['train'\]"),
        (lambda: SequenceDatasetIterator([[1, "x"]]).to_arrow(), "'column_0' cannot be converted to Arrow"),
        (lambda: SequenceDatasetIterator([[1], ["x"]]).to_huggingface(features=datasets.Features({})), "do not fit the features"),
    ],
)
def test_what_cannot_be_a_table_is_an_error_that_says_why(call: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()
