"""A stack explains itself as a tree: what it is made of, what that costs and keeps, and under which licences it stands."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import h5py
import numpy as np
import pytest
import torch

from data_stack.dataset.iterator import (
    CombinedDatasetIterator,
    DatasetIteratorIF,
    InformedDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.meta import DatasetMeta
from data_stack.formats.conversion import convert
from data_stack.formats.parquet import ParquetDataset
from data_stack.formats.records import RecordReader
from data_stack.show.explanation import explain

META = DatasetMeta(dataset_name="digits", dataset_tag="train")
ORIGIN = {"name": "digits", "version": "1.0.0", "split": "train", "license": "CC-BY-4.0"}


def source(n_samples: int = 1000) -> SequenceDatasetIterator:
    return SequenceDatasetIterator([np.zeros((n_samples, 8, 8), dtype=np.uint8), np.zeros(n_samples, dtype=np.int64)])


def dataset(n_samples: int = 1000, **origin: Any) -> InformedDatasetIterator:
    return InformedDatasetIterator(source(n_samples), META, origin=ORIGIN | origin)


class Client(DatasetIteratorIF):
    """As somebody wrote it against the original."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    def __len__(self) -> int:
        return len(self._iterator)

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("a sample was read")

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        return [self._iterator]


def test_a_stack_is_told_from_the_top_to_its_datasets() -> None:
    explanation = dataset().map(max, seed=7).skip(10).take(100).explain()

    assert str(explanation) == (
        "view(indices=range(0, 100))  100 samples\n"
        "│  dataset digits, train\n"
        "view(indices=range(10, 1000))  990 samples\n"
        "mapped(function=max, seed=7)  1,000 samples\n"
        "│  random: at_epoch changes it\n"
        "│  calls a Python function for each sample\n"
        "sequence  1,000 samples\n"
        "   dataset digits 1.0.0, train, licence CC-BY-4.0\n"
        "   keeps 72.1 kB in memory\n"
        "\n"
        "kept in memory: 72.1 kB\n"
        "licence CC-BY-4.0: digits 1.0.0, train"
    )


def test_explaining_reads_no_sample() -> None:
    explanation = Client(Client(dataset())).map(len).take(1).explain()

    assert [layer.layer for layer in explanation.layers] == ["view", "mapped", "Client", "Client", "sequence"]


def test_what_is_shared_is_counted_once() -> None:
    columns = source()._columns
    pair = CombinedDatasetIterator([SequenceDatasetIterator(list(columns)), SequenceDatasetIterator([columns[0][:5]])])
    tensor = torch.zeros(1000)
    views = CombinedDatasetIterator([SequenceDatasetIterator([tensor]), SequenceDatasetIterator([tensor[10:]])])

    of_arrays, of_tensors = explain(pair), explain(views)

    assert sum(layer.n_bytes for layer in of_arrays.layers[1:]) == pytest.approx(72_000, abs=500)
    assert sum(layer.n_bytes for layer in of_tensors.layers[1:]) == pytest.approx(4_000, abs=500)


def test_what_lies_in_files_counts_nothing(tmp_path: Any) -> None:
    np.save(tmp_path / "x.npy", np.zeros(1000))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.zeros(1000)

        explanation = explain(SequenceDatasetIterator([mapped, file["x"]]))

    assert explanation.n_bytes < 1000


def test_each_view_of_a_mapped_file_counts_nothing(tmp_path: Any) -> None:
    np.save(tmp_path / "x.npy", np.zeros((50, 1000)))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    views = [np.frombuffer(memoryview(mapped._mmap), offset=128), memoryview(mapped), list(mapped), mapped.view(np.ndarray)[3:]]
    convert(SequenceDatasetIterator([np.zeros((50, 1000))]).as_dict("x"), tmp_path / "records", progress=False)

    with RecordReader(tmp_path / "records") as reader:
        reader.read_batch(range(50))

        assert [SequenceDatasetIterator([each]).explain().n_bytes < 5_000 for each in views] == [True] * 4
        assert reader.explain().n_bytes < 20_000


@pytest.mark.parametrize("make", [np.zeros, torch.zeros])
def test_an_array_counts_once_as_a_whole_and_as_the_list_of_its_rows(make: Any) -> None:
    values = make((5000, 100), dtype=torch.float64 if make is torch.zeros else np.float64)

    whole, rows = (SequenceDatasetIterator([each]).explain().n_bytes for each in (values, list(values)))

    assert whole == pytest.approx(4_000_000, rel=0.05)
    assert rows == pytest.approx(4_000_000 + 8 * 5000, rel=0.05)


def test_rows_of_several_arrays_and_arrays_of_their_own_are_extrapolated() -> None:
    parts = [row for _ in range(60) for row in np.zeros((50, 100))]
    own = [np.zeros(100) for _ in range(3000)]
    halves = [row for _ in range(2) for row in np.zeros((3000, 100))]

    assert SequenceDatasetIterator([parts]).explain().n_bytes == pytest.approx(60 * 50 * 808, rel=0.1)
    assert SequenceDatasetIterator([halves]).explain().n_bytes == pytest.approx(6000 * 808, rel=0.1)
    assert SequenceDatasetIterator([own]).explain().n_bytes == pytest.approx(3000 * 808, rel=0.1)


def test_a_parquet_file_counts_what_is_kept_of_it(tmp_path: Any) -> None:
    rows = SequenceDatasetIterator([np.random.default_rng(0).random(100_000)]).as_dict("x")
    convert(rows, tmp_path / "x.parquet", progress=False)

    dataset = ParquetDataset(tmp_path / "x.parquet")
    assert dataset.explain().n_bytes < 50_000  # nothing was read
    dataset.read_batch(range(100_000))

    assert dataset.explain().n_bytes < 1_000_000


def test_arguments_are_shown_shortened_and_only_where_they_are_no_defaults() -> None:
    def halved(sample: Any) -> Any:
        return sample

    stack = dataset().map(halved).map(functools.partial(halved), batched=True).select(0, 1).as_dict("x" * 100, "y")

    arguments = [layer.arguments for layer in stack.explain().layers[:4]]

    assert arguments[0].startswith("names=['xxx")
    assert len(arguments[0]) < 100
    assert arguments[1] == "columns=[0, 1]"
    assert arguments[2].startswith("function=partial(test_arguments_are_shown")
    assert arguments[2].endswith("batched=True")
    assert arguments[3].startswith("function=test_arguments_are_shown")


def test_shared_iterators_are_drawn_once() -> None:
    shared = dataset(10)

    text = str(CombinedDatasetIterator([shared[:5], shared[5:]]).explain())

    assert text.count("licence CC-BY-4.0\n") == 1
    assert "├─ view(indices=range(0, 5))  5 samples" in text
    assert "│  [3] sequence  10 samples\n" in text
    assert "└─ view(indices=range(5, 10))  5 samples" in text
    assert "   [3] sequence  10 samples, as above" in text


def test_licences_of_parts_that_are_not_drawn_are_summed_up() -> None:
    parts = [dataset(2, name=f"d{i}", license="CC0-1.0" if i % 2 else None) for i in range(50)]

    explanation = CombinedDatasetIterator([*parts, source(3)]).explain()

    assert set(explanation.licenses) == {"CC0-1.0", None}
    assert len(explanation.licenses["CC0-1.0"]) == 25
    assert "licence CC0-1.0: d1 1.0.0, train, d3 1.0.0, train" in str(explanation)
    assert "… 5 more" in str(explanation)


def test_a_circle_is_explained() -> None:
    client = Client([1])
    client._iterator = CombinedDatasetIterator([client])

    text = str(explain(client))

    assert "[1] Client  1 sample, as above" in text


def test_a_notebook_shows_html_in_which_nothing_can_run() -> None:
    meta = replace(META, dataset_name="<script>alert(1)</script>")
    stack = InformedDatasetIterator(SequenceDatasetIterator([[1]]), meta).map(lambda sample: sample)

    shown = stack.explain()._repr_html_()

    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "mapped(function=test_a_notebook_shows_html_in_which_nothing_can_run.&lt;locals&gt;.&lt;lambda&gt;)" in shown
    ElementTree.fromstring(shown.replace("<br>", "<br/>").replace("<style scoped>", "<style>"))
