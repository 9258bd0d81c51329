"""Keeps the lengths of documents in a store, so that packing reads the documents only once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layers.documents import (
    ColumnOfTokens,
    DocumentLengths,
    Documents,
    Measures,
    measure_documents,
)
from data_stack.dataset.recipes.fingerprint import fingerprint
from data_stack.dataset.recipes.stability import code_digest, instability_reason
from data_stack.exception import ConfigError
from data_stack.io.storage_connectors.connector import StorageConnector, read_if_stored
from data_stack.util.logger import logger

#: The folder in the store.
_FOLDER = "packed"

#: The first bytes of a resource. Its last digit is the version of the format.
_MARK = b"data_stack lengths 1\n"

#: The largest header that is parsed: a line of JSON with the dtype of each column.
_MAX_HEADER_BYTES = 1 << 20

#: The kinds of dtypes that columns of tokens have, as numpy calls them.
_KINDS = "biufc"

_DIGEST_BYTES = 32


class StoredLengths:
    """Measures documents by what is kept in a store, and keeps there what it measured.

    A resource ``packed/<fingerprint>.lengths`` consists of a mark, a SHA-256 of the rest, a line of
    JSON with the columns, and the lengths as little-endian integers of 32 bits. A damaged one is
    made again.

    Args:
        iterator: the documents.
        storage: the store.

    Raises:
        ConfigError: ``iterator`` has no reliable fingerprint, or ``storage`` is no store.
    """

    #: The documents.
    _iterator: DatasetIteratorIF

    #: The store.
    _storage: StorageConnector

    def __init__(self, iterator: Any, storage: StorageConnector) -> None:
        self._iterator = as_iterator(iterator)
        self._storage = storage
        if not isinstance(storage, StorageConnector):
            raise ConfigError(
                f"storage= takes a path, a URL or a StorageConnector, got {storage!r:.80}"
            )
        reason = instability_reason(self._iterator)
        if reason is not None:
            raise ConfigError(
                f"these documents have no reliable fingerprint ({reason}), so the lengths in a "
                f"store could be those of other documents. Put cache(storage=…, version='1') "
                f"before pack(), or leave out storage="
            )

    def __call__(self, documents: Documents) -> Measures:
        """Return the lengths that are kept; otherwise measure the documents and keep their lengths.

        Raises:
            ConfigError: the documents cannot be packed, see ``PackedDatasetIterator``.
            StorageError: the store cannot be read or written to.
        """
        identifier = f"{_FOLDER}/{self._find_name(documents)}.lengths"
        n_documents = documents.samples.n_samples
        max_bytes = len(_MARK) + _DIGEST_BYTES + _MAX_HEADER_BYTES + 4 * n_documents
        stored = read_if_stored(self._storage, identifier, max_bytes)
        if stored is not None:
            measures = parse_measures(stored, n_documents, list(documents.keys))
            if measures is not None:
                return measures
            logger.warning(
                "the lengths %r in %r are damaged; they are made again", identifier, self._storage
            )
        measures = measure_documents(documents)
        self._storage.set_resource(identifier, format_measures(measures))
        return measures

    def _find_name(self, documents: Documents) -> str:
        """Return a name that the documents and their columns decide."""
        parts = [
            fingerprint(self._iterator),
            str(code_digest(self._iterator)),
            json.dumps(dict(documents.keys)),
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def format_measures(measures: Measures) -> bytes:
    """Return the bytes that :func:`parse_measures` reads."""
    columns = {
        name: {"dtype": column.dtype.str, "shape": list(column.shape)}
        for name, column in measures.columns.items()
    }
    header = json.dumps({"columns": columns}).encode("ascii") + b"\n"
    content = header + measures.lengths.astype("<i4").tobytes()
    return _MARK + hashlib.sha256(content).digest() + content


def parse_measures(data: bytes, n_documents: int, names: list[str]) -> Measures | None:
    """Return what :func:`format_measures` wrote.

    Args:
        data: the bytes.
        n_documents: the number of documents.
        names: the names of the columns, in their order.

    Returns:
        The measures; None if ``data`` is damaged, or is of other documents.
    """
    start = len(_MARK) + _DIGEST_BYTES
    content = data[start:]
    if data[:start] != _MARK + hashlib.sha256(content).digest():
        return None
    header_bytes, _, lengths_bytes = content.partition(b"\n")
    if len(header_bytes) > _MAX_HEADER_BYTES or len(lengths_bytes) != 4 * n_documents:
        return None
    try:
        header = json.loads(header_bytes)
        columns = {name: _parse_column(header["columns"][name]) for name in header["columns"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    lengths: DocumentLengths = np.frombuffer(lengths_bytes, dtype="<i4").astype(np.int32)
    if list(columns) != names or (lengths < 0).any():
        return None
    return Measures(lengths, columns)


def _parse_column(stated: Mapping[str, Any]) -> ColumnOfTokens:
    """Return a column of the header.

    Raises:
        ValueError, KeyError, TypeError: it is not one.
    """
    dtype = np.dtype(str(stated["dtype"]))
    shape = tuple(stated["shape"])
    are_sizes = all(type(size) is int and size >= 0 for size in shape)
    if dtype.kind not in _KINDS or not are_sizes:
        raise ValueError("a column of tokens has numbers of one shape")
    return ColumnOfTokens(dtype, shape)
