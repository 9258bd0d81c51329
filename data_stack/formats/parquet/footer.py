"""Reads the footer at the end of a Parquet file, and checks it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.parquet.footer_facts import FooterFacts, footer_facts
from data_stack.io.stand_ins import HEAD_BYTES, check_no_stand_in

#: Bytes read from the end of a file; most footers are shorter.
_TAIL_BYTES: Final = 1 << 16
#: The first and last bytes of a file, and the last ones of an encrypted file.
_MAGIC: Final = b"PAR1"
_ENCRYPTED_MAGIC: Final = b"PARE"
#: The length of the footer, and the magic behind it.
_N_LENGTH_BYTES: Final = 4
_N_END_BYTES: Final = _N_LENGTH_BYTES + len(_MAGIC)
#: The shortest file: two magics and a length.
_MIN_FILE_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class Footer:
    """The footer of a file.

    Attributes:
        metadata: the footer, parsed by pyarrow.
        facts: the same, checked.
        digest: SHA-256 of the end of the file, see :func:`read_tail`.
        file_bytes: size of the file.
    """

    metadata: pq.FileMetaData
    facts: FooterFacts
    digest: bytes
    file_bytes: int


def read_tail(source: Any, name: str) -> bytes:
    """Read the end of a Parquet file: the footer, its length, and the magic.

    Args:
        source: the file, open for pyarrow.
        name: of the file, for messages.

    Raises:
        DatasetFileCorruptError: it is damaged, encrypted, or not Parquet.
    """
    size = source.size()
    tail: bytes = source.read_at(min(size, _TAIL_BYTES), max(0, size - _TAIL_BYTES))
    _check_magic(tail, source, name)
    length = int.from_bytes(tail[-_N_END_BYTES : -len(_MAGIC)], "little") + _N_END_BYTES
    max_length = size - len(_MAGIC)  # the file begins with a magic
    if len(tail) < length <= max_length:
        tail = source.read_at(length, size - length)
    if len(tail) < length or length > max_length:
        raise DatasetFileCorruptError(
            f"{name} is damaged or truncated: its footer should have {length - _N_END_BYTES} bytes"
        )
    return tail[len(tail) - length :]


def _check_magic(tail: bytes, source: Any, name: str) -> None:
    if len(tail) >= _MIN_FILE_BYTES and tail.endswith(_MAGIC):
        return
    if tail.endswith(_ENCRYPTED_MAGIC):
        raise DatasetFileCorruptError(f"{name} is encrypted; encrypted files are not supported")
    size = source.size()
    check_no_stand_in(source.read_at(min(size, HEAD_BYTES), 0), name, size)
    raise DatasetFileCorruptError(
        f"{name} has no Parquet footer: it is truncated, or not a Parquet file"
    )


def digest_of_tail(tail: bytes) -> bytes:
    """Return the SHA-256 of what :func:`read_tail` returned."""
    return hashlib.sha256(tail).digest()


def parse_footer(tail: bytes, file_bytes: int) -> Footer:
    """Parse the end of a file.

    Args:
        tail: as :func:`read_tail` returned it.
        file_bytes: size of the file.

    Raises:
        ValueError, pyarrow.ArrowException: the footer is damaged.
    """
    metadata = pq.read_metadata(pa.BufferReader(_MAGIC + tail))
    facts = footer_facts(tail[:-_N_END_BYTES], file_bytes)
    return Footer(metadata, facts, digest_of_tail(tail), file_bytes)
