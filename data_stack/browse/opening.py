"""Opens what lies at a path or URL as splits; of any format that `data-stack convert` reads."""

from __future__ import annotations

import contextlib
from typing import Any

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError, UnknownSplitError
from data_stack.formats.conversion.location import find_source_format
from data_stack.formats.conversion.source import open_source
from data_stack.io.location import Location, location_of

__all__ = ["open_splits"]


def open_splits(source: Any, split: str | None, resources: contextlib.ExitStack) -> dict[str, DatasetIteratorIF]:
    """The splits that lie at a place: those in its folders, such as ``train`` and ``test``; or else all samples as one.

    Args:
        source: a path, a URL, or ``(connector, name)``.
        split: the only one to open; None for all.
        resources: closes what is opened.

    Raises:
        ConfigError: nothing is there, or its format cannot be told.
        UnknownSplitError: there is no such split.
    """
    place = location_of(source)
    try:
        splits = {place.name: _open(place, resources)}
    except ConfigError as error:
        folder = place.as_folder()
        splits = {}
        for name in sorted(folder.list_names(), key=lambda name: (not name.startswith("train"), name)):
            with contextlib.suppress(ConfigError):
                splits[name] = _open(Location(folder, name), resources)
        if not splits:
            raise error from None
    if split is not None and split not in splits:
        raise UnknownSplitError(f"{place.full_name} has no split {split!r:.60}; it has {', '.join(splits)}")
    return splits if split is None else {split: splits[split]}


def _open(place: Location, resources: contextlib.ExitStack) -> DatasetIteratorIF:
    kind = find_source_format(place)
    if kind == "parquet":
        from data_stack.browse.parquet import open_parquet  # needs pyarrow

        return open_parquet(place)
    source = open_source(place, kind)
    resources.callback(source.close)
    return source.values
