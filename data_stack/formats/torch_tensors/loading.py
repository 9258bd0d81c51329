"""Loads the tensors of files of ``torch.save``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import torch

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.torch_tensors.checks import (
    check_archive,
    check_storages,
    holds_plain_tensors,
)
from data_stack.io.account import LeftOut
from data_stack.io.parsing import check_apart, reading
from data_stack.io.positional import PositionalFile
from data_stack.io.stand_ins import HEAD_BYTES, check_no_stand_in

#: The first bytes of a zip file.
_ZIP_MAGIC: Final = b"PK\x03\x04"

#: The rule that leaves out an entry of a file.
_NO_COLUMN: Final = "no tensor with one row a sample"


def load_tensors(resource: Any, *, map_location: str = "cpu") -> Any:
    """Load a file of ``torch.save``.

    This is ``torch.load`` with ``weights_only=True`` after a check of the file: it must have the
    zip layout of torch 1.6 and later, uncompressed, and no tensor may claim more elements than are
    stored.

    Args:
        resource: the path of a file, a StreamedResource or seekable binary file.
        map_location: the device of the tensors; ``"meta"`` reads no values, only shapes and dtypes.

    Returns:
        A tensor, or a dict, list or tuple of tensors and plain values, as it was saved.

    Raises:
        DatasetFileCorruptError: the file is damaged, of another format, or contains more than
            tensors and plain values.
    """
    file = PositionalFile(resource)
    if file.read_at(0, len(_ZIP_MAGIC)) != _ZIP_MAGIC:
        check_no_stand_in(file.read_at(0, HEAD_BYTES), repr(file.name), file.size)
        raise DatasetFileCorruptError(
            f"{file.name!r} is not a file of torch.save() of torch 1.6 and later; save it again"
        )
    with reading(file.name, "file of torch.save()", file):
        check_archive(file)
        if not holds_plain_tensors(file):
            check_apart(file, f"{__name__}:parse_all", [])
        return _load(file, map_location)


def parse_all(resource: Any) -> None:
    """Parse all of a file but the values of its tensors. :func:`load_tensors` calls it apart.

    A file that makes torch crash or run for long then does so in another process.
    """
    _load(PositionalFile(resource), "meta")


def _load(file: PositionalFile, map_location: str) -> Any:
    with reading(file.name, "file of torch.save()", file):
        loaded = torch.load(file.open_buffered(), weights_only=True, map_location=map_location)
        check_storages(loaded, file.name)
    return loaded


def tensors_of(loaded: Any, name: str) -> dict[str | int, torch.Tensor]:
    """Return the tensors with rows among those that :func:`load_tensors` returned.

    Args:
        loaded: what it returned.
        name: the name of the file, for messages.

    Returns:
        The tensors of a dict by their keys, those of a list by their positions, and a single tensor
        by 0.

    Raises:
        DatasetFileCorruptError: there are no tensors with rows.
    """
    if isinstance(loaded, torch.Tensor):
        loaded = [loaded]
    tensors = {key: value for key, value in _entries_of(loaded) if _has_rows(value)}
    if not tensors:
        raise DatasetFileCorruptError(
            f"{name!r} holds a {type(loaded).__name__} without tensors that have one row a sample"
        )
    return tensors


def entries_left_out(loaded: Any) -> list[LeftOut]:
    """Return which entries of what :func:`load_tensors` returned are no columns.

    These are numbers, texts, lists and tensors without rows.
    """
    left_out = []
    for key, value in _entries_of(loaded):
        if not _has_rows(value):
            left_out.append(LeftOut(str(key), _NO_COLUMN))
    return left_out


def _entries_of(loaded: Any) -> Iterable[tuple[Any, Any]]:
    """Return the keys and values of a dict, or the positions and values of a list."""
    if isinstance(loaded, Mapping):
        return loaded.items()
    if isinstance(loaded, (list, tuple)):
        return enumerate(loaded)
    return []


def _has_rows(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0
