"""The steps of the reader of pickles, each alone: opcodes, calls, and values of the result."""

from __future__ import annotations

import io
import pickle
import pickletools
from collections import OrderedDict
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from data_stack_petastorm.pickles import pieces
from data_stack_petastorm.pickles.calls import result_of_call
from data_stack_petastorm.pickles.decoding import decode_pickle
from data_stack_petastorm.pickles.known_globals import KNOWN_GLOBALS
from data_stack_petastorm.pickles.opcode_scan import check_opcodes
from data_stack_petastorm.pickles.stub_values import expect_object, expect_text, plain_value
from data_stack_petastorm.pickles.stubs import DictStub, ObjectStub, Refusal, SetStub
from hypothesis import given
from hypothesis import strategies as st

#: Opcodes that no pickle of Petastorm has, with a pickle that has each.
REFUSED_OPCODES = {
    "INST": b"(ios\nsystem\n.",
    "OBJ": b"(cnumpy\nint8\no.",
    "NEWOBJ_EX": b"\x80\x04cnumpy\nint8\n)}\x92.",
    "EXT1": b"\x80\x02\x82\x01.",
    "EXT2": b"\x80\x02\x83\x01\x00.",
    "EXT4": b"\x80\x02\x84\x01\x00\x00\x00.",
    "PERSID": b"Pa\n.",
    "BINPERSID": b"NQ.",
    "FROZENSET": b"\x80\x04(\x91.",
    "BYTEARRAY8": b"\x80\x05\x96" + bytes(8) + b".",
    "NEXT_BUFFER": b"\x80\x05\x97.",
    "READONLY_BUFFER": b"\x80\x05N\x98.",
    "POP": b"NN0.",
    "POP_MARK": b"N(N1.",
    "DUP": b"N2.",
    "DICT": b"(NNd.",
}


@pytest.mark.parametrize("name", REFUSED_OPCODES)
def test_other_opcodes_are_refused_by_name(name: str) -> None:
    with pytest.raises(Refusal, match=f"the opcode {name},"):
        check_opcodes(REFUSED_OPCODES[name])


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", [{}, {"a": {}}, set(), {1, 2}, OrderedDict(a=1)], ids=repr)
def test_no_opcode_that_makes_a_dict_or_set_remains(value: Any, protocol: int) -> None:
    checked = check_opcodes(pickle.dumps(value, protocol))

    names = {opcode.name for opcode, _, _ in pickletools.genops(checked)}
    assert not names & {"EMPTY_DICT", "DICT", "EMPTY_SET", "FROZENSET", "NEWOBJ", "FRAME"}
    assert isinstance(decode_pickle(pickle.dumps(value, protocol)), (DictStub, SetStub))


PLAIN = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False),
        st.binary(),
        st.text(st.characters(codec="utf-8")),
    ),
    lambda values: st.one_of(st.lists(values), st.tuples(values, values)),
)


@given(value=PLAIN, protocol=st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_plain_values_are_decoded_as_pickle_does(value: Any, protocol: int) -> None:
    data = pickle.dumps(value, protocol)

    assert decode_pickle(data) == pickle.loads(data)


CALLS: list[tuple[str, tuple[Any, ...], Any]] = [
    ("_codecs.encode", ("a\xff", "latin1"), b"a\xff"),
    ("__builtin__.bytes", (), b""),
    ("decimal.Decimal", ("-1.50e2",), Decimal("-1.50e2")),
    ("datetime.date", (b"\x07\xe4\x02\x1d",), date(2020, 2, 29)),
    ("datetime.time", (b"\x01\x02\x03\x00\x00\x04",), time(1, 2, 3, 4)),
    ("datetime.timedelta", (1, 2, 3), timedelta(1, 2, 3)),
    ("datetime.timezone", (timedelta(hours=1),), timezone(timedelta(hours=1))),
    (
        "datetime.datetime",
        (b"\x07\xe4\x02\x1d\x00\x00\x00\x00\x00\x00", timezone.utc),
        datetime(2020, 2, 29, tzinfo=timezone.utc),
    ),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), CALLS, ids=[name for name, *_ in CALLS])
def test_a_call_makes_the_value(name: str, arguments: tuple[Any, ...], expected: Any) -> None:
    made = result_of_call(KNOWN_GLOBALS[name], arguments)

    assert made == expected
    assert type(made) is type(expected)


@pytest.mark.parametrize("name", [name for name, *_ in CALLS])
@pytest.mark.parametrize("arguments", [(None,), ("a", "b", "c", "d"), ([],)], ids=repr)
def test_a_call_with_other_arguments_is_refused(name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises((Refusal, TypeError)):
        result_of_call(KNOWN_GLOBALS[name], arguments)


@pytest.mark.parametrize("role", ["type", "base"])
def test_types_of_fields_and_bases_are_never_called(role: str) -> None:
    for known in KNOWN_GLOBALS.values():
        if known.role == role:
            with pytest.raises(Refusal, match=known.name):
                result_of_call(known, ())


def test_the_kind_of_a_value_is_checked() -> None:
    codec = ObjectStub(KNOWN_GLOBALS["petastorm.codecs.NdarrayCodec"])

    assert expect_object(codec, "codec") is codec
    with pytest.raises(Refusal, match="the codec NdarrayCodec where a field belongs"):
        expect_object(codec, "field")
    with pytest.raises(Refusal, match="as the name of a field"):
        expect_text(3, "the name of a field")
    others: list[Any] = [None, [], (), codec, DictStub()]
    for value in others:
        with pytest.raises(Refusal, match="as a value"):
            plain_value(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("ä", "ä"), ("\udcff", b"\xff"), ("a\udce4", b"a\xe4"), ("\ud83d\ude00", "\U0001f600")],
)
def test_a_str_of_python_2_is_text_or_bytes(text: str, expected: str | bytes) -> None:
    assert plain_value(text) == expected


@given(
    number=st.integers(-(2**63), 2**64 - 1),
    real=st.floats(allow_nan=False),
    text=st.text(st.characters(codec="utf-8")),
    raw=st.binary(),
    flag=st.booleans(),
)
def test_pieces_make_the_values_that_they_are_given(
    number: int, real: float, text: str, raw: bytes, flag: bool
) -> None:
    values = (
        pieces.integer(number)
        + pieces.real(real)
        + pieces.text(text)
        + pieces.raw_bytes(raw)
        + pieces.boolean(flag)
    )
    data = pieces.PROTO + b"\x03" + pieces.MARK + values + pieces.TUPLE + pieces.STOP

    assert pickle.load(io.BytesIO(data)) == (number, real, text, raw, flag)


class Made:
    """Is made by a pickle."""


def test_an_object_is_made_with_its_attributes() -> None:
    attributes = pieces.text("number") + pieces.integer(3)
    data = pieces.new_object(f"{__name__}.Made", attributes) + pieces.STOP

    made = pickle.loads(data)

    assert type(made) is Made
    assert vars(made) == {"number": 3}


def test_a_stored_piece_is_loaded_again() -> None:
    stored = pieces.EMPTY_LIST + pieces.store(7)
    data = pieces.MARK + stored + pieces.load(7) + pieces.TUPLE + pieces.STOP

    first, second = pickle.loads(data)

    assert first is second
