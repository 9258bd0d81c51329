"""Tables of Arrow, pandas, polars and Hugging Face come back as they were, and samples do from each
of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import datasets
import pandas as pd
import polars as pl
import pyarrow as pa
from datasets.table import InMemoryTable
from exact_values import meaning
from hypothesis import given
from hypothesis import strategies as st
from table_strategies import (
    ALL,
    DECIMALS,
    FLOATS,
    INTEGERS,
    LISTS,
    STRUCTS,
    TIMES,
    compared,
    exact_rows,
    tables,
)

import data_stack

NULLABLE: dict[Any, Any] = {
    type_: pd.api.types.pandas_dtype(str(type_).title().replace("Ui", "UI")) for type_ in INTEGERS
}
NULLABLE |= {
    pa.float32(): pd.Float32Dtype(),
    pa.float64(): pd.Float64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
}
#: Python's times of day have no nanoseconds; pandas names no dtype for views.
OF_PANDAS = [
    each for each in ALL if each not in (pa.time64("ns"), pa.string_view(), pa.binary_view())
]
#: Their values tell the type. A map is a list of pairs, which are no lists of one type.
WITHOUT_MAPS = [each for each in ALL if not pa.types.is_map(each)]
#: They have no decimals of 256 bits, no maps, and no zones without a name.
OF_POLARS = [
    each
    for each in ALL
    if not pa.types.is_decimal256(each)
    and not pa.types.is_map(each)
    and each != pa.timestamp("s", "-07:30")
]
OF_HUGGING_FACE = [
    pa.bool_(),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    *INTEGERS,
    *FLOATS,
    *TIMES,
    *DECIMALS,
    *LISTS,
    *STRUCTS,
]
#: There and back.
LIBRARIES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], list[Any]]] = {
    "arrow": (data_stack.to_arrow, data_stack.from_arrow, list(ALL)),
    "pandas": (
        data_stack.to_pandas,
        data_stack.from_pandas,
        [each for each in OF_PANDAS if each in WITHOUT_MAPS],
    ),
    "polars": (data_stack.to_polars, data_stack.from_polars, OF_POLARS),
    "huggingface": (data_stack.to_huggingface, data_stack.from_huggingface, OF_HUGGING_FACE),
}


def samples(iterator: Any) -> list[Any]:
    """The exact values of all samples; None also for NaT, which pandas has."""
    return [{name: _plain(meaning(value)) for name, value in sample.items()} for sample in iterator]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_plain, value))
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return None if value in (("M", "NaT"), ("m", "NaT"), (type(None), None)) else value


@compared
@given(tables())
def test_tables_of_arrow(table: pa.Table) -> None:
    iterator = data_stack.from_arrow(table)

    back = iterator.to_arrow()

    assert back.schema == table.schema
    assert exact_rows(back) == exact_rows(table)
    assert exact_rows(iterator.to_arrow(lazy=True).read_all()) == exact_rows(table)
    assert exact_rows(iterator[::-1][::-1].to_arrow()) == exact_rows(table)
    assert iterator.fingerprint() == data_stack.from_arrow(table.combine_chunks()).fingerprint()


@compared
@given(st.data(), st.sampled_from([None, pd.ArrowDtype, NULLABLE.get]))
def test_frames_of_pandas(data: st.DataObject, types_mapper: Any) -> None:
    types = OF_PANDAS if types_mapper is pd.ArrowDtype else LIBRARIES["pandas"][2]
    # in several chunks, pyarrow takes wrong cells of lists of fixed size within such lists
    frame = data.draw(tables(types)).combine_chunks().to_pandas(types_mapper=types_mapper)

    for some in (frame, frame[:0]):
        pd.testing.assert_frame_equal(data_stack.from_pandas(some).to_pandas(), some)


@compared
@given(tables(OF_POLARS))
def test_frames_of_polars(table: pa.Table) -> None:
    frame: Any = pl.from_arrow(table.combine_chunks())  # in several, it refuses lists of fixed size

    iterator = data_stack.from_polars(frame)

    assert iterator.to_polars().equals(frame)
    assert (
        iterator.to_polars().schema
        == frame.schema
        == data_stack.from_polars(frame.clear()).to_polars().schema
    )


@compared
@given(tables(OF_HUGGING_FACE, names=["a", "b", "c", "d"]))
def test_datasets_of_hugging_face(table: pa.Table) -> None:
    dataset = datasets.Dataset(InMemoryTable(table))

    iterator = data_stack.from_huggingface(dataset)

    assert iterator.to_huggingface().features == dataset.features
    assert exact_rows(iterator.to_huggingface().data.table) == exact_rows(dataset.data.table)
    assert samples(iterator) == samples(data_stack.from_arrow(dataset.data.table))


@compared
@given(st.data(), st.sampled_from(list(LIBRARIES)), st.booleans())
def test_samples_of_all_libraries(data: st.DataObject, library: str, is_mapped: bool) -> None:
    there, back, types = LIBRARIES[library]
    iterator = data_stack.from_arrow(
        data.draw(tables([each for each in types if each in WITHOUT_MAPS or not is_mapped]))
    )
    iterator = (
        iterator.map(dict) if is_mapped and len(iterator) else iterator
    )  # whose types are then inferred

    assert samples(back(there(iterator))) == samples(iterator)
