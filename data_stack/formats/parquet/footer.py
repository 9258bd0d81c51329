"""Reads the footer at the end of a Parquet file.

The end of a file: the footer, its length (4 bytes, little endian), and the magic ``PAR1``.
"""

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
#: The first and the last bytes of a file.
_MAGIC: Final = b"PAR1"
#: The last bytes of a file whose footer is encrypted.
_ENCRYPTED_MAGIC: Final = b"PARE"
#: Bytes behind the footer: its length and the magic.
_N_END_BYTES: Final = 4 + len(_MAGIC)
#: The shortest file: a magic, and an empty footer with its length and magic.
_MIN_FILE_BYTES: Final = len(_MAGIC) + _N_END_BYTES


@dataclass(frozen=True, slots=True)
class Footer:
    """The footer of a file.

    Attributes:
        metadata: the footer as pyarrow parses it.
        facts: the footer as data_stack parses and checks it.
        digest: SHA-256 (32 bytes) of the bytes that :func:`read_tail` returned.
        file_bytes: size of the file in bytes.
    """

    metadata: pq.FileMetaData
    facts: FooterFacts
    digest: bytes
    file_bytes: int


def read_tail(source: Any, name: str) -> bytes:
    """Read the end of a Parquet file: the footer, its length, and the magic.

    Args:
        source: the file, opened by pyarrow or wrapped for it.
        name: the name of the file for messages.

    Raises:
        DatasetFileCorruptError: the file is damaged, encrypted, or not a Parquet file.
        pyarrow.ArrowException, OSError: the file cannot be read.
    """
    size = source.size()
    n_bytes = min(size, _TAIL_BYTES)
    tail: bytes = source.read_at(n_bytes, size - n_bytes)
    _check_magic(tail, source, name)

    footer_bytes = int.from_bytes(tail[-_N_END_BYTES : -len(_MAGIC)], "little")
    n_bytes = footer_bytes + _N_END_BYTES
    if n_bytes > size - len(_MAGIC):  # The file also begins with a magic.
        raise _damage_error(name, footer_bytes)
    if n_bytes > len(tail):
        tail = source.read_at(n_bytes, size - n_bytes)
    if n_bytes > len(tail):  # The file was truncated meanwhile.
        raise _damage_error(name, footer_bytes)
    return tail[-n_bytes:]


def _damage_error(name: str, footer_bytes: int) -> DatasetFileCorruptError:
    """Return the error for a file that is too short for its footer."""
    return DatasetFileCorruptError(
        f"{name} is damaged or truncated: its footer should have {footer_bytes} bytes"
    )


def _check_magic(tail: bytes, source: Any, name: str) -> None:
    """Check that a file ends as a Parquet file does.

    Args:
        tail: the last bytes of the file.
        source: the file.
        name: the name of the file for messages.

    Raises:
        DatasetFileCorruptError: the file is encrypted, truncated, or not a Parquet file. The
            message says so if it is a small text that stands for the file, such as a pointer of
            Git LFS.
    """
    if len(tail) >= _MIN_FILE_BYTES and tail.endswith(_MAGIC):
        return
    if tail.endswith(_ENCRYPTED_MAGIC):
        raise DatasetFileCorruptError(f"{name} is encrypted; encrypted files are not supported")
    size = source.size()
    head = source.read_at(min(size, HEAD_BYTES), 0)
    check_no_stand_in(head, name, size)
    raise DatasetFileCorruptError(
        f"{name} has no Parquet footer: it is truncated, or not a Parquet file"
    )


def digest_of_tail(tail: bytes) -> bytes:
    """Return the SHA-256, 32 bytes, of what :func:`read_tail` returned."""
    return hashlib.sha256(tail).digest()


def parse_footer(tail: bytes, file_bytes: int) -> Footer:
    """Parse the footer of a file, and check it.

    Args:
        tail: the end of the file, as :func:`read_tail` returned it.
        file_bytes: size of the file in bytes.

    Raises:
        ValueError, pyarrow.ArrowException: the footer is damaged.
    """
    # pyarrow parses a file that consists of a magic and the footer.
    metadata = pq.read_metadata(pa.BufferReader(_MAGIC + tail))
    facts = footer_facts(tail[:-_N_END_BYTES], file_bytes)
    return Footer(metadata, facts, digest_of_tail(tail), file_bytes)
