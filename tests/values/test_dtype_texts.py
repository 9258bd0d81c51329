"""Texts of dtypes that numpy would end the process at."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

import data_stack
from data_stack.codecs.codec import ColumnType
from data_stack.codecs.npy import read_npy
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.records import RecordWriter
from data_stack.values.dtype_texts import parse_dtype

REFUSED = ["M8[s/0]", "<m8[Y/00]", "datetime64[D/4]", "M8[0s]", "<m8[00Y]"]


@pytest.mark.parametrize("text", REFUSED)
def test_a_unit_with_a_divisor_or_no_length_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="divided unit of time"):
        parse_dtype(text)


@pytest.mark.parametrize("dtype", ["<f4", "datetime64[250ms]", np.int16, np.dtype("M8[D]")])
def test_other_dtypes_are_those_of_numpy(dtype: object) -> None:
    assert parse_dtype(dtype) == np.dtype(dtype)  # type: ignore[arg-type, call-overload]


@pytest.mark.parametrize(
    "descr", ["<M8[s/0]", ("<M8[s/0]", (2,)), [("a/b", "<i4"), ("t", [("u", "<m8[Y/0]")])]]
)
def test_a_header_of_npy_with_a_divisor_is_damage(descr: object) -> None:
    header = repr({"descr": descr, "fortran_order": False, "shape": (1,)}).encode()
    file = io.BytesIO(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64))

    with pytest.raises(DatasetFileCorruptError, match="divided unit of time"):
        read_npy(file)


def test_a_field_of_npy_may_contain_a_slash(tmp_path: Path) -> None:
    array = np.zeros(3, [("a/b", "<i4")])
    np.save(tmp_path / "fields.npy", array)

    with (tmp_path / "fields.npy").open("rb") as file:
        read = read_npy(file)

    assert read.dtype == array.dtype


def test_a_column_type_with_a_divisor_is_refused() -> None:
    with pytest.raises(ConfigError, match="invalid dtype"):
        ColumnType("array", "M8[s/0]", (2,))


def test_a_manifest_of_records_with_a_divisor_is_damage(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "set", {"x": "array"}) as writer:
        writer.append({"x": np.zeros(2, "M8[s]")})
    manifest = tmp_path / "set" / "manifest.json"
    text = manifest.read_text()
    assert "<M8[s]" in text
    manifest.write_text(text.replace("<M8[s]", "<M8[s/0]"))

    with pytest.raises(DatasetFileCorruptError):
        data_stack.load(str(tmp_path / "set"), split="all")


def test_an_option_of_arrays_with_a_divisor_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(bytes(64))

    with pytest.raises(ConfigError, match="divided unit of time"):
        data_stack.load(str(tmp_path / "x.bin"), dtype="M8[s/0]")
