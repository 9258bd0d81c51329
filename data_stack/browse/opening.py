"""Opens a path or URL as splits."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import UnknownSplitError
from data_stack.formats.conversion.format import open_source
from data_stack.formats.conversion.location import FORMATS
from data_stack.io.location import Location, location_of
from data_stack.repository.places import find_places, open_as

#: For row groups: enough for scrolling.
_MAX_CACHED_BYTES: Final = 16 << 20


def open_splits(source: Any, split: str | None, resources: contextlib.ExitStack) -> dict[str, DatasetIteratorIF]:
    """Open the splits in the folders of ``source``, such as ``train`` and ``test``, or all of its samples as one split.

    Args:
        source: a path, a URL, or ``(connector, name)``.
        split: the only split to open; None for all.
        resources: closes the opened files.

    Raises:
        ConfigError: the path does not exist, or its format is not detected.
        UnknownSplitError: ``source`` has no such split.
    """
    place = location_of(source)
    found = find_places(place)
    if split is not None and split not in found:
        raise UnknownSplitError(f"{place.full_name} has no split {split!r:.60}; it has {', '.join(found)}")
    return {name: _open(where, kind, resources) for name, (where, kind) in found.items() if split in (None, name)}


def _open(place: Location, kind: str, resources: contextlib.ExitStack) -> DatasetIteratorIF:
    if kind == "parquet":
        from data_stack.formats.parquet import ParquetDataset  # needs pyarrow

        folder, prefix = (place.folder, place.name) if place.is_file() else (place.as_folder(), "")
        return ParquetDataset(folder, prefix=prefix, max_cached_bytes=_MAX_CACHED_BYTES)
    if kind not in FORMATS:
        return open_as(place, kind)
    source = open_source(place, kind)
    resources.callback(source.close)
    return source.values
