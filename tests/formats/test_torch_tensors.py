"""Tensor files: round trips with torch, damage, code in pickles, and writing without holding."""

from __future__ import annotations

import copy
import io
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from archives import zip_of
from hypothesis import given
from hypothesis import strategies as st
from sizes import sized

import data_stack
from data_stack.exception import ConfigError, DatasetFileCorruptError, LeftOutWarning
from data_stack.formats.torch_tensors import TensorsDatasetIterator, load_tensors, write_tensor


def written(tensor: torch.Tensor) -> io.BytesIO:
    file = io.BytesIO()
    write_tensor(
        file,
        tensor.numpy()[np.newaxis] if not tensor.dim() else tensor.numpy(),
        shape=tensor.shape,
        dtype=tensor.numpy().dtype,
    )
    file.seek(0)
    return file


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int64, torch.float16, torch.float32, torch.bool]
)
@given(shape=st.lists(st.integers(0, 5), min_size=0, max_size=4))
def test_plain_torch_loads_what_was_written_in_blocks(dtype: torch.dtype, shape: list[int]) -> None:
    tensor = (torch.arange(int(np.prod(shape))) % 2).reshape(shape).to(dtype)

    loaded = torch.load(written(tensor))

    assert (loaded.dtype, loaded.shape, loaded.stride()) == (
        tensor.dtype,
        tensor.shape,
        tensor.stride(),
    )
    assert torch.equal(loaded, tensor)
    assert torch.equal(load_tensors(written(tensor)), tensor)


@pytest.mark.parametrize("n_rows", [1, 3])
def test_blocks_that_do_not_add_up_are_refused(n_rows: int) -> None:
    with pytest.raises(ValueError, match="the blocks have"):
        write_tensor(io.BytesIO(), [np.zeros((n_rows, 2))], shape=(2, 2), dtype=np.float32)


def test_a_file_cut_anywhere_is_refused() -> None:
    data = written(torch.arange(3)).getvalue()

    for end in range(0, len(data), sized(7, 1)):
        with pytest.raises(DatasetFileCorruptError):
            load_tensors(io.BytesIO(data[:end]))


class Marker:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.folder),)


def zipped(pickled: bytes) -> bytes:
    return zip_of(
        {"archive/data.pkl": pickled, "archive/version": b"3\n", "archive/byteorder": b"little"}
    )


@pytest.mark.parametrize("container", [bytes, zipped])
def test_code_in_a_pickle_is_not_run(container: Callable[[bytes], bytes], tmp_path: Path) -> None:
    folder = tmp_path / "executed"

    with pytest.raises(DatasetFileCorruptError):
        load_tensors(io.BytesIO(container(pickle.dumps(Marker(folder), protocol=2))))

    assert not folder.exists()


@pytest.mark.parametrize(
    "operations",
    [b"K\x01Q", b"NQ", b")Q", b"X\x01\x00\x00\x00aQ", b"K\x01K\x02\x86Q", b"Ptext\n", b"."],
)
def test_a_pickle_that_names_no_storage_is_refused(operations: bytes) -> None:
    # torch asserts that the name of a storage is a tuple.
    with pytest.raises(DatasetFileCorruptError):
        load_tensors(io.BytesIO(zipped(b"\x80\x02" + operations + b".")))


@pytest.mark.parametrize(
    ("made", "size"),
    [
        (b"__builtin__\nbytearray", 6_400_000_000),
        (b"torch\nFloatTensor", 1_600_000_000),
        (b"torch.storage\nUntypedStorage", 6_400_000_000),
    ],
)
def test_what_makes_room_for_what_is_not_there_is_refused(made: bytes, size: int) -> None:
    pickled = b"\x80\x02c" + made + b"\n\x8a\x08" + size.to_bytes(8, "little") + b"\x85R."

    with pytest.raises(DatasetFileCorruptError, match=made.split(b"\n")[1].decode()):
        load_tensors(io.BytesIO(zipped(pickled)))


def test_lists_that_share_lists_are_walked_once() -> None:
    shared: list[Any] = [torch.arange(3)]
    for _ in range(60):  # 2 ** 60 ways lead to the tensor
        shared = [shared, shared]
    file = io.BytesIO()
    torch.save(shared, file)

    loaded = load_tensors(file)

    assert loaded[0] is loaded[1]


def test_tensors_on_the_same_bytes_of_a_file_are_refused() -> None:
    file = io.BytesIO()
    torch.save(torch.zeros(1000), file)
    with zipfile.ZipFile(file, "a") as archive:
        for number in range(1, 100):
            again = copy.copy(archive.getinfo("archive/data/0"))
            again.filename = f"archive/data/{number}"
            archive.filelist.append(again)
        archive.comment = b"changed"

    with pytest.raises(DatasetFileCorruptError, match="the same bytes for several tensors"):
        load_tensors(file)


def test_a_tensor_that_claims_more_than_is_stored_is_refused() -> None:
    file = io.BytesIO()
    torch.save(torch.zeros(1).expand(1 << 28), file)

    with pytest.raises(DatasetFileCorruptError, match="bytes on fewer"):
        load_tensors(file)


def test_a_compressed_container_is_refused() -> None:
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(written(torch.zeros(1000))) as source,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            target.writestr(name, source.read(name))

    with pytest.raises(DatasetFileCorruptError, match="compressed"):
        load_tensors(packed)


def test_only_tensors_with_rows_are_columns() -> None:
    file = io.BytesIO()
    torch.save({"a": torch.ones(2, 3), "s": torch.tensor(1)}, file)

    assert TensorsDatasetIterator(file, ["a"])[1][0].tolist() == [1, 1, 1]
    with pytest.raises(DatasetFileCorruptError, match="has no tensor 's' with rows"):
        len(TensorsDatasetIterator(file, ["s"]))


@pytest.mark.filterwarnings(
    "ignore:.*quantize:UserWarning",
    "ignore:.*Sparse:UserWarning",
    "ignore:TypedStorage:UserWarning",
)
@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (lambda: torch.eye(3).to_sparse(), "sparse coo"),
        (lambda: torch.eye(3).to_sparse_csr(), "sparse csr"),
        (lambda: torch.quantize_per_tensor(torch.ones(3, 2), 0.1, 0, torch.qint8), "quantized"),
    ],
)
def test_sparse_and_quantized_tensors_are_refused_with_file_and_kind(
    tmp_path: Path, made: Callable[[], torch.Tensor], kind: str
) -> None:
    torch.save(made(), tmp_path / "weights.pt")
    iterator = TensorsDatasetIterator(tmp_path / "weights.pt", [0])

    with pytest.raises(
        DatasetFileCorruptError, match=rf"weights.pt' holds a {kind} tensor.* save tensor\."
    ):
        iterator.read_batch([0])


def test_entries_that_are_no_columns_are_named(tmp_path: Path) -> None:
    torch.save(
        {"x": torch.ones(3, 2), "names": ["a", "b"], "scale": torch.tensor(2.0)}, tmp_path / "a.pt"
    )

    with pytest.warns(LeftOutWarning, match=r"2 of .*'names', 'scale' .no tensor with one row"):
        loaded: Any = data_stack.load(tmp_path / "a.pt")

    assert list(loaded[0]) == ["x"]
    data_stack.load(tmp_path / "a.pt", columns=["x"])


def test_two_entries_of_one_column_name_are_refused(tmp_path: Path) -> None:
    torch.save({0: torch.zeros(2), "column_0": torch.ones(2)}, tmp_path / "a.pt")

    with pytest.raises(ConfigError, match="arrays 0 and 'column_0' would both be column"):
        data_stack.load(tmp_path / "a.pt")
