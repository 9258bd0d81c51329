"""Decodes Petastorm's pickles to plain values and stubs, without running them."""

from __future__ import annotations

import io
import pickle
from typing import Any, Final

from data_stack.exception import DatasetFileCorruptError
from data_stack_petastorm.dataframe_column_codec import user_codecs
from data_stack_petastorm.pickles.calls import result_of_call
from data_stack_petastorm.pickles.known_globals import KNOWN_GLOBALS, KnownGlobal
from data_stack_petastorm.pickles.opcode_scan import check_opcodes
from data_stack_petastorm.pickles.stubs import DictStub, GlobalStub, Refusal

#: The maximum length of a pickle in bytes, and the maximum number of bytes and items that its calls
#: make. An index of a million values takes 60 MB; Parquet's readers take no more than 100 MB of
#: metadata.
_MAX_BYTES: Final = 100_000_000

#: A name in a message is cut off at this length.
_MAX_SHOWN: Final = 80


def decode_pickle(data: bytes) -> Any:
    """Decode a pickle of protocol 0 to 5 to stubs and plain values.

    Lists and tuples are Python's own; their items may be stubs.

    Raises:
        Refusal: the pickle contains what Petastorm's pickles do not contain, is damaged, or too
            large.
    """
    if len(data) > _MAX_BYTES:
        raise Refusal(
            f"{len(data):,} bytes, more than the {_MAX_BYTES:,} that any schema or index needs"
        )
    try:
        checked = check_opcodes(data)
        return _StubUnpickler(checked).load()
    except Refusal:
        raise
    except (
        pickle.UnpicklingError,
        EOFError,
        AttributeError,
        TypeError,
        ValueError,  # also of pickletools, such as for an unknown opcode
        LookupError,
        ArithmeticError,
        Warning,  # of an escape in a text, where warnings are errors
    ) as error:
        raise Refusal(f"an invalid opcode or value: {error!s:.200}") from error


def refused_pickle(what: str, refusal: Refusal) -> DatasetFileCorruptError:
    """Return the error for a pickle that is not decoded.

    Args:
        what: what the pickle should be: "schema" or "row-group index".
        refusal: the reason.
    """
    return DatasetFileCorruptError(
        f"Petastorm's pickled {what} contains {refusal}. It is damaged, or not a {what}: "
        "data_stack decodes only what Petastorm writes, and never runs a pickle. If you trust the "
        "source, write the metadata again, e.g. with petastorm-generate-metadata.py."
    )


class _StubUnpickler(pickle.Unpickler):
    """Builds the values of a pickle from stubs instead of classes and functions.

    A ``str`` of Python 2 may be text or bytes. It becomes a str of Python 3, in which surrogates
    stand for bytes that are not UTF-8.

    Args:
        data: a pickle that :func:`check_opcodes` returned.
    """

    #: How many more bytes and items calls may make. Without a limit, a short pickle could call a
    #: function many times with the same long value.
    _n_left: int

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8", errors="surrogateescape")
        self._n_left = _MAX_BYTES

    def find_class(self, module: str, name: str) -> GlobalStub:
        """Return the stub of a known global; the unpickler calls this.

        Raises:
            Refusal: the global is not known.
        """
        full_name = f"{module}.{name}"
        known = KNOWN_GLOBALS.get(full_name)
        if known is None and full_name in user_codecs:
            known = KnownGlobal("codec", full_name)
        if known is None:
            raise Refusal(f"the global {full_name[:_MAX_SHOWN]!r}, which Petastorm does not write")
        return GlobalStub(known, self._call)

    def _call(self, known: KnownGlobal, arguments: tuple[Any, ...]) -> Any:
        """Return what a call of a global makes; the stub of the global calls this.

        Raises:
            Refusal: the calls of the pickle made too much.
            ValueError, TypeError, OverflowError, ArithmeticError: as for :func:`result_of_call`.
        """
        result = result_of_call(known, arguments)
        if isinstance(result, bytes):
            self._n_left -= len(result)
        elif isinstance(result, DictStub):
            self._n_left -= len(result.items)
        if self._n_left < 0:
            raise Refusal("more data than any schema or index needs")
        return result
