"""Columns are chosen before a file is opened, so that its other contents need not be columns."""

from __future__ import annotations

import io
import tarfile
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from torch_or_stand_in import torch

import data_stack
from data_stack.exception import ConfigError, DatasetFileCorruptError, LeftOutWarning
from data_stack.formats import convert
from data_stack.formats.hdf5 import HDF5DatasetIterator

_ARRAYS: dict[str, Any] = {
    "x_train": np.arange(12.0).reshape(6, 2),
    "y_train": np.arange(6),
    "x_test": np.zeros((3, 2)),
    "n_classes": np.array(10),
}


def write_npz(path: Path) -> None:
    np.savez(path, **_ARRAYS, names=np.array([None, "a"], object))


def write_h5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for name, array in _ARRAYS.items():
            file[name] = array
        file["caf"] = np.array(["café".encode("latin-1")])
        file["link"] = h5py.SoftLink("/x_train")
        layout = h5py.VirtualLayout((6,), "i8")
        layout[:] = h5py.VirtualSource("elsewhere.h5", "y", (6,))
        file.create_virtual_dataset("virtual", layout)


def write_pt(path: Path) -> None:
    tensors = {name: torch.tensor(array) for name, array in _ARRAYS.items()}
    torch.save({**tensors, "sparse": torch.eye(3).to_sparse()}, path)


def write_tar(path: Path) -> None:
    with tarfile.open(path, "w") as tar:
        for number in range(6):
            fields = {"x_train.npy": _ARRAYS["x_train"][number], "y_train.cls": number, "pkl": b""}
            for field, value in fields.items():
                data = io.BytesIO()
                if field.endswith(".npy"):
                    np.save(data, value)
                else:
                    data.write(value if isinstance(value, bytes) else str(value).encode())
                member = tarfile.TarInfo(f"{number}.{field}")
                member.size = data.tell()
                data.seek(0)
                tar.addfile(member, data)


def write_csv(path: Path) -> None:
    rows = [f'{number},{number},"[{number}, {number}]"' for number in range(6)]
    path.write_text("\n".join(["y_train,other,x_train", *rows, ""]))


def write_jsonl(path: Path) -> None:
    mixed = [1, "x", {}, None, 2, 3]
    rows = [f'{{"y_train": {number}, "mixed": {mixed[number]!r}}}' for number in range(6)]
    path.write_text("\n".join(rows).replace("'", '"').replace("None", "null"))


_WRITERS = {"a.npz": write_npz, "a.h5": write_h5, "a.pt": write_pt, "a.tar": write_tar}


@pytest.mark.parametrize("name", _WRITERS)
def test_chosen_columns_are_read_beside_others(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    _WRITERS[name](path)
    names = ["x_train.npy", "y_train.cls"] if name == "a.tar" else ["x_train", "y_train"]

    both = data_stack.load(path, columns=names)
    one = data_stack.load(path, columns=names[:1], target=names[1])

    assert len(both) == 6
    assert list(both[1]) == names
    assert both.read_column(names[0]).tolist() == _ARRAYS["x_train"].tolist()
    assert list(one[1]) == names[:1]
    assert data_stack.load(path, columns=names, target=names[1]).dataset_meta.target_pos == names[1]
    with (
        warnings.catch_warnings(),
        pytest.raises((ConfigError, DatasetFileCorruptError)),
    ):
        warnings.simplefilter("ignore", LeftOutWarning)  # links and numbers are no columns
        len(data_stack.load(path))


@pytest.mark.parametrize("name", _WRITERS)
def test_convert_reads_chosen_columns_beside_others(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    _WRITERS[name](path)

    report = convert(path, tmp_path / "out", columns={"x": "x_train", "y": "y_train"})

    assert report.n_samples == 6
    assert data_stack.load(tmp_path / "out").read_column("y").tolist() == list(range(6))


@pytest.mark.parametrize(("name", "write"), [("a.csv", write_csv), ("a.jsonl", write_jsonl)])
def test_chosen_columns_of_text_are_read_beside_others(
    tmp_path: Path, name: str, write: Any
) -> None:
    path = tmp_path / name
    write(path)

    rows = data_stack.load(path, columns=["y_train"])

    assert rows[1] == {"y_train": 1}
    assert data_stack.load(path, columns=["y_train"], filters=[("y_train", ">", 3)])[0] == {
        "y_train": 4
    }
    with pytest.raises(ConfigError, match=r"no column 'y_rain' \(did you mean 'y_train'\?\)"):
        data_stack.load(path, columns=["y_rain"])


@pytest.mark.parametrize("name", _WRITERS)
def test_a_column_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    _WRITERS[name](path)

    with pytest.raises((ConfigError, DatasetFileCorruptError), match="'x_tain'"):
        len(data_stack.load(path, columns=["x_tain"]))


def test_columns_of_several_lengths_are_refused_with_advice(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(3), y=np.zeros(3), z=np.zeros(2))
    np.savez(tmp_path / "b.npz", x=np.zeros(3), n=np.array(7))

    with pytest.raises(DatasetFileCorruptError, match=r"z: 2; .*columns=\['x', 'y'\]"):
        data_stack.load(tmp_path / "a.npz")
    with pytest.raises(DatasetFileCorruptError, match=r"'n' holds a single value.*columns="):
        data_stack.load(tmp_path / "b.npz")


def test_types_say_how_fields_of_shards_are_read(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar")

    rows = data_stack.load(tmp_path / "a.tar", types={"pkl": None, "cls": None})

    assert (rows[2]["pkl"], rows[2]["y_train.cls"]) == (b"", b"2")
    assert data_stack.load(tmp_path / "a.tar", types={"cls": None}, columns=["y_train.cls"])[2] == {
        "y_train.cls": b"2"
    }


def test_filters_choose_rows_of_parquet(tmp_path: Path) -> None:
    convert(
        data_stack.from_numpy({"n": np.arange(5), "t": np.array(list("abcde"))}),
        tmp_path / "p.parquet",
    )

    rows = data_stack.load(tmp_path / "p.parquet", filters=[("n", ">", 2)], columns=["t"])

    assert list(rows) == [{"t": "d"}, {"t": "e"}]


# ---------------------------------------------------------------------- text of HDF5


@pytest.mark.parametrize("is_fixed", [True, False])
def test_strings_of_hdf5_have_the_encoding_that_is_said(tmp_path: Path, is_fixed: bool) -> None:
    values = ["café".encode("latin-1"), b"tea", b"\xff"]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        if is_fixed:
            file["s"] = np.array(values)
        else:
            file.create_dataset("s", data=values, dtype=h5py.string_dtype("ascii"))
        file["utf8"] = np.array([text.encode() for text in ("é", "b", "c")])

    latin = data_stack.load(tmp_path / "a.h5", encoding="latin-1", columns=["s"])
    raw = HDF5DatasetIterator(tmp_path / "a.h5", ["s"], encoding=None)

    assert latin.read_column("s").tolist() == ["café", "tea", "ÿ"]
    assert [sample[0] for sample in raw] == values
    assert data_stack.load(tmp_path / "a.h5", columns=["utf8"])[0] == {"utf8": "é"}
    assert latin.windows(2)[0]["s"].tolist() == ["café", "tea"]
    assert latin.fingerprint() != raw.as_dict("s").fingerprint()
    with pytest.raises(
        DatasetFileCorruptError, match=r"'/s' holds strings that are not utf-8.*encoding='latin-1'"
    ):
        data_stack.load(tmp_path / "a.h5")
    with pytest.raises(ConfigError, match="no encoding 'latin-99'"):
        data_stack.load(tmp_path / "a.h5", encoding="latin-99")
