"""Each writer with values of each type: they come back exactly equal, or an error of ours says which cannot be stored."""

from __future__ import annotations

import datetime
import io
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exact_values import meaning

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.conversion import convert
from data_stack.formats.conversion.formats import format_named
from data_stack.formats.torch_tensors import TorchDatasetIterator
from data_stack.io.location import location_of
from data_stack.io.resources import ResourceFactory, StreamedResource

_RECORD = np.dtype([("a", "<i8"), ("b", "<f8")])
MANY = 40  # more than are looked at to tell what a column holds


def columns_of_numpy() -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {"bool": [np.bool_(True), np.bool_(False)], "bools": [np.array([True, False])] * 2}
    for name in ("int8", "uint16", "int32", "int64", "uint64"):
        dtype = np.dtype(name)
        ends = [np.iinfo(dtype).min, np.iinfo(dtype).max]
        columns |= {name: [dtype.type(end) for end in ends], f"{name}s": [np.array(ends, dtype), np.array([0, 1], dtype)]}
    for name in ("float16", "float64", "clongdouble"):
        dtype = np.dtype(name)
        values = [dtype.type(1) / dtype.type(3), dtype.type("nan"), dtype.type(-0.0)]
        columns |= {name: values, f"{name}s": [np.array([value, value]) for value in values]}
    for kind in "Mm":
        for unit in ("D", "ns", "as"):
            dtype = np.dtype(f"{kind}8[{unit}]")
            columns |= {
                dtype.str: [np.array(3, dtype)[()], np.array(-5, dtype)[()]],
                f"{dtype.str}s": [np.array([3, 4], dtype)] * 2,
            }
            columns[f"missing {dtype.str}"] = [np.array(3, dtype)[()], np.array("NaT", dtype)[()]]
    return columns


COLUMNS: dict[str, list[Any]] = {
    **columns_of_numpy(),
    "times of several units": [np.datetime64("9999-12-31", "D"), np.datetime64(1, "ns"), np.datetime64(2, "s")],
    "integers": [1, -(2**63), 2**63 - 1],
    "unsigned integers": [1, 2**63, 2**64 - 1],
    "large integers": [1, 2**70],
    "a late unsigned integer": [1] * MANY + [2**63 + 5],
    "a late None": [1] * MANY + [None],
    "a late Decimal": ["a"] * MANY + [Decimal("0.1")],
    "complex numbers": [1j, 2, 0j],
    "nothing": [None, None],
    "Decimals": [Decimal("0.10"), Decimal("1E+5"), Decimal("-0"), Decimal("123456789012345678901234567890.5")],
    "datetimes": [datetime.datetime(2020, 1, 2, 3, 4, 5, 6)] * 2,
    "lists of text": [["a\0", "b"]] * 2,
    "dicts": [{"a": 1}] * 2,
    "records": [np.array((1, 0.5), _RECORD)[()]] * 2,
    "masked arrays": [np.ma.array([1, 2], mask=[False, True])] * 2,
    "arrays of objects": [np.array([1, None], dtype=object)] * 2,
    "arrays of several dtypes": [np.array([1], np.uint64), np.array([-1], np.int64)],
    "big-endian arrays": [np.array([1, 2], ">i4")] * 2,
    "arrays of no dimension": [np.array(5)] * 2,
    "tensors": [torch.tensor([1, 2])] * 2,
    "bfloat16": [torch.tensor([1.5, 2], dtype=torch.bfloat16)] * 2,
    "sparse tensors": [torch.ones(2).to_sparse()] * 2,
}


def resource(path: Path) -> StreamedResource:
    opened: StreamedResource = ResourceFactory.get_resource(path.name, io.BytesIO(path.read_bytes()))
    return opened


TARGETS = {
    "records": "out",
    "webdataset": "out.tar",
    "hdf5": "out.h5",
    "npz": "out.npz",
    "torch": "out.pt",
    "parquet": "out.parquet",
    "images": "images",
}


@pytest.mark.parametrize("target", TARGETS)
def test_what_was_verified_is_read_back_and_what_is_refused_leaves_nothing(tmp_path: Path, target: str) -> None:
    stored: list[str] = []
    for name, values in COLUMNS.items():
        path = tmp_path / TARGETS[target]
        pictures = [np.zeros((2, 2, 3), np.uint8)] * len(values)
        iterator = SequenceDatasetIterator([values, pictures]).as_dict("x", "image")
        columns = None if target == "images" else "x"
        try:
            convert(iterator, path, target_format=target, columns=columns)
        except ConfigError:
            assert not path.exists(), name
            continue
        stored.append(name)
        source = format_named(target).open(location_of(path))
        found = source.read(np.arange(len(values)), ["x"])["x"]
        source.resources.close()
        path.rename(tmp_path / f"{len(stored)}{path.suffix}")
        assert [meaning(each) for each in found] == [meaning(each) for each in values], (name, found)
    assert "int64" in stored
    assert "uint64" in stored
    assert "Decimals" not in stored


# ---------------------------------------------------------------------- tensors of several kinds


@pytest.mark.filterwarnings("ignore:.*quantize:UserWarning", "ignore:.*Sparse:UserWarning", "ignore:TypedStorage:UserWarning")
@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (lambda: torch.eye(3).to_sparse(), "sparse coo"),
        (lambda: torch.eye(3).to_sparse_csr(), "sparse csr"),
        (lambda: torch.quantize_per_tensor(torch.ones(3, 2), 0.1, 0, torch.qint8), "quantized"),
    ],
)
def test_sparse_and_quantized_tensors_are_refused_with_their_file_and_kind(
    tmp_path: Path, made: Callable[[], torch.Tensor], kind: str
) -> None:
    torch.save(made(), tmp_path / "weights.pt")
    iterator = TorchDatasetIterator([resource(tmp_path / "weights.pt")])

    with pytest.raises(DatasetFileCorruptError, match=rf"'weights.pt' holds a {kind} tensor.* save tensor\."):
        iterator.read_batch([0])
