"""What programs of Petastorm expect: schemas, values, n-grams, predicates, selectors, errors."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_stack_petastorm import (
    NoDataAvailableError,
    TransformSpec,
    WeightedSamplingReader,
    make_batch_reader,
    make_reader,
)
from data_stack_petastorm.etl.rowgroup_indexers import SingleFieldIndexer
from data_stack_petastorm.etl.rowgroup_indexing import build_rowgroup_index
from data_stack_petastorm.ngram import NGram
from data_stack_petastorm.predicates import PredicateBase, in_negate, in_set
from data_stack_petastorm.schemas import as_schema
from data_stack_petastorm.selectors import (
    IntersectIndexSelector,
    RowGroupSelectorBase,
    SingleIndexSelector,
)
from data_stack_petastorm.transform import transform_schema
from data_stack_petastorm.unischema import Unischema, UnischemaField
from writing import append_all

from data_stack.exception import ConfigError, LoadingError
from data_stack.formats.parquet import ParquetWriter

Frames = Unischema(
    "Frames",
    [
        UnischemaField("id", np.int64, ()),
        UnischemaField("id2", np.int32, ()),
        UnischemaField("name", np.str_, ()),
        UnischemaField("image", np.uint8, (4, 3)),
    ],
)


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 rows in 3 row groups, with an index of ``name``."""
    folder = tmp_path_factory.mktemp("frames")
    images = (np.full((4, 3), number, np.uint8) for number in range(30))
    rows = (
        {"id": i, "id2": i % 2, "name": f"n{i // 10}", "image": image}
        for i, image in enumerate(images)
    )
    append_all(ParquetWriter(folder, as_schema(Frames), row_group_rows=10), rows)
    build_rowgroup_index(folder, None, [SingleFieldIndexer("by_name", "name")])
    return folder


def ids(reader: Any) -> list[int]:
    with reader:
        return sorted(int(row.id) for row in reader)


# ------------------------------------------------------------------ fields and values


def test_attributes_of_a_schema_are_valid_schema_fields(
    frames: Path,
) -> None:
    with make_reader(frames) as reader:
        schema = reader.schema
    assert isinstance(schema, Unischema)
    assert (schema.id, schema.image.shape, schema.name.numpy_dtype) == (Frames.id, (4, 3), np.str_)

    with make_reader(
        frames, schema_fields=["id.*", schema.name, Frames.image], shuffle_row_groups=False
    ) as reader:
        row = next(reader)
    assert row._fields == tuple(reader.schema.fields) == ("name", "image", "id", "id2")
    assert row == reader.schema.make_namedtuple(**row._asdict())
    assert [type(value) for value in row] == [np.str_, np.ndarray, np.int64, np.int32]


def test_an_empty_choice_is_all_and_unmatched_names_warn(frames: Path) -> None:
    assert next(make_reader(frames, schema_fields=[]))._fields == tuple(Frames.fields)
    with pytest.warns(UserWarning, match=r"'missing\.\*' in schema_fields matches no field"):
        assert next(make_reader(frames, schema_fields=["missing.*", "(?i)ID"]))._fields == ("id",)
    for make in (make_reader, make_batch_reader):
        with pytest.raises(RuntimeError, match=r"No fields matching the criteria.*missing"):
            make(frames, schema_fields=["missing"])
        with pytest.raises(ValueError, match="'bogus'"):
            make(frames, schema_fields=[Frames.id, UnischemaField("bogus", np.int64, ())])


def test_text_of_row_groups_has_fixed_width_if_lossless(tmp_path: Path) -> None:
    texts = {
        "plain": ["a", "bcd"],
        "null": ["a", None],
        "nul": ["a\0", "b"],
        "bytes": [b"a", b"b\0"],
    }
    pq.write_table(
        pa.table({**texts, "long": ["x" * 4_000_000] + ["y"] * 1}), tmp_path / "a.parquet"
    )

    with make_batch_reader(tmp_path) as reader:
        batch = next(reader)

    assert batch.plain.dtype == np.dtype("<U3")
    assert [getattr(batch, name).tolist() for name in texts] == list(texts.values())
    rows = list(make_reader(tmp_path, shuffle_row_groups=False))
    assert [
        [getattr(row, name) for row in pickle.loads(pickle.dumps(rows))] for name in texts
    ] == list(texts.values())
    assert [type(value) for value in (rows[0].nul, rows[1].nul, rows[0].bytes)] == [
        str,
        np.str_,
        np.bytes_,
    ]


# ------------------------------------------------------------------ transforms


def test_a_transform_need_not_name_what_it_changes(frames: Path) -> None:
    def halved(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "image": row["image"][:2] / 255, "id2": -1, "name": row["name"].encode()}

    with make_reader(
        frames, transform_spec=TransformSpec(halved), shuffle_row_groups=False
    ) as reader:
        rows = list(reader)

    fields = reader.schema.fields
    assert list(fields) == list(Frames.fields)
    assert (fields["image"].numpy_dtype, fields["image"].shape) == (np.float64, (2, 3))
    assert (fields["id2"].numpy_dtype, fields["name"].numpy_dtype) == (np.int32, np.bytes_)
    assert (rows[7].image == 7 / 255).all()
    assert (rows[7].id2, rows[7].name) == (-1, b"n0")


def test_rows_must_fit_the_first_row(frames: Path) -> None:
    spec = TransformSpec(lambda row: {**row, "image": row["image"][: 2 + (row["id"] == 5)]})

    with (
        make_reader(frames, transform_spec=spec, shuffle_row_groups=False) as reader,
        pytest.raises(LoadingError, match=r"sample 5 .*field 'image' .*edit_fields"),
    ):
        list(reader)


def test_a_transform_of_row_groups_may_drop_rows(frames: Path) -> None:
    def even(frame: Any) -> Any:
        return frame[(frame["id"] % 2 == 0) & (frame["id"] < 20)].assign(
            half=lambda kept: kept["id"] / 2
        )

    spec = TransformSpec(even, [("half", np.float64, (), False)], ["image"])
    with make_batch_reader(
        frames, transform_spec=spec, shuffle_row_groups=False, num_epochs=2
    ) as reader:
        batches = list(reader)

    assert [batch.id.tolist() for batch in batches] == [[0, 2, 4, 6, 8], [10, 12, 14, 16, 18]] * 2
    assert batches[0].half.tolist() == [0, 1, 2, 3, 4]
    assert list(reader.schema.fields) == ["id", "id2", "name", "half"]

    torch = pytest.importorskip("data_stack_petastorm.pytorch")
    with torch.DataLoader(
        make_batch_reader(frames, ["id"], transform_spec=TransformSpec(lambda frame: frame[1::3])),
        4,
    ) as loader:
        assert sorted(number for batch in loader for number in batch["id"].tolist()) == [
            1,
            4,
            7,
            11,
            14,
            17,
            21,
            24,
            27,
        ]

    lacking = TransformSpec(lambda frame: frame[["id"]])
    with (
        make_batch_reader(frames, transform_spec=lacking) as reader,
        pytest.raises(LoadingError, match="removed_fields"),
    ):
        next(reader)


def test_unknown_fields_of_a_transform_warn() -> None:
    edited = UnischemaField("image", np.float32, (4, 3), None, True)

    with pytest.warns(UserWarning, match='not part of the schema.*"gone"'):
        found = transform_schema(Frames, TransformSpec(lambda row: row, [edited], ["id2", "gone"]))

    assert list(found.fields) == ["id", "name", "image"]
    assert found.image == edited
    assert list(transform_schema(Frames, TransformSpec(selected_fields=["name", "id"])).fields) == [
        "name",
        "id",
    ]


# ------------------------------------------------------------------ n-grams


def test_a_reader_resolves_the_names_of_an_ngram(frames: Path) -> None:
    ngram = NGram(
        {1: ["name"], -1: ["^id.*$", Frames.image]}, delta_threshold=1, timestamp_field="^id$"
    )

    with make_reader(frames, schema_fields=ngram, shuffle_row_groups=False) as reader:
        sequence = next(reader)

    assert reader.ngram is ngram
    assert (
        ngram._timestamp_field == Frames.id
    )  # programs that were written for Petastorm read this attribute
    assert (ngram.fields[-1][0].name, ngram.length, ngram.delta_threshold) == ("image", 3, 1)
    assert ngram.get_field_names_at_timestep(-1) == ["image", "id", "id2"]
    assert (ngram.get_field_names_at_timestep(0), ngram.get_field_names_at_all_timesteps()[0]) == (
        [],
        Frames.name,
    )
    at_first = ngram.get_schema_at_timestep(reader.schema, -1)
    assert {offset: row._fields for offset, row in sequence.items()} == {
        -1: tuple(at_first.fields),
        0: (),
        1: ("name",),
    }
    assert ngram.make_namedtuple(Frames, {1: {"name": "n0"}})[1].name == sequence[1].name == "n0"


def test_ngrams_compare_by_their_fields_and_form_sequences_of_rows() -> None:
    ngram = NGram({0: [Frames.id], 1: [Frames.name]}, 2, Frames.id)
    assert (
        ngram
        == NGram({1: [Frames.name], 0: [Frames.id]}, 2, Frames.id)
        != NGram({0: [Frames.id], 1: [Frames.id]}, 2, Frames.id)
    )

    rows = [{"id": number, "name": str(number)} for number in (0, 1, 4, 6)]
    assert ngram.form_ngram(rows, Frames) == [
        {0: {"id": 0}, 1: {"name": "1"}},
        {0: {"id": 4}, 1: {"name": "6"}},
    ]
    assert NGram({0: [Frames.id], 2: []}, 9, "id").form_ngram(rows[:1], Frames) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ([], 5, Frames.id),
        ({0: "id"}, 5, Frames.id),
        ({0: [Frames.id]}, "abc", Frames.id),
        ({0: [Frames.id]}, 5, Frames.id, 2),
    ],
)
def test_ngrams_refuse_invalid_arguments(arguments: Any) -> None:
    with pytest.raises(ValueError):
        NGram(*arguments)


# ------------------------------------------------------------------ which rows


class Between(PredicateBase):
    """Rows, or columns, with ids in a range."""

    def __init__(self, first: int, last: int) -> None:
        self._range = first, last

    def get_fields(self) -> list[str]:
        return ["id"]

    def do_include(self, values: Any) -> Any:
        return (values["id"] >= self._range[0]) & (values["id"] <= self._range[1])


class FirstOf(RowGroupSelectorBase):
    """The first row group with a value."""

    def __init__(self, index: str, value: str) -> None:
        self._index, self._value = index, value

    def get_index_names(self) -> list[str]:
        return [self._index]

    def select_row_groups(self, index_dict: Any) -> set[int]:
        assert self._value in index_dict[self._index].indexed_values
        return {min(index_dict[self._index].get_row_group_indexes(self._value))}


def test_predicates_are_derived_and_combined_as_in_petastorm(frames: Path) -> None:
    assert isinstance(in_negate(Between(0, 3)), PredicateBase)
    assert ids(make_reader(frames, predicate=Between(3, 5))) == [3, 4, 5]
    with make_batch_reader(
        frames, predicate=in_negate(Between(3, 28)), shuffle_row_groups=False
    ) as reader:
        assert [batch.id.tolist() for batch in reader] == [[0, 1, 2], [29]]


def test_selectors_of_users_ask_the_indexes(frames: Path) -> None:
    assert ids(make_reader(frames, rowgroup_selector=FirstOf("by_name", "n1"))) == list(
        range(10, 20)
    )
    both = IntersectIndexSelector(
        [FirstOf("by_name", "n1"), SingleIndexSelector("by_name", ["n1", "n2"])]
    )
    assert ids(make_reader(frames, predicate=in_set([12, 25], "id"), rowgroup_selector=both)) == [
        12
    ]
    with pytest.raises(ValueError, match="by_nothing"):
        make_reader(frames, rowgroup_selector=FirstOf("by_nothing", "n1"))


# ------------------------------------------------------------------ errors and figures


def test_errors_are_also_those_that_programs_catch(frames: Path, tmp_path: Path) -> None:
    for make in (make_reader, make_batch_reader):
        with pytest.raises(OSError, match="missing"):
            make((tmp_path / "missing").as_uri())
        with pytest.raises(ValueError, match="Unknown cache_type"):
            make(frames, cache_type="bogus")
        with pytest.raises(ValueError, match="Unknown reader_pool_type"):
            make(frames, reader_pool_type="bogus")
        with pytest.warns(UserWarning, match="shard_seed was deprecated"):
            make(frames, shard_seed=3)
        senseless: list[dict[str, Any]] = [
            *(
                {"cur_shard": 0},
                {"shard_count": 2},
                {"cache_type": "local-disk"},
                {"schema_fields": "id"},
            ),
            *(
                {"predicate": 3},
                {"transform_spec": lambda row: row},
                {"shuffle_row_drop_partitions": 0},
            ),
        ]
        for options in senseless:
            with pytest.raises(ConfigError):
                make(frames, **options)
        bad: list[Any] = [None, 123, []]
        for url in bad:
            with pytest.raises(ValueError):
                make(url)
    with pytest.raises(NoDataAvailableError, match="Number of row-groups in the dataset: 3"):
        make_reader(frames, cur_shard=0, shard_count=31)


def test_mixed_readers_need_one_schema(frames: Path) -> None:
    def reader(*fields: str) -> Any:
        return make_reader(frames, schema_fields=list(fields), reader_pool_type="dummy")

    with pytest.raises(ConfigError, match="should have the same schema"):
        WeightedSamplingReader([reader("id"), reader("id", "name")], [0.5, 0.5])
    with pytest.raises(ConfigError, match="Two or more readers"):
        WeightedSamplingReader([reader("id")], [1])
    with WeightedSamplingReader(
        [reader("id", "name"), reader("name", "id")], [30, 70], seed=2
    ) as mixed:
        first = [row.id for row in mixed]
        assert mixed.last_row_consumed
        mixed.reset()
        assert 30 <= len(first) <= 60
        assert next(mixed) is not None
