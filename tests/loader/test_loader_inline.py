"""Batches made in the consumer's thread: errors hit the right one, and their memory is not
shared.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from layer_laws import Samples, object_column
from torch_or_stand_in import torch
from writing import resource_of

from data_stack.dataset.iterator import (
    Batch,
    DatasetIteratorIF,
    InMemoryDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.formats.hdf5 import HDF5DatasetIterator
from data_stack.formats.numpy_arrays import NumpyDatasetIterator
from data_stack.formats.records import RecordReader, RecordWriter
from data_stack.loader import Loader
from data_stack.testing.comparing import assert_same


def loader(samples: Any, batch_size: int = 8, **options: Any) -> Loader:
    return Loader(samples, batch_size, **{"worker_kind": "inline", **options})


class Answer(Samples):
    """A client's class that answers a request for columns in its own way."""

    def __init__(self, answer: Callable[[Any], Batch], n: int = 24) -> None:
        super().__init__(range(n))
        self.answer = answer

    def read_batch(self, indices: Any) -> Batch:
        return self.answer(indices)


# ------------------------------------------------------------------------------------------- memory


def stored_sources(folder: Path) -> Iterator[DatasetIteratorIF]:
    """Sources of ours that hold arrays, or read them, in several ways."""
    images = np.arange(24 * 6, dtype=np.uint8).reshape(24, 2, 3)
    rows = [np.arange(index % 4 + 1.0) for index in range(24)]
    yield SequenceDatasetIterator([images, np.arange(24)])
    yield SequenceDatasetIterator([np.array(rows, dtype=object), np.arange(24)])
    yield SequenceDatasetIterator([rows, list(images)])
    yield SequenceDatasetIterator([np.broadcast_to(np.arange(3), (24, 3))])
    yield InMemoryDatasetIterator(list(zip(images, rows, strict=True)))
    yield SequenceDatasetIterator([images, np.arange(24)]).map(lambda sample: sample).cache()
    np.save(folder / "images.npy", images)
    yield SequenceDatasetIterator([np.load(folder / "images.npy", mmap_mode="r")])
    yield NumpyDatasetIterator([resource_of((folder / "images.npy").read_bytes())])
    with h5py.File(folder / "images.h5", "w") as file:
        file["images"] = images
    yield HDF5DatasetIterator(resource_of((folder / "images.h5").read_bytes()), ["images"])
    with RecordWriter(
        folder / "records", {"image": "array", "row": "array", "blob": "bytes"}
    ) as writer:
        for image, row in zip(images, rows, strict=True):
            writer.append({"image": image, "row": row, "blob": row.tobytes()})
    with RecordReader(folder / "records") as reader:
        yield reader


def arrays_in(batch: Any) -> Iterator[Any]:
    """The columns of a batch that are no objects, and the arrays in those that are."""
    for column in (
        batch.values()
        if isinstance(batch, dict)
        else batch
        if isinstance(batch, tuple)
        else [batch]
    ):
        if column.dtype == object:
            yield from (value for value in column.ravel().tolist() if isinstance(value, np.ndarray))
        else:
            yield column


def test_writing_into_batches_changes_neither_the_dataset_nor_other_batches(tmp_path: Path) -> None:
    for iterator in stored_sources(tmp_path):
        # in order as well, for a source may give a part of its own array for samples that follow
        # each other
        for shuffle in (False, True):
            expected = copy.deepcopy(list(loader(iterator, 6, shuffle=shuffle)))
            kept = list(loader(iterator, 6, shuffle=shuffle))
            for array in itertools.chain.from_iterable(map(arrays_in, kept[::2])):
                array[...] = 77

            assert_same(list(loader(iterator, 6, shuffle=shuffle)), expected)
            assert_same(kept[1::2], expected[1::2])


OWN = np.arange(24.0)
KEPT: list[Any] = []


def keeping(*columns: Any) -> Batch:
    KEPT.extend(columns)
    return tuple(columns)


def lent_to_a_tensor(indices: Any) -> Batch:
    made = np.zeros(len(indices))
    KEPT.append(torch.from_numpy(made))
    return (made,)


def objects_that_are_kept(indices: Any) -> Batch:
    return (object_column(*keeping(*[np.zeros(number % 3 + 1) for number in range(len(indices))])),)


ANSWERS: list[Callable[[Any], Batch]] = [
    lambda indices: OWN,
    lambda indices: (OWN[::-1],),
    lambda indices: (indices, indices),
    lambda indices: keeping(np.zeros(len(indices))),
    lambda indices: (np.zeros(len(indices)),) * 2,
    lambda indices: tuple(
        np.lib.stride_tricks.sliding_window_view(
            np.zeros(2 * len(indices)), len(indices), writeable=True
        )[:2]
    ),
    lent_to_a_tensor,
    objects_that_are_kept,
]


@pytest.mark.parametrize("number", range(len(ANSWERS)))
def test_no_array_that_a_client_keeps_is_handed_out(number: int) -> None:
    KEPT.clear()

    batches = list(loader(Answer(ANSWERS[number]), 24, epochs=2))

    handed_out = [array for batch in batches for array in arrays_in(batch)]
    kept = [OWN, *map(np.asarray, KEPT)]
    for place, array in enumerate(handed_out):
        assert array.flags.writeable
        assert not any(np.shares_memory(array, other) for other in [*kept, *handed_out[:place]])
