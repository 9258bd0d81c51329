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
    rows = []
    for number in range(30):
        image = np.full((4, 3), number, np.uint8)
        name = f"n{number // 10}"
        rows.append({"id": number, "id2": number % 2, "name": name, "image": image})
    append_all(ParquetWriter(folder, as_schema(Frames), row_group_rows=10), rows)
    build_rowgroup_index(folder, None, [SingleFieldIndexer("by_name", "name")])
    return folder


def ids(reader: Any) -> list[int]:
    with reader:
        return sorted(int(row.id) for row in reader)


# ------------------------------------------------------------------ fields and values


def test_attributes_of_a_schema_are_fields(frames: Path) -> None:
    with make_reader(frames) as reader:
        schema = reader.schema

    assert isinstance(schema, Unischema)
    assert schema.id == Frames.id
    assert schema.image.shape == (4, 3)
    assert schema.name.numpy_dtype == np.str_


def test_a_row_has_chosen_fields_first_then_matched_ones(frames: Path) -> None:
    choices = ["id.*", Frames.name, Frames.image]

    with make_reader(frames, schema_fields=choices, shuffle_row_groups=False) as reader:
        row = next(reader)

    assert row._fields == ("name", "image", "id", "id2")
    assert tuple(reader.schema.fields) == row._fields
    assert row == reader.schema.make_namedtuple(**row._asdict())
    assert [type(value) for value in row] == [np.str_, np.ndarray, np.int64, np.int32]


def test_an_empty_choice_is_all_fields(frames: Path) -> None:
    with make_reader(frames, schema_fields=[]) as reader:
        assert next(reader)._fields == tuple(Frames.fields)


def test_a_choice_that_matches_nothing_warns(frames: Path) -> None:
    with pytest.warns(UserWarning, match=r"'missing\.\*' in schema_fields matches no field"):
        reader = make_reader(frames, schema_fields=["missing.*", "(?i)ID"])

    with reader:
        assert next(reader)._fields == ("id",)


@pytest.mark.parametrize("make", [make_reader, make_batch_reader])
def test_choices_of_no_field_are_refused(frames: Path, make: Any) -> None:
    unknown = UnischemaField("bogus", np.int64, ())

    with pytest.raises(RuntimeError, match=r"No fields matching the criteria.*missing"):
        make(frames, schema_fields=["missing"])
    with pytest.raises(ValueError, match="'bogus'"):
        make(frames, schema_fields=[Frames.id, unknown])


#: Columns of two texts, and what an array of fixed width would lose.
TEXTS = {
    "plain": ["a", "bcd"],
    "null": ["a", None],
    "nul": ["a\0", "b"],
    "bytes": [b"a", b"b\0"],
}


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """The folder of a dataset of texts."""
    pq.write_table(pa.table(TEXTS), tmp_path / "texts.parquet")
    return tmp_path


def test_text_of_row_groups_has_fixed_width_if_lossless(texts: Path) -> None:
    with make_batch_reader(texts) as reader:
        batch = next(reader)

    assert batch.plain.dtype == np.dtype("<U3")
    for name, values in TEXTS.items():
        assert getattr(batch, name).tolist() == values


def test_one_long_text_does_not_widen_the_others(tmp_path: Path) -> None:
    # An array of fixed width would take 80 MB for 1 MB of text.
    texts = ["x" * 1_000_000, *["y"] * 19]
    pq.write_table(pa.table({"text": texts}), tmp_path / "long.parquet")

    with make_batch_reader(tmp_path) as reader:
        batch = next(reader)

    assert batch.text.dtype == object
    assert batch.text.tolist() == texts


def test_text_of_rows_survives_pickling(texts: Path) -> None:
    rows = list(make_reader(texts, shuffle_row_groups=False))

    pickled = pickle.loads(pickle.dumps(rows))

    for name, values in TEXTS.items():
        assert [getattr(row, name) for row in pickled] == values
    # NumPy's pickles lose a NUL at the end, so such a text is Python's.
    assert type(rows[0].nul) is str
    assert type(rows[1].nul) is np.str_
    assert type(rows[0].bytes) is np.bytes_


# ------------------------------------------------------------------ transforms


def test_a_transform_need_not_name_what_it_changes(frames: Path) -> None:
    def halve(row: dict[str, Any]) -> dict[str, Any]:
        image = row["image"][:2] / 255
        return {**row, "image": image, "id2": -1, "name": row["name"].encode()}

    with make_reader(
        frames, transform_spec=TransformSpec(halve), shuffle_row_groups=False
    ) as reader:
        rows = list(reader)

    fields = reader.schema.fields
    assert list(fields) == list(Frames.fields)
    assert fields["image"].numpy_dtype == np.float64
    assert fields["image"].shape == (2, 3)
    assert fields["id2"].numpy_dtype == np.int32
    assert fields["name"].numpy_dtype == np.bytes_
    assert (rows[7].image == 7 / 255).all()
    assert rows[7].id2 == -1
    assert rows[7].name == b"n0"


def test_rows_must_fit_the_first_row(frames: Path) -> None:
    def crop(row: dict[str, Any]) -> dict[str, Any]:
        n_lines = 3 if row["id"] == 5 else 2
        return {**row, "image": row["image"][:n_lines]}

    with (
        make_reader(frames, transform_spec=TransformSpec(crop), shuffle_row_groups=False) as reader,
        pytest.raises(LoadingError, match=r"sample 5 .*field 'image' .*edit_fields"),
    ):
        list(reader)


def test_a_transform_of_row_groups_may_drop_rows(frames: Path) -> None:
    def take_even(frame: Any) -> Any:
        kept = frame[(frame["id"] % 2 == 0) & (frame["id"] < 20)]
        return kept.assign(half=kept["id"] / 2)

    spec = TransformSpec(take_even, [("half", np.float64, (), False)], ["image"])
    with make_batch_reader(
        frames, transform_spec=spec, shuffle_row_groups=False, num_epochs=2
    ) as reader:
        batches = list(reader)

    # Nothing is left of the third row group.
    ids_of_epoch = [[0, 2, 4, 6, 8], [10, 12, 14, 16, 18]]
    assert [batch.id.tolist() for batch in batches] == ids_of_epoch * 2
    assert batches[0].half.tolist() == [0, 1, 2, 3, 4]
    assert list(reader.schema.fields) == ["id", "id2", "name", "half"]


def test_a_loader_takes_the_rows_that_a_transform_leaves(frames: Path) -> None:
    from data_stack_petastorm import pytorch

    take_every_third = TransformSpec(lambda frame: frame[1::3])
    reader = make_batch_reader(frames, ["id"], transform_spec=take_every_third)

    with pytorch.DataLoader(reader, 4) as loader:
        ids = [number for batch in loader for number in batch["id"].tolist()]

    assert sorted(ids) == [1, 4, 7, 11, 14, 17, 21, 24, 27]


def test_a_transform_must_return_all_fields(frames: Path) -> None:
    lacks_fields = TransformSpec(lambda frame: frame[["id"]])

    with (
        make_batch_reader(frames, transform_spec=lacks_fields) as reader,
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
    ngram = NGram({1: ["name"], -1: ["^id.*$", Frames.image]}, 1, timestamp_field="^id$")

    with make_reader(frames, schema_fields=ngram) as reader:
        assert reader.ngram is ngram

    # Programs that were written for Petastorm read this attribute.
    assert ngram._timestamp_field == Frames.id
    assert ngram.timestamp_field == Frames.id
    assert ngram.fields[-1][0].name == "image"
    assert ngram.get_field_names_at_timestep(-1) == ["image", "id", "id2"]
    assert ngram.get_field_names_at_timestep(0) == []
    assert ngram.get_field_names_at_all_timesteps()[0] == Frames.name
    assert ngram.length == 3
    assert list(ngram.offsets) == [-1, 0, 1]
    assert ngram.delta_threshold == 1


def test_a_sequence_has_a_row_at_each_offset(frames: Path) -> None:
    ngram = NGram({1: ["name"], -1: ["^id.*$", Frames.image]}, 1, timestamp_field="^id$")

    with make_reader(frames, schema_fields=ngram, shuffle_row_groups=False) as reader:
        sequence = next(reader)

    schema_of_first = ngram.get_schema_at_timestep(reader.schema, -1)
    assert list(sequence) == [-1, 0, 1]
    assert sequence[-1]._fields == tuple(schema_of_first.fields)
    assert sequence[0]._fields == ()
    assert sequence[1]._fields == ("name",)
    assert sequence[1].name == "n0"
    assert ngram.make_namedtuple(Frames, {1: {"name": "n0"}})[1].name == "n0"


def test_ngrams_compare_by_their_fields() -> None:
    ngram = NGram({0: [Frames.id], 1: [Frames.name]}, 2, Frames.id)

    assert ngram == NGram({1: [Frames.name], 0: [Frames.id]}, 2, Frames.id)
    assert ngram != NGram({0: [Frames.id], 1: [Frames.id]}, 2, Frames.id)
    assert ngram != NGram({0: [Frames.id]}, 2, Frames.id)


def test_ngrams_form_sequences_of_rows() -> None:
    ngram = NGram({0: [Frames.id], 1: [Frames.name]}, 2, Frames.id)
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


@pytest.mark.parametrize("make", [make_reader, make_batch_reader])
def test_errors_are_also_those_that_programs_catch(frames: Path, tmp_path: Path, make: Any) -> None:
    with pytest.raises(OSError, match="missing"):
        make((tmp_path / "missing").as_uri())
    with pytest.raises(ValueError, match="Unknown cache_type"):
        make(frames, cache_type="bogus")
    with pytest.raises(ValueError, match="Unknown reader_pool_type"):
        make(frames, reader_pool_type="bogus")


@pytest.mark.parametrize("make", [make_reader, make_batch_reader])
@pytest.mark.parametrize(
    "arguments",
    [
        {"cur_shard": 0},
        {"shard_count": 2},
        {"cache_type": "local-disk"},
        {"schema_fields": "id"},
        {"predicate": 3},
        {"transform_spec": lambda row: row},
        {"shuffle_row_drop_partitions": 0},
        {"workers_count": 0},
    ],
)
def test_invalid_arguments_are_refused(frames: Path, make: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        make(frames, **arguments)


@pytest.mark.parametrize("make", [make_reader, make_batch_reader])
@pytest.mark.parametrize("url", [None, 123, []])
def test_what_is_no_place_is_refused(make: Any, url: Any) -> None:
    with pytest.raises(ValueError):
        make(url)


def test_more_shards_than_rows_are_an_error_of_petastorms_name(frames: Path) -> None:
    with pytest.raises(NoDataAvailableError, match="Number of row-groups in the dataset: 3"):
        make_reader(frames, cur_shard=0, shard_count=31)


# ------------------------------------------------------------------ several readers


def make_field_reader(frames: Path, *fields: str) -> Any:
    return make_reader(frames, schema_fields=list(fields), reader_pool_type="dummy")


def test_mixed_readers_need_one_schema(frames: Path) -> None:
    of_ids = make_field_reader(frames, "id")
    of_names = make_field_reader(frames, "id", "name")

    with pytest.raises(ConfigError, match="should have the same schema"):
        WeightedSamplingReader([of_ids, of_names], [0.5, 0.5])
    with pytest.raises(ConfigError, match="Two or more readers"):
        WeightedSamplingReader([of_ids], [1])


def test_mixed_readers_end_with_the_first_of_them(frames: Path) -> None:
    readers = [make_field_reader(frames, "id", "name"), make_field_reader(frames, "name", "id")]

    with WeightedSamplingReader(readers, [30, 70], seed=2) as mixed:
        rows = list(mixed)

        assert 30 <= len(rows) <= 60
        assert mixed.last_row_consumed
        mixed.reset()
        assert next(mixed) is not None
