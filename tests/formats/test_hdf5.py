"""HDF5 files: rows and strings, links that lead elsewhere, absurd sizes, threads and workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from process_harness import run_python
from sizes import sized

import data_stack
from data_stack.exception import DatasetFileCorruptError, LeftOutWarning
from data_stack.formats import convert
from data_stack.formats.hdf5 import HDF5DatasetIterator, dataset_keys
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors import InMemoryStorageConnector, StorageConnector


def stored(store: StorageConnector, fill: Callable[[h5py.File], Any], **options: Any) -> Any:
    with store.create("data.h5") as file, h5py.File(file, "w", **options) as h5:
        fill(h5)
    return store.get_resource("data.h5")


@pytest.mark.parametrize("dtype", [h5py.string_dtype(), h5py.string_dtype(length=20)])
def test_text_is_decoded(store: StorageConnector, dtype: Any) -> None:
    texts = ["", "naïve", "日本"]
    values = np.array([text.encode() for text in texts], dtype=object).astype(dtype)

    iterator = HDF5DatasetIterator(
        stored(store, lambda h5: h5.create_dataset("t", data=values, dtype=dtype)), ["t"]
    )

    assert [text for (text,) in iterator] == texts
    assert iterator.read_column(0, [2, 0, 2]).tolist() == ["日本", "", "日本"]


def test_datasets_are_listed_without_following_loops_or_links(
    store: StorageConnector,
) -> None:
    def fill(h5: h5py.File) -> None:
        h5["b/c"], h5["a"] = [1], [2]
        h5["b/up"] = h5["/"]
        h5["elsewhere"] = h5py.ExternalLink("/etc/passwd", "/")
        h5["soft"] = h5py.SoftLink("/a")

    assert dataset_keys(stored(store, fill)) == ["a", "b/c"]


@pytest.fixture
def hostile(store: StorageConnector, tmp_path: Path) -> Any:
    """A file with all ways that could lead to a secret in another file, circles, and what is no
    column.
    """
    secret = str(tmp_path / "secret.h5")
    with h5py.File(secret, "w") as h5:
        h5["g/secret"] = [42]

    def fill(h5: h5py.File) -> None:
        h5["data"] = h5py.ExternalLink(secret, "/g/secret")
        h5["x/y"] = h5py.ExternalLink(secret, "/g")
        h5["root"] = h5py.ExternalLink(secret, "/")
        h5["soft"], h5["x/relative"] = h5py.SoftLink("/x/y/secret"), h5py.SoftLink("y/secret")
        h5.create_dataset("external", (8,), "u1", external=[(secret, 0, 8)])
        layout = h5py.VirtualLayout((1,), "i8")
        layout[:] = h5py.VirtualSource(secret, "g/secret", (1,))
        h5.create_virtual_dataset("virtual", layout)
        h5["a"] = h5py.SoftLink("/a")
        h5["group/scalar"], h5["group/empty"] = 5, h5py.Empty("f4")
        h5.create_dataset("group/reference", data=[h5["group"].ref], dtype=h5py.ref_dtype)

    return stored(store, fill, libver="latest")


NO_COLUMNS = [
    "group",
    *(f"group/{name}" for name in ("scalar", "scalar/x", "empty", "reference")),
    "no",
    "",
]
ELSEWHERE = ["data", "x/y/secret", "root/g/secret", "soft", "x/relative", "external", "virtual"]


@pytest.mark.parametrize("key", [*ELSEWHERE, "a", *NO_COLUMNS])
def test_links_loops_and_what_is_no_column_are_refused(hostile: StreamedResource, key: str) -> None:
    with pytest.raises(DatasetFileCorruptError):
        len(HDF5DatasetIterator(hostile, [key]))


@pytest.mark.parametrize(
    ("shape", "chunk", "options", "message"),
    [
        (1 << 40, 1 << 16, {}, "max_expansion=None"),
        (1 << 31, 1 << 31, {}, "max_expansion=None"),
        (1 << 31, 1 << 31, {"max_expansion": None}, "chunks of more than"),
    ],
)
def test_sizes_that_are_not_stored_and_huge_chunks_are_refused(
    store: StorageConnector, shape: int, chunk: int, options: Any, message: str
) -> None:
    resource = stored(store, lambda h5: h5.create_dataset("a", (shape,), "u1", chunks=(chunk,)))

    with pytest.raises(DatasetFileCorruptError, match=message):
        len(HDF5DatasetIterator(resource, ["a"], **options))


def test_a_file_truncated_anywhere_is_an_error(tmp_path: Path) -> None:
    store = InMemoryStorageConnector()
    data = stored(store, lambda h5: h5.create_dataset("a", data=np.arange(50))).read()

    for end in range(0, len(data), sized(61, 7)):
        store.set_resource("cut.h5", [data[:end]])
        with pytest.raises(DatasetFileCorruptError):
            HDF5DatasetIterator(store.get_resource("cut.h5"), ["a"]).read_column(0)


def test_a_process_whose_store_failed_ends_as_it_should() -> None:
    program = """
import io, h5py
from data_stack.exception import StorageError
from data_stack.formats.hdf5 import HDF5DatasetIterator
from data_stack.io.resources import StreamedResource

class Failing(StreamedResource):
    def read_at(self, offset, size):
        raise StorageError("the server is gone")

buffer = io.BytesIO()
with h5py.File(buffer, "w") as file:
    file["a"] = [1]
try:
    len(HDF5DatasetIterator(Failing("data.h5", buffer), ["a"]))
except StorageError:
    print("said so")
"""
    assert run_python("-c", program)[0] == "said so\n"


# ------------------------------------------------------------------ what is left out


def write_frame(root: Any, name: str, *, n_rows: int) -> None:
    """What ``pandas.DataFrame.to_hdf(path, key=name)`` writes."""
    group = root.create_group(name)
    group.attrs["pandas_type"] = "frame"
    group["axis0"] = group["block0_items"] = np.array([b"a", b"b"])
    group["axis1"] = np.arange(n_rows)
    group["block0_values"] = np.ones((n_rows, 2))


@pytest.mark.parametrize("n_rows", [2, 5])
def test_a_store_of_pandas_is_refused_by_its_reader(n_rows: int, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "frames.h5", "w") as file:
        write_frame(file, "deep/df", n_rows=n_rows)

    for read in (data_stack.load, dataset_keys):
        with pytest.raises(DatasetFileCorruptError, match=r"pandas\.read_hdf\(path, 'deep/df'\)"):
            read(tmp_path / "frames.h5")
    with pytest.raises(DatasetFileCorruptError, match="read_hdf"):
        convert(tmp_path / "frames.h5", tmp_path / "out.npz")


def test_arrays_beside_a_frame_are_read_with_a_warning(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "both.h5", "w") as file:
        file["x"] = np.arange(3)
        write_frame(file, "df", n_rows=2)

    with pytest.warns(LeftOutWarning, match="'df'.*pandas"):
        loaded: Any = data_stack.load(tmp_path / "both.h5")

    assert [int(sample["x"]) for sample in loaded] == [0, 1, 2]


def test_links_are_left_out_by_name(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "links.h5", "w") as file:
        file["group/x"] = np.arange(3)
        file["soft"] = h5py.SoftLink("/group/x")
        file["group/out"] = h5py.ExternalLink("other.h5", "/x")

    with pytest.warns(LeftOutWarning, match=r"'soft', 'group/out' \(a link"):
        data_stack.load(tmp_path / "links.h5")
    assert dataset_keys(tmp_path / "links.h5") == ["group/x"]
