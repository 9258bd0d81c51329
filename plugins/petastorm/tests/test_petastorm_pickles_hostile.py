"""Pickles that attack, bombs and damaged ones: each gives an error or a value.

Nothing in them is run or imported.
"""

from __future__ import annotations

import os
import pickle
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from data_stack_petastorm.pickles.index_reader import read_pickled_indexes
from data_stack_petastorm.pickles.schema_reader import read_pickled_schema
from sizes import FULL

from data_stack.exception import ConfigError, DatasetFileCorruptError

PICKLES = Path(__file__).parent / "fixtures" / "pickles"
READERS: list[Callable[[bytes], Any]] = [read_pickled_schema, read_pickled_indexes]
#: A module of Python's that nothing imports: it would open a browser.
NEVER_IMPORTED = "antigravity"


class Call:
    """Pickles as a call of ``function``."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._call = (function, arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._call


def unicode_of(text: str) -> bytes:
    encoded = text.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


MARKER = os.path.join(tempfile.gettempdir(), f"data_stack_hostile_pickle_{os.getpid()}")

HOSTILE_OBJECTS: dict[str, Any] = {
    "builtins.eval": Call(eval, f"open({MARKER!r}, 'w')"),
    "posix.system": Call(os.system, f"touch {MARKER}"),
    "builtins.__import__": Call(__import__, NEVER_IMPORTED),
}


@pytest.mark.parametrize("protocol", [0, 4])
@pytest.mark.parametrize("name", HOSTILE_OBJECTS)
def test_a_call_that_petastorm_never_makes_is_refused(name: str, protocol: int) -> None:
    data = pickle.dumps({"index": HOSTILE_OBJECTS[name]}, protocol)

    for read in READERS:
        with pytest.raises(DatasetFileCorruptError, match=name.rpartition(".")[2]):
            read(data)

    assert not os.path.exists(MARKER)


#: What Petastorm's own guard lets through: all of builtins, numpy, pyspark, petastorm, collections.
ALLOWED_BY_PETASTORM = [
    ("builtins", "eval"),
    ("numpy", "load"),
    ("numpy", "ctypeslib.load_library"),
    ("petastorm.unischema", "pickle.loads"),
    ("os", "set"),
    (NEVER_IMPORTED, "geohash"),
    ("a" * 1000, "b" * 1000),
]


@pytest.mark.parametrize(("module", "name"), ALLOWED_BY_PETASTORM)
def test_an_unknown_global_is_refused_by_name(module: str, name: str) -> None:
    by_lines = b"c" + module.encode() + b"\n" + name.encode() + b"\n)R."
    from_stack = b"\x80\x04" + unicode_of(module) + unicode_of(name) + b"\x93)R."

    for data in (by_lines, from_stack):
        with pytest.raises(DatasetFileCorruptError, match=f"the global '{module[:80]}") as caught:
            read_pickled_schema(data)

        assert len(str(caught.value)) < 700


HOSTILE_PROGRAMS = {
    "a global of computed names": b"\x80\x04c_codecs\nencode\n"
    + unicode_of("os")
    + unicode_of("latin1")
    + b"\x86R"
    b"c_codecs\nencode\n" + unicode_of("system") + unicode_of("latin1") + b"\x86R\x93.",
    "INST": b"(ios\nsystem\n.",
    "a call of a type": b"cnumpy\nint8\nK\x01\x85R.",
    "a call of a class": b"cpetastorm.unischema\nUnischema\n)R.",
    "a call with arguments that are no tuple": b"cbuiltins\nset\n]R.",
    "a new function": b"cbuiltins\nset\n)\x81.",
    "a new codec with arguments": b"cpetastorm.codecs\nNdarrayCodec\nK\x01\x85\x81.",
    "attributes of a function": b"cbuiltins\nset\n}b.",
    "attributes of a dtype by slots": b"cnumpy\ndtype\n"
    + unicode_of("i8")
    + b"K\0K\x01\x87RN}"
    + unicode_of("unit")
    + b"K\x01s\x86b.",
    "attributes of a class": b"cpetastorm.unischema\nUnischema\nN}"
    + unicode_of("known")
    + b"K\x01s\x86b.",
    "a memo beyond all opcodes": b"Nr\xff\xff\xff\x7f.",
    "a dict of what lies below other values": b"(N}K\x01K\x02d.",
    "an item of a list by its index": b"]K\x00K\x01s.",
    "a real set": b"\x80\x04(\x91.",
    "attributes twice": b"cpetastorm.codecs\nNdarrayCodec\n)\x81}b}b.",
    "attributes that contain themselves": b"cpetastorm.unischema\nUnischema\n)\x81q\0}"
    + unicode_of("_fields")
    + b"h\0sb.",
    "items of an object": b"cpetastorm.unischema\nUnischema\n)\x81K\x01K\x02s.",
    "a field of too few values": b"cpetastorm.unischema\nUnischemaField\nK\x01\x85\x81.",
    "a restored tuple of another name": b"cpyspark.serializers\n_restore\n"
    + unicode_of("os")
    + b"))\x87R.",
    "a Decimal of a huge exponent": b"cdecimal\nDecimal\n" + unicode_of("1e999999999") + b"\x85R.",
    "a Decimal that is none": b"cdecimal\nDecimal\n" + unicode_of("NaN") + b"\x85R.",
    "a dtype of objects": b"cnumpy\ndtype\n" + unicode_of("O8") + b"K\0K\x01\x87R.",
    "a dtype by its own grammar": b"cnumpy\ndtype\n"
    + unicode_of("i4,(1000000000,)f8")
    + b"K\0K\x01\x87R.",
    "a scalar of no size": b"cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\n"
    + unicode_of("i8")
    + b"K\0K\x01\x87RC\x02ab\x86R.",
    "a text that is none": b"cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\n"
    + unicode_of("U1")
    + b"K\0K\x01\x87RC\x04\xff\xff\xff\xff\x86R.",
    "a 30th of February": b"cdatetime\ndate\nC\x04\x07\xe4\x02\x1e\x85R.",
    "an integer of a megabyte": b"\x8b" + struct.pack("<I", 1_000_000) + b"\x7f" * 1_000_000 + b".",
    "an integer of many digits": b"L" + b"9" * 100_000 + b"L\n.",
    "bytes longer than any data": b"\x80\x04\x8e" + b"\xff" * 8 + b".",
    "a string of half a character": b"V\\ud83d\n.",
    "a string with an unknown escape": b"S'\\q'\n.",
    "a memo that was never stored": b"h\x05.",
    "nothing on the stack": b".",
    "no mark": b"NNt.",
    "values left over": b"NN.",
    "deep tuples": b")" + b"\x85" * 100_000 + b".",
    "deep lists": b"]" * 60_000 + b"a" * 59_999 + b".",
    "a deep stack": b"N" * 100_000 + b".",
}


@pytest.mark.parametrize("name", HOSTILE_PROGRAMS)
def test_a_program_that_petastorm_never_writes_is_refused(name: str) -> None:
    for read in READERS:
        with pytest.raises(DatasetFileCorruptError, match="never runs a pickle"):
            read(HOSTILE_PROGRAMS[name])


def index_of(data: bytes) -> bytes:
    """A single-field index around the pickled dict of its values."""
    names = unicode_of("_column_name") + unicode_of("c") + unicode_of("_index_data")
    return (
        b"\x80\x04}"
        + unicode_of("i")
        + b"cpetastorm.etl.rowgroup_indexers\nSingleFieldIndexer\n)\x81}("
        + names
        + data
        + b"ubs."
    )


#: Each tuple holds the one before ten times over: 10^50 if anything walked through them.
LAUGHS = b")\x94" + b"".join(b"(" + (b"h" + bytes([level])) * 10 + b"t\x94" for level in range(50))
HOSTILE_INDEXES = {
    "a value that is a list": b"}(]\x8fu",
    "a value that is a tuple": b"}()\x8fu",
    "a value that is a billion laughs": b"}(" + LAUGHS + b"\x8fu",
    "a value that is a function": b"}(cbuiltins\nset\n\x8fu",
    "a value that is None": b"}(N\x8fu",
    "a row group that is text": b"}(K\x01\x8f(" + unicode_of("a") + b"\x90u",
    "a row group that is a bool": b"}(K\x01\x8f(\x88\x90u",
    "a row group below 0": b"}(K\x01\x8f(J\xff\xff\xff\xff\x90u",
    "row groups that are a list": b"}(K\x01]u",
    "no values": b"N",
    "values that collide": b"}("
    + b"".join(
        b"\x8a\x0a" + (number * (2**61 - 1)).to_bytes(10, "little", signed=True) + b"\x8f"
        for number in range(1, 200)
    )
    + b"u",
}


@pytest.mark.parametrize("name", HOSTILE_INDEXES)
def test_an_index_of_other_things_is_refused(name: str) -> None:
    with pytest.raises(DatasetFileCorruptError, match="never runs a pickle"):
        read_pickled_indexes(index_of(HOSTILE_INDEXES[name]))


def test_a_deep_or_endless_key_is_never_hashed() -> None:
    for key in (b")" + b"\x85" * 100_000, LAUGHS):
        for data in (
            b"}(" + key + b"Nu.",
            b"(" + key + b"Nd.",
            b"\x8f(" + key + b"\x90.",
            b"}" + key + b"Ns.",
        ):
            with pytest.raises(DatasetFileCorruptError, match="never runs a pickle"):
                read_pickled_indexes(b"\x80\x04" + data)


#: A set of many ordinals, in the memo.
SHARED = (
    b"\x8f\x94(" + b"".join(b"M" + struct.pack("<H", number) for number in range(20_000)) + b"\x90"
)


def test_values_that_share_a_set_share_it_when_read() -> None:
    values = b"".join(b"J" + struct.pack("<i", number) + b"h\x00" for number in range(1, 20_000))

    row_groups = read_pickled_indexes(index_of(b"}(K\0" + SHARED + values + b"u"))["i"].row_groups

    assert len(row_groups) == 20_000
    assert len({id(ordinals) for ordinals in row_groups.values()}) == 1


def test_a_text_decoded_many_times_does_not_fill_memory() -> None:
    start = (
        b"\x80\x02(c_codecs\nencode\nq\x00"
        + unicode_of("a" * 2_000_000)
        + b"q\x01"
        + unicode_of("latin1")
        + b"q\x02"
    )

    with pytest.raises(DatasetFileCorruptError, match="more data than any"):
        read_pickled_indexes(start + b"h\x00h\x01h\x02\x86R" * 1_000 + b"t.")


def test_large_sets_joined_many_times_do_not_fill_memory() -> None:
    values = b"".join(
        b"J" + struct.pack("<i", number // 2) + b"h\x00" for number in range(2, 4_000)
    )

    with pytest.raises(DatasetFileCorruptError, match="values of an index"):
        read_pickled_indexes(index_of(b"}(K\0" + SHARED + values + b"u"))


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("legacy_0.4.0.schema", read_pickled_schema),
        ("every_type.protocol4.indexes", read_pickled_indexes),
    ],
)
def test_a_pickle_cut_off_anywhere_is_refused(name: str, read: Callable[[bytes], Any]) -> None:
    data = (PICKLES / f"{name}.pickle").read_bytes()

    for length in range(0, len(data), 1 if FULL else 3):
        with pytest.raises(DatasetFileCorruptError):
            read(data[:length])


DAMAGED = [
    ("every_type.protocol4.indexes", read_pickled_indexes, [1, 16, 255]),
    ("legacy_0.7.6.schema", read_pickled_schema, [1, 2, 255]),
]


@pytest.mark.parametrize(("name", "read", "flips"), DAMAGED, ids=[name for name, _, _ in DAMAGED])
def test_a_wrong_byte_anywhere_gives_a_value_or_our_error(
    name: str, read: Callable[[bytes], Any], flips: list[int]
) -> None:
    data = bytearray((PICKLES / f"{name}.pickle").read_bytes())
    step = 1 if FULL else 7
    n_tried = 0
    n_refused = 0

    for position in range(0, len(data), step):
        flips_here = flips if FULL else [flips[position % len(flips)]]
        for flip in flips_here:
            data[position] ^= flip
            n_tried += 1
            try:
                read(bytes(data))
            except (DatasetFileCorruptError, ConfigError):
                # ConfigError: of an image format that there is not
                n_refused += 1
            data[position] ^= flip

    assert n_refused > n_tried // 4
