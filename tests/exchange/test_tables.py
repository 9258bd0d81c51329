"""Tables of pandas, polars, Arrow and Hugging Face as samples, and back."""

from __future__ import annotations

import datetime
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from datasets.table import InMemoryTable
from feature_lists import list_feature

import data_stack
from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import ConfigError
from data_stack.io.storage_connectors import InMemoryStorageConnector

_COLUMNS: dict[str, list[Any]] = {
    "complex128": [1j, 2, 3],
    "period[M]": ["2020-01", None, "2021-01"],
    "object": [b"x", None, b""],
    "category": ["x", None, "y"],
    "string": ["a", None, "c"],
}


@pytest.mark.parametrize("dtype", _COLUMNS)
def test_a_frame_of_pandas_comes_back_with_its_dtypes(dtype: str) -> None:
    whole = pd.DataFrame({"x": pd.Series(_COLUMNS[dtype], dtype=dtype)})

    for frame in (whole, whole[:0]):
        pd.testing.assert_frame_equal(data_stack.from_pandas(frame).to_pandas(), frame)


_INDEXES = {
    "times": pd.date_range("2024-01-01", periods=3, name="time"),
    "zoned times": pd.date_range("2024-01-01", periods=3, tz="Europe/Berlin"),
    "periods": pd.period_range("2024-01", periods=3, freq="M", name="month"),
    "groups": pd.Index(["a", "b", "c"], name="g"),
    "texts": pd.Index(["a", "b", "c"]),
    "ids": pd.Index([7, 5, 9], name="id"),
    "named numbering": pd.RangeIndex(3, name="id"),
    "two levels": pd.MultiIndex.from_tuples([("a", 1), ("b", 2), ("b", 3)], names=["k", None]),
}


@pytest.mark.parametrize("kind", _INDEXES)
def test_an_index_of_data_is_a_column_and_returns(kind: str) -> None:
    frame = pd.DataFrame({"load": [1.0, 2.0, 4.0]}, index=_INDEXES[kind])
    names = [name for name in _INDEXES[kind].names if name is not None]

    iterator = data_stack.from_pandas(frame)

    assert iterator[0].keys() >= {"load", *names}
    for same, part in (
        (iterator.to_pandas(), frame),
        (iterator[[2, 0]].to_pandas(), frame.iloc[[2, 0]]),
        (data_stack.from_pandas(frame[:0]).to_pandas(), frame[:0]),
    ):
        # An empty index of texts is an index of nothing before pandas 3.
        index_check: Any = "equiv" if len(part) else False
        pd.testing.assert_frame_equal(same, part, check_freq=False, check_index_type=index_check)
    assert iterator.select("load").to_pandas().index.equals(pd.RangeIndex(3))
    assert iterator.to_arrow().num_columns == 1 + len(frame.index.names)


def test_row_numbers_are_left_out_and_gaps_in_them_said() -> None:
    frame = pd.DataFrame({"x": [1, 2, 3, 4]})

    for numbering in (frame, frame[1:3], frame.set_axis([5, 6, 7, 8])):
        assert list(data_stack.from_pandas(numbering)[0]) == ["x"]
    with pytest.warns(UserWarning, match=r"leaves out the index .*\(1, …\)"):
        iterator = data_stack.from_pandas(frame[frame["x"] % 2 == 0])
    assert iterator[1] == {"x": 4}
    with pytest.raises(ConfigError, match="'x': rename it"):
        data_stack.from_pandas(frame.set_axis(pd.Index([1, 2, 3, 4], name="x")))


@pytest.mark.parametrize("freq", ["Y", "Q", "M", "W", "D", "h", "2M", "Y-JUN", "us"])
def test_a_period_is_its_text(freq: str) -> None:
    periods = pd.period_range("2024-01", periods=2, freq=freq)
    frame = pd.DataFrame({"when": [periods[1], None, periods[0]]}, dtype=periods.dtype)

    iterator = data_stack.from_pandas(frame)

    assert [sample["when"] for sample in iterator] == [str(periods[1]), None, str(periods[0])]
    pd.testing.assert_frame_equal(iterator.to_pandas(), frame)


@pytest.mark.parametrize("kinds", ["date, datetime", "text, bytes", "bool, int"])
def test_objects_of_several_types_in_a_frame_are_refused(kinds: str) -> None:
    frame = pd.DataFrame({"x": pd.Series(_SEVERAL_KINDS[kinds], dtype=object)})

    with pytest.raises(ConfigError, match="'x' of dtype object holds values of several types"):
        data_stack.from_pandas(frame)


@pytest.mark.parametrize("dtype", [pl.Categorical, pl.Enum(["b", "a"])])
def test_categories_of_polars_come_back(dtype: Any) -> None:
    frame = pl.DataFrame({"x": ["a", None, "b"]}, schema={"x": dtype})

    assert data_stack.from_polars(frame).to_polars().equals(frame)
    kept: Any = pl.from_arrow(frame.to_arrow())  # old polars makes another type of an Enum
    assert data_stack.from_polars(frame.clear()).to_polars().schema == kept.schema


def test_a_dataset_of_hugging_face_comes_back_with_its_features() -> None:
    features = datasets.Features(
        image=datasets.Image(),
        label=datasets.ClassLabel(names=["no", "yes"]),
        array=datasets.Array2D((2, 2), "float32"),
        text=datasets.Value("string"),
        box={"x": datasets.Value("int8")},
    )
    image = np.zeros((3, 2, 3), np.uint8)
    array = [[1.0, 2.0], [3.0, 4.0]]
    rows = [
        {"image": image, "label": 1, "array": array, "text": None, "box": {"x": -100}},
        {"image": image[:1], "label": 0, "array": array, "text": "é", "box": {"x": 5}},
    ]
    dataset = datasets.Dataset.from_list(rows, features=features)
    iterator = data_stack.from_huggingface(dataset)

    back = iterator.to_huggingface()
    stream = iterator.to_huggingface(streaming=True)

    assert back.features == features
    assert stream.features == features
    cells = back.with_format("arrow")[:].to_pylist()
    assert str(cells) == str(dataset.with_format("arrow")[:].to_pylist())
    assert len(list(stream)) == 2


def test_rows_of_a_saved_dataset_come_back_without_a_copy(tmp_path: Path) -> None:
    features = datasets.Features(
        number=datasets.Value("int64"), label=datasets.ClassLabel(names=["no", "yes"])
    )
    columns = {"number": list(range(50_000)), "label": [0, 1] * 25_000}
    datasets.Dataset.from_dict(columns, features=features).save_to_disk(str(tmp_path / "saved"))
    dataset = datasets.load_from_disk(str(tmp_path / "saved")).with_format("numpy")
    iterator: Any = data_stack.from_huggingface(dataset)
    allocated = pa.total_allocated_bytes()

    back = iterator.to_huggingface()

    assert pa.total_allocated_bytes() - allocated < dataset.data.nbytes / 100
    assert back.features == features
    assert back[:2] == {"number": [0, 1], "label": [0, 1]}
    chosen = iterator[[7, 3]].select("label").to_huggingface()
    assert chosen.features == {"label": features["label"]}
    assert chosen["label"][:] == [1, 1]


def _unchanged(frame: pd.DataFrame) -> pd.DataFrame:
    return frame


# A frame is converted within the test: the threads of polars do not survive a fork.
@pytest.mark.parametrize(
    ("read", "convert"),
    [
        (data_stack.from_pandas, _unchanged),
        (data_stack.from_polars, pl.from_pandas),
        (data_stack.from_arrow, pa.Table.from_pandas),
    ],
    ids=["pandas", "polars", "arrow"],
)
def test_a_categorical_target_becomes_class_numbers(read: Any, convert: Any) -> None:
    categories = pd.Categorical(["b", "a", "b"], categories=["b", "a", "c"])
    frame = convert(pd.DataFrame({"x": [1, 2, 3], "y": categories}))

    iterator = read(frame, target="y")

    assert iterator.read_column("y").tolist() == [0, 1, 0]
    assert iterator.dataset_meta.class_names[:2] == ("b", "a")
    assert iterator.dataset_meta.sample_pos == "x"
    assert iterator.dataset_meta.target_pos == "y"
    assert iterator.to_pandas()["y"].tolist() == ["b", "a", "b"]
    assert read(frame)[1]["y"] == "a"


def test_types_survive_choosing_rows_and_columns_and_a_second_process() -> None:
    frame = pd.DataFrame(
        {
            "a": pd.array([3, None, 1], dtype="UInt32"),
            "b": pd.Categorical(["x", "y", "x"]),
            "c": [1, 2, 3],
        }
    )
    stack = (
        data_stack.from_pandas(frame)
        .filter(lambda c: c > 1, column="c")
        .select("b", "a")
        .rename({"a": "z"})
    )

    shuffled = stack.shuffle(seed=1).in_memory().underlying_iterators[0]
    received = pickle.loads(pickle.dumps(shuffled))
    back = received.sort("b").to_pandas()

    dtypes = {name: str(dtype) for name, dtype in back.dtypes.items()}
    assert dtypes == {"b": "category", "z": "UInt32"}
    assert back["b"].tolist() == ["x", "y"]


@pytest.mark.parametrize(
    "storage", [None, "a list", InMemoryStorageConnector()], ids=["cached", "in memory", "stored"]
)
def test_a_cached_empty_table_keeps_columns_types_and_meta(storage: Any) -> None:
    types = {
        "n": pa.int32(),
        "at": pa.time32("s"),
        "text": pa.string(),
        "kind": pa.dictionary(pa.int8(), pa.string()),
    }
    table = pa.schema(types).empty_table()
    empty = data_stack.from_arrow(table, target="kind")

    kept: Any = empty.in_memory() if storage == "a list" else empty.cache(storage=storage)
    received = pickle.loads(pickle.dumps(kept))
    shuffled = kept.in_memory().shuffle(seed=1)

    for stack in (kept, received, shuffled):
        assert len(stack) == 0
        assert stack.column_names == list(types)
        assert stack.dataset_meta.target_pos == "kind"
        assert stack.to_arrow().schema == table.schema
        assert stack.to_pandas().dtypes.to_dict() == empty.to_pandas().dtypes.to_dict()
        assert stack.read_column("n").dtype == np.int32
        assert stack.select("n")[:].read_batch([])["n"].dtype == np.int32
    with pytest.raises(ConfigError, match="no column 'm'"):
        kept.read_column("m")


def test_nan_within_arrays_stays_nan() -> None:
    frame = pd.DataFrame({"x": pd.Series([np.array([np.nan, 1.5]), None, np.nan], dtype=object)})

    array, *missing = data_stack.from_pandas(frame).read_column("x")

    assert array.dtype == np.float64
    assert np.isnan(array).tolist() == [True, False]
    assert missing == [None, None]


def test_nan_beside_null_stays_nan() -> None:
    table = pa.table({"x": [np.nan, None, 1.5]})

    series = data_stack.from_arrow(table).to_pandas()["x"]

    assert [str(value) for value in series] == ["nan", "<NA>", "1.5"]


def test_rows_of_a_slice_have_their_own_arrays() -> None:
    """pyarrow's take() overlooks where lists of fixed size within such lists begin."""
    matrices = pa.array(
        [[[number] * 3] * 2 for number in range(4)], pa.list_(pa.list_(pa.uint8(), 3), 2)
    )
    table = pa.table({"a": matrices, "b": pa.StructArray.from_arrays([matrices], ["c"])}).slice(2)

    for iterator in (
        data_stack.from_arrow(table),
        data_stack.from_huggingface(datasets.Dataset(InMemoryTable(table))),
    ):
        for rows in (None, [1, 0]):
            numbers = [2 + row for row in rows or [0, 1]]
            assert iterator.read_column("a", rows)[:, 0, 0].tolist() == numbers
            structs = iterator.read_column("b", rows)
            assert [struct["c"][0][0] for struct in structs] == numbers


def test_values_tell_the_types_of_other_iterators() -> None:
    images = np.zeros((3, 4, 5), np.uint8)
    columns = [
        images,
        [1, None, 3],
        ["a", None, ""],
        [1, "x", 2.5],
        [np.ones((2, 2)), None, np.ones((1, 2))],
        [Decimal(1)] * 3,
    ]
    stack = SequenceDatasetIterator(columns).as_dict(
        "image", "number", "text", "mixed", "arrays", "decimal"
    )

    frame = stack.to_pandas()
    table = stack.select("image", "number", "text", "arrays", "decimal").to_arrow()

    # pandas 2 has no str.
    dtypes = [str(dtype).replace("str", "object") for dtype in frame.dtypes]
    assert dtypes == ["object", "Int64", "object", "object", "object", "object"]
    assert table.schema.field("image").type == pa.list_(pa.list_(pa.uint8(), 5), 4)
    assert table.schema.field("arrays").type == pa.list_(pa.list_(pa.float64()))
    assert stack.select("image", "number").to_polars().schema == {
        "image": pl.Array(pl.UInt8, (4, 5)),
        "number": pl.Int64,
    }
    assert data_stack.from_pandas(frame[["image"]]).read_column("image").shape == (3, 4, 5)


def test_matrices_without_elements_or_of_texts_are_lists() -> None:
    stack = SequenceDatasetIterator(
        [[np.zeros((1, 0))], [np.zeros((2, 0, 2))], [np.full((2, 2), "ab")]]
    ).as_dict("a", "b", "c")

    expected = {"a": [[]], "b": [[], []], "c": [["ab", "ab"], ["ab", "ab"]]}
    assert stack.to_huggingface()[0] == expected
    assert stack.to_arrow().to_pylist()[0] == expected


def test_images_and_classes_become_features_of_hugging_face() -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (4, 5, 6), np.uint8)
    stack = data_stack.from_numpy(
        {"image": images, "label": np.arange(4) % 2}, target="label", class_names=["no", "yes"]
    )

    back = data_stack.from_huggingface(stack.to_huggingface())

    assert stack.to_huggingface().features == {
        "image": datasets.Image(),
        "label": datasets.ClassLabel(names=["no", "yes"]),
    }
    assert np.array_equal(back.read_column("image"), images)
    assert back.read_column("image", []).shape == (0, 5, 6)
    no_rows = data_stack.from_huggingface(stack.to_huggingface().select([]))
    assert no_rows.read_column("label").dtype == np.int64
    without_target = stack.as_tuple().select("image").to_huggingface()
    assert without_target.features == {"image": datasets.Image()}


_DAY = datetime.date(2024, 1, 1)
_NOON = datetime.datetime(2024, 1, 1, 12)
_ZONED = _NOON.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
_SEVERAL_KINDS: dict[str, list[Any]] = {
    "date, datetime": [_DAY, _NOON],
    "date, midnight": [_DAY, _NOON.replace(hour=0)],
    "datetime, date": [_NOON, _DAY],
    "no zone, zone": [_NOON, _ZONED],
    "zone, no zone": [_ZONED, _NOON],
    "text, bytes": ["a", b"b"],
    "bytes, text": [b"a", "b"],
    "bool, int": [{"a": True}, {"a": 2}],
    "int, large float": [{"a": 2**53 + 1}, {"a": 0.5}],
    "float16 beside int": [{"a": np.float16(0.5)}, {"a": 1}],
    "time, duration": [datetime.time(1), datetime.timedelta(1)],
    "bool, int in lists": [[[1]], [[True], [1, 2]]],
}


def column(values: list[Any]) -> Any:
    return SequenceDatasetIterator([values]).as_dict("x")


@pytest.mark.parametrize("kinds", _SEVERAL_KINDS)
def test_values_of_several_types_are_refused_or_objects(kinds: str) -> None:
    values = _SEVERAL_KINDS[kinds]
    stack = column(values)

    for export in (stack.to_arrow, stack.to_polars, stack.to_huggingface):
        with pytest.raises(ConfigError, match="'x'"):
            export()
    objects = stack.to_pandas()["x"].tolist()
    assert objects == values
    assert [type(value) for value in objects] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ({"a": 1}, {"a": 1.5}),
        ({"a": 1}, {"a": 1, "b": 2}),
        ([1], [1.5]),
        (_DAY, _NOON),
        (_NOON, _ZONED),
        (np.float16(0.5), np.float64(0.1)),
    ],
)
def test_a_late_unfit_value_is_refused_with_its_row(first: Any, last: Any) -> None:
    n_firsts = 5000
    stack = column([*[first] * n_firsts, last, None])

    with pytest.raises(ConfigError, match=f"'x'.* row {n_firsts}: "):
        stack.to_arrow(lazy=True).read_all()
    with pytest.raises(ConfigError, match=f"'x'.* row {n_firsts}: "):
        stack.to_huggingface()
    with pytest.raises(ConfigError, match=f"'x'.* row {n_firsts}: "):
        list(stack.to_huggingface(streaming=True))


_UNFIT = [
    ([1.5, None], pa.int64(), datasets.Value("int64")),
    ([1, None], pa.string(), datasets.Value("string")),
    (["1", None], pa.int64(), datasets.Value("int64")),
    ([[1.5], [2]], pa.list_(pa.int64()), list_feature(datasets.Value("int64"))),
    ([{"a": 1.5}], pa.struct([("a", pa.int64())]), {"a": datasets.Value("int64")}),
    ([_NOON.replace(microsecond=1)], pa.timestamp("s"), datasets.Value("timestamp[s]")),
    ([_NOON], pa.date32(), datasets.Value("date32")),
    ([_ZONED], pa.timestamp("us"), datasets.Value("timestamp[us]")),
    ([1e300, None], pa.float32(), datasets.Value("float32")),
    (np.array([70000.0]), pa.float16(), datasets.Value("float16")),
    (np.array([300]), pa.int8(), datasets.Value("int8")),
    ([Decimal("1.55")], pa.decimal128(5, 1), datasets.Value("decimal128(5, 1)")),
    ([b"a"], pa.string(), datasets.Value("string")),
    ([np.zeros((2, 3), np.int32)], None, datasets.Array2D((2, 2), "int32")),
    ([np.full((2, 2), 0.5)], None, datasets.Array2D((2, 2), "int32")),
]


@pytest.mark.parametrize(("values", "type_", "feature"), _UNFIT)
def test_a_declared_type_takes_only_equal_values(values: Any, type_: Any, feature: Any) -> None:
    stack = column(values)

    with pytest.raises(ConfigError, match="'x'"):
        stack.to_huggingface(features=datasets.Features({"x": feature}))
    if type_ is not None:
        for is_lazy in (False, True):
            with pytest.raises(ConfigError, match="'x'"):
                stack.to_arrow(schema=pa.schema([("x", type_)]), lazy=is_lazy)


def test_values_that_fit_a_declared_type_have_it() -> None:
    schema = pa.schema([("x", pa.list_(pa.float32())), ("y", pa.timestamp("s", "UTC"))])
    stack = SequenceDatasetIterator([[[1, 0.5], None], [_ZONED, None]]).as_dict("x", "y")

    table = stack.to_arrow(schema=schema)

    assert table.schema == schema
    assert table.to_pylist() == [{"x": [1, 0.5], "y": _ZONED}, {"x": None, "y": None}]


_MIXED = pd.DataFrame({"a": [1, "x"]}, dtype=object)
_FRAME = pd.DataFrame({"a": [1], "b": [2]})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: data_stack.from_pandas(_FRAME, target="aa"),
            r"target 'aa' is not a column \(did you mean 'a'\?\)",
        ),
        (
            lambda: data_stack.from_pandas(_FRAME.set_axis(["a", "a"], axis=1)),
            "different names of text, got \\['a'\\]",
        ),
        (lambda: data_stack.from_pandas(_MIXED), "'a' of dtype object holds values of several"),
        (lambda: data_stack.from_pandas(_FRAME["a"]), "got Series"),
        (
            lambda: data_stack.from_polars(pl.DataFrame({"a": [object()]})),
            "column 'a' of dtype Object holds Python objects",
        ),
        (
            lambda: data_stack.from_arrow(
                pa.table({"u": pa.nulls(1, pa.month_day_nano_interval())})
            ),
            "the unsupported type",
        ),
        (
            lambda: data_stack.from_huggingface(datasets.DatasetDict()),
            r"choose a split: dataset\['train'\]",
        ),
        (
            lambda: column([1]).to_arrow(schema=pa.schema([("xx", pa.int64())])),
            r"'xx', which the samples lack \(did you mean 'x'\?\); they have x",
        ),
        (
            lambda: SequenceDatasetIterator([[1, "x"]]).to_arrow(),
            "'column_0' cannot be converted to Arrow",
        ),
        (
            lambda: SequenceDatasetIterator([[1], ["x"]]).to_huggingface(
                features=datasets.Features({})
            ),
            "do not fit the features",
        ),
    ],
)
def test_what_is_no_table_is_an_error_with_its_reason(call: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()


#: Cells whose bytes in Arrow are alike, with types that make different values of them.
_CELLS: list[tuple[Any, pa.DataType]] = [
    (1, pa.timestamp("s")),
    (1, pa.timestamp("ms")),
    (1, pa.timestamp("us")),
    (1, pa.timestamp("ns")),
    (1, pa.timestamp("s", "UTC")),
    (1, pa.timestamp("s", "Europe/Berlin")),
    (1, pa.duration("s")),
    (1, pa.duration("ms")),
    (1, pa.duration("us")),
    (1, pa.duration("ns")),
    (1, pa.time32("s")),
    (1, pa.time32("ms")),
    (1, pa.time64("us")),
    (1, pa.date32()),
    (1, pa.int32()),
    (1, pa.int64()),
    (1, pa.uint64()),
    (Decimal("1.0"), pa.decimal128(5, 1)),
    (Decimal("0.10"), pa.decimal128(5, 2)),
    ({"a": 1}, pa.struct({"a": pa.int64()})),
    ({"b": 1}, pa.struct({"b": pa.int64()})),
    ([1], pa.list_(pa.int64())),
    ([1], pa.list_(pa.timestamp("s"))),
    ([1], pa.list_(pa.timestamp("ms"))),
    ([{"a": 1}], pa.list_(pa.struct({"a": pa.int64()}))),
    ([{"b": 1}], pa.list_(pa.struct({"b": pa.int64()}))),
    ("a", pa.string()),
    (b"a", pa.binary()),
    (None, pa.int64()),
    (None, pa.string()),
]


def test_columns_of_different_types_have_different_fingerprints() -> None:
    tables = [pa.table({"a": pa.array([cell], kind)}) for cell, kind in _CELLS]

    prints = [data_stack.from_arrow(table).fingerprint() for table in tables]
    again = [data_stack.from_arrow(table).fingerprint() for table in tables]

    assert prints == again
    assert len(set(prints)) == len(prints)


def test_slices_of_lists_of_fixed_size_become_polars() -> None:
    lists = pa.array([[0, 1], None, [2, 3]], pa.list_(pa.int8(), 2))
    structs = pa.StructArray.from_arrays([lists], ["inner"])
    table = pa.table({"x": lists, "y": structs}).slice(1)

    frame = data_stack.from_arrow(table).to_polars()

    assert frame["x"].to_list() == [None, [2, 3]]
    assert frame["y"].to_list() == [{"inner": None}, {"inner": [2, 3]}]
