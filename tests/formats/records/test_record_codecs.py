"""Codecs of numbers, text, arrays and trees: what they hold comes back, in Granular's bytes."""

from __future__ import annotations

import pickle
import struct
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import granular
import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from data_stack import codecs
from data_stack.codecs import (
    ArrayCodec,
    Codec,
    ColumnType,
    FixedLayout,
    FunctionCodec,
    IntCodec,
    JsonCodec,
    ZstdCodec,
    codec_of,
)
from data_stack.exception import ConfigError, DataStackError
from data_stack.formats.records import RecordReader, RecordWriter
from data_stack.testing import CodecContract
from data_stack.testing.comparing import assert_same

DTYPES = (
    nps.scalar_dtypes() | nps.byte_string_dtypes(min_len=1) | nps.unicode_string_dtypes(min_len=1)
)
ARRAYS = DTYPES.flatmap(
    lambda dtype: nps.arrays(
        dtype, nps.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
    )
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=9),
    st.binary(max_size=9),
)
TREES = st.recursive(
    SCALARS,
    lambda parts: st.one_of(
        st.lists(parts, max_size=4),
        st.dictionaries(st.one_of(st.text(max_size=4), st.integers(-5, 5)), parts, max_size=4),
    ),
    max_leaves=12,
)
SAMPLES: dict[str, Any] = {
    "bytes": b"\x00\x01bytes",
    "utf8": "größer",
    "int": 70_000,
    "i64": -5,
    "u64": 2**64 - 1,
    "msgpack": {"a": [1, 2.5, None, True, b"x"], "b": {"c": "d" * 40}},
    "array": np.arange(300, dtype=np.int16).reshape(3, 100),
    "tree": {"x": np.arange(6.0).reshape(2, 3), "y": ["z", {"w": np.array(7, np.uint8)}]},
    "json": {"a": [1, 2.5, None, True], "b": "ü"},
    "npy": np.arange(12, dtype=">f4").reshape(3, 4),
    "zstd(array)": np.arange(300, dtype=np.int16).reshape(3, 100),
}


class TestCodecs(CodecContract):
    @pytest.fixture(params=SAMPLES)
    def codec(self, request: pytest.FixtureRequest) -> Codec:
        return codec_of(request.param)

    @pytest.fixture
    def values(self, codec: Codec) -> list[Any]:
        return [SAMPLES[codec.type_name]]


# ---------------------------------------------------------------------- Granular's bytes


@given(value=st.integers(-(2**127), 2**127 - 1))
def test_integers_come_back_and_granular_reads_them(value: int) -> None:
    codec = codec_of("int")

    record = codec.encode(value)

    assert codec.decode(record) == granular.decoders["int"](record) == value
    assert len(record) == 1 or not -(2 ** (8 * len(record) - 9)) <= value < 2 ** (
        8 * len(record) - 9
    )


@given(value=st.integers(-(2**63), 2**64 - 1))
def test_integers_of_64_bits_are_taken_where_they_fit(value: int) -> None:
    for kind, low, high in (("i64", -(2**63), 2**63), ("u64", 0, 2**64)):
        if low <= value < high:
            record = codec_of(kind).encode(value)
            assert record == granular.encoders[kind](value)
            assert codec_of(kind).decode(record) == value
        else:
            with pytest.raises(OverflowError, match=f"a column of {kind} cannot store"):
                codec_of(kind).encode(value)


@given(array=ARRAYS)
def test_arrays_keep_their_dtype_shape_and_values(
    array: np.ndarray[Any, Any],
) -> None:
    for kind in ("array", "npy"):
        codec = codec_of(kind)

        record = codec.encode(array)
        found = codec.decode(record)

        assert_same(found, np.ascontiguousarray(array).reshape(array.shape))
        assert found.flags.writeable
        layout = FixedLayout(record[: len(record) - array.nbytes], array.dtype, array.shape)
        assert (
            codec.layout_of(record)
            == codec.derive_layout(ColumnType(kind, array.dtype, array.shape))
            == layout
        )
        assert layout.record_bytes == len(record)
        if kind == "array" and array.dtype.kind not in "mM":
            assert record == granular.encoders[kind](
                np.ascontiguousarray(array).reshape(array.shape)
            )
            assert_same(granular.decoders[kind](record), found)


@pytest.mark.parametrize(
    "value",
    [
        np.array([{}, None], object), np.zeros(2, "i4,f4"), np.ma.masked_array([1, 2], [False, True]), "text", b"bytes",
        [1, "a", None],
        [[1], [2, 3]], {"a": 1}, 2**70, *(np.array(["a"], kind()) for kind in [getattr(np.dtypes, "StringDType", None)] if kind),
    ],
)  # fmt: skip
def test_arrays_that_would_lose_something_are_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        codec_of("array").encode(value)
    if isinstance(value, np.ndarray):
        with pytest.raises((TypeError, ValueError)):
            codec_of("tree").encode({"a": [value]})


@pytest.mark.parametrize(
    ("dtype", "shape", "values"),
    [
        ("<i4", [2], bytes(7)), ("<i4", [2**62, 2**62], b""), ("<i4", [-2], bytes(8)), ("<i4", [2.0], bytes(8)),
        ("<i4", 2, bytes(8)), ("<i4", [1] * 65, bytes(4)), ("<i4", [0, 2**64 - 1], b""),
        ("|O", [1], bytes(8)), ("<i4,<i4", [1], bytes(8)), ("(2,)i4", [1], bytes(8)),
        ("|S0", [5], b""), ("|V0", [2**60], b""), ("<M8[foo]", [1], bytes(8)),
        ("<U1", [2], b"\xff" * 8), ("|b1", [2], b"\x00\x02"),
        ("<U99999999999", [1], b""), (4, [1], b"1234"), ("<i4", [1], "1234"), ("<i4", {1: 1}, bytes(4)),
    ],
)  # fmt: skip
def test_records_that_are_no_arrays_are_refused(dtype: Any, shape: Any, values: Any) -> None:
    record = msgpack.packb([dtype, shape, values])

    with pytest.raises(ValueError, match=r".") as refused:
        codec_of("array").decode(record)
    assert not isinstance(refused.value, msgpack.UnpackException)
    layout = codec_of("array").layout_of(record)
    assert layout is None or layout.dtype.kind in "Ub"
    assert not isinstance(
        codec_of("tree").decode(msgpack.packb(["_", dtype, shape, values]))
        if layout is None
        else [],
        np.ndarray,
    )


# ---------------------------------------------------------------------- trees


@given(array=ARRAYS.filter(lambda array: array.dtype.kind not in "mM"), value=TREES)
def test_trees_with_arrays_have_the_bytes_of_granular(
    array: np.ndarray[Any, Any], value: Any
) -> None:
    array = np.ascontiguousarray(array).reshape(array.shape)
    tree = {"a": array, "b": [value, [array, array]], 3: "c"}

    record = codec_of("tree").encode(tree)

    assert_same(codec_of("tree").decode(record), tree)
    assert record == granular.encoders["tree"](tree)


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        object(),
        datetime(2020, 1, 1, tzinfo=timezone.utc),
        1j,
        np.datetime64("2020-01-01", "ns"),
        [2**64],
        np.void(b"a"),
    ],
)
def test_what_is_no_tree_is_refused(value: Any) -> None:
    for kind in ("msgpack", "tree", "json"):
        if kind != "json" or type(value) is not list:
            with pytest.raises((TypeError, OverflowError)):
                codec_of(kind).encode(value)
    with pytest.raises(TypeError, match="the type tree"):
        codec_of("msgpack").encode([np.arange(3)])
    with pytest.raises(TypeError, match="the type tree holds"):
        codec_of("json").encode([np.arange(3)])


HOSTILE = {
    "claims": b"\xdd\xff\xff\xff\xff",
    "claims_text": b"\xdb\xff\xff\xff\xffabc",
    "nested_claims": b"\xdd\x00\x01\x00\x00" * 1000 + bytes(70_000),
    "nested": b"\x91" * 100_000,
    "nested_dicts": b"\x81\xa1a" * 100_000,
    "nested_and_closed": b"\x91" * 1020 + b"\x01",
    "list_as_key": b"\x81\x90\x01",
    "extra": b"\x01\x02",
    "none": b"",
    "never": b"\xc1",
    "short_timestamp": b"\xd4\xff\x00",
    "no_utf8": b"\xa1\xff",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("kind", ["msgpack", "tree", "array"])
def test_hostile_msgpack_is_refused_within_little_memory(kind: str, name: str) -> None:
    if kind != "array" and name == "nested_and_closed":
        depth, value = 0, codec_of(kind).decode(HOSTILE[name])
        while isinstance(value, list):
            depth, value = depth + 1, value[0]
        assert depth == 1020
    else:
        with pytest.raises(ValueError, match=r"."):
            codec_of(kind).decode(HOSTILE[name])


def test_what_is_nested_too_deeply_is_refused() -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value]

    for kind in ("msgpack", "tree", "json"):
        with pytest.raises(ValueError, match=r"nest|recursion"):
            codec_of(kind).encode(value)
    with pytest.raises(ValueError, match="nested too deeply"):
        codec_of("json").decode(b"[" * 100_000)


# ---------------------------------------------------------------------- JSON, text, bytes


def test_json_refuses_what_it_would_change() -> None:
    for wrong in ({1: 2}, [{"a": {None: 1}}], b"bytes", float("nan"), [float("inf")], "\ud800"):
        with pytest.raises((TypeError, ValueError)):
            codec_of("json").encode(wrong)
    for record in (
        b"NaN",
        b"[-Infinity]",
        b"1e999",
        b"1e-999",
        b"\xff",
        b"{",
        b"1 2",
        b"",
        b"9" * 5000,
    ):
        with pytest.raises(ValueError, match=r"."):
            codec_of("json").decode(record)
    assert codec_of("json").decode(
        codec_of("json").encode((np.float32(0.5), np.int64(3), np.bool_(True)))
    ) == [0.5, 3, True]


def test_npy_records_are_npy_files_without_pickle() -> None:
    array = np.array([(1, 2.5)], [("a", "<i4"), ("b", "<f8")])

    assert_same(codec_of("npy").decode(codec_of("npy").encode(array)), array)
    for wrong in (np.array([{}]), np.ma.masked_array([1], [True])):
        with pytest.raises((TypeError, ValueError)):
            codec_of("npy").encode(wrong)
    pickled = b"\x93NUMPY\x01\x00" + struct.pack("<H", 60)
    pickled += (
        b"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}".ljust(59)
        + b"\n"
        + pickle.dumps([print])
    )
    with pytest.raises(DataStackError, match="Python objects"):
        codec_of("npy").decode(pickled)
    with pytest.raises(ValueError, match="must have 140 bytes"):
        codec_of("npy").decode(codec_of("npy").encode(array) + b"x")
    fortran = np.asfortranarray(np.arange(6).reshape(2, 3))
    record = (
        codec_of("npy")
        .encode(fortran)
        .replace(b"'fortran_order': False", b"'fortran_order': True ")
    )
    assert codec_of("npy").decode(record).tolist() == fortran.ravel().reshape(3, 2).T.tolist()
    assert codec_of("npy").layout_of(record) is None


# ---------------------------------------------------------------------- zstd


def test_a_compressed_record_that_unpacks_to_too_much_is_refused() -> None:
    codec = codec_of("zstd(bytes)")
    record = codec.encode(bytes(50_000_000))
    small = ZstdCodec(codec_of("bytes"), max_bytes=40_000_000)

    assert len(record) < 10_000
    assert codec.decode(record) == bytes(50_000_000)  # 10,000 times as much
    with pytest.raises(ValueError, match="unpacks to more than max_bytes=40000000"):
        small.decode(record)
    with pytest.raises(ValueError, match="more than max_bytes"):
        small.encode(bytes(50_000_000))


# ---------------------------------------------------------------------- which codec


def upper(text: str) -> bytes:
    return text.upper().encode()


def lower(record: bytes) -> str:
    return record.decode().lower()


def test_a_users_codecs_go_before_those_that_are_built_in() -> None:
    own: dict[str, Any] = {
        "utf8": (upper, lower),
        "int": IntCodec(signed=False),
        "raw": None,
        "half": (upper, None),
    }

    assert codec_of("utf8", own).encode("a") == b"A"
    assert codec_of("zstd(utf8)", own).decode(codec_of("zstd(utf8)", own).encode("a")) == "a"
    assert codec_of("int", own).decode(b"\xff") == 255
    assert codec_of("raw[]", own).decode(codec_of("raw", own).encode(bytearray(b"x"))) == b"x"
    assert codec_of("half", own).decode(b"A") == b"A"
    assert codec_of("json", own) == JsonCodec()
    assert codec_of("zstd(json)", {"zstd(json)": ZstdCodec(JsonCodec(), level=19)}) == ZstdCodec(
        JsonCodec(), level=19
    )
    pair = codec_of("utf8", own)
    assert pickle.loads(pickle.dumps(pair)) == pair == FunctionCodec(upper, lower)


@pytest.mark.parametrize(
    "name",
    ["utf-8", "zstd(utf-8)", "zstd()", "zstd", "", "zstd(" * 50 + "json" + ")" * 50, "x" * 100_000],
)
def test_an_unknown_type_is_told_with_the_known_ones(name: str) -> None:
    with pytest.raises(
        ConfigError, match=r"unknown column type .*array, bmp, bytes, flac"
    ) as refused:
        codec_of(name, {"mine": None})
    assert len(str(refused.value)) < 900
    assert "mine" in str(refused.value)
    assert name != "utf-8" or "did you mean 'utf8'?" in str(refused.value)


@pytest.mark.parametrize(
    ("codec_class", "options"),
    [
        ("ZstdCodec", {"inner": 5}), ("ZstdCodec", {"inner": JsonCodec(), "level": 23}),
        ("JpgCodec", {"quality": 101}), ("JpgCodec", {"mode": "CMYK"}), ("PngCodec", {"max_pixels": 0}),
        ("FlacCodec", {"rate": 1.5}), ("Mp4Codec", {"codec": "nope"}), ("WebmCodec", {"fps": True}),
    ],
)  # fmt: skip
def test_options_out_of_range_are_refused(codec_class: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        getattr(codecs, codec_class)(**options)


# ---------------------------------------------------------------------- damage


class _Halved(ArrayCodec):
    """A codec of one's own that changes what another one reads."""

    derive_layout, layout_of = Codec.derive_layout, Codec.layout_of

    def decode(self, record: bytes) -> Any:
        return super().decode(record) / 2


def test_a_codec_that_overrides_decoding_is_not_bypassed(tmp_path: Path) -> None:
    spec = {"x": ColumnType("array", "float32", (2,))}
    with RecordWriter(tmp_path, spec) as writer:
        writer.extend({"x": np.arange(8, dtype="float32").reshape(4, 2)})

    with RecordReader(tmp_path, codecs={"array": _Halved()}) as reader:
        assert reader[3]["x"].tolist() == [3.0, 3.5]
        assert reader.read_batch([3, 0])["x"].tolist() == [[3.0, 3.5], [0.0, 0.5]]
    with pytest.raises(TypeError, match="must also define derive_layout"):
        type("_Careless", (ArrayCodec,), {"decode": _Halved.decode})


@pytest.mark.parametrize(
    "value",
    [
        ["_", 1, 2, 3], ["_", "<i4", [1], b"12345"], ["_", "<i4", [1], "1234"], ["_", "nope", [4], b"1234"], ["_", "a", "b", "c"],
        ["_"], ["_", "<i4", [1], b"1234", 0], {"_": ["_", None, None, None]}, ["_", "|O", [1], bytes(8)], b"\x94\xa1_" * 3,
    ],
)  # fmt: skip
def test_a_list_that_resembles_an_array_comes_back_unchanged(value: Any) -> None:
    codec = codec_of("tree")

    assert codec.decode(codec.encode(value)) == value
    both = [value, np.arange(3), value]
    assert_same(codec.decode(codec.encode(both)), both)


def test_zstd_frames_of_unknown_or_wrong_size_are_bounded() -> None:
    import zstandard

    codec = ZstdCodec(codec_of("bytes"), max_bytes=10_000_000)
    unsized = zstandard.ZstdCompressor(write_content_size=False)

    assert codec.decode(unsized.compress(bytes(5_000_000))) == bytes(5_000_000)
    for wrong in (bytes(20_000_000), bytes(5_000_000)):
        with pytest.raises(ValueError, match="damaged, or larger"):
            codec.decode(unsized.compress(wrong)[: None if len(wrong) > 10_000_000 else -2])
    lying = bytearray(codec.encode(bytes(1000)))
    lying[4:6] = b"\xff\xff"  # says 65,791 bytes
    with pytest.raises(ValueError, match="damaged"):
        codec.decode(bytes(lying))
