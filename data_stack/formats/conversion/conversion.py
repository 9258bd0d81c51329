"""Converts a dataset, and compares the result with its source."""

from __future__ import annotations

import contextlib
import mimetypes
import os
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError, DatasetFileCorruptError, DataStackError
from data_stack.formats.conversion.format import (
    ConvertibleFormat,
    Source,
    as_python_values,
    plain_type,
    size_of,
    source_of_iterator,
    spread,
)
from data_stack.formats.conversion.formats import (
    FORMATS,
    convertible_formats,
    find_format,
    find_format_of_name,
    format_named,
    readable_format_named,
    readable_formats,
)
from data_stack.formats.place_splits import find_splits
from data_stack.io.location import Location, location_of, naming_stand_in
from data_stack.io.progress import new_bar, shows_progress
from data_stack.io.storage_errors import storage_errors
from data_stack.util.group_rights import sync_folder
from data_stack.util.suggestions import did_you_mean
from data_stack.values.digests import column_digests

_Positions = npt.NDArray[np.intp]

#: About the size of a batch in memory, and its maximum number of samples.
_BATCH_BYTES: Final = 8 << 20
_MAX_IN_BATCH: Final = 4096


@dataclass(frozen=True)
class ConversionReport:
    """The result of a conversion.

    Attributes:
        source: name of the source.
        target: name of the target.
        source_format: ``"records"`` …, or ``"iterator"``.
        target_format: ``"records"`` …
        columns: the type of each column, as in records.
        n_samples: number of samples.
        n_verified: number of samples that were read back and compared.
        seconds: duration of the conversion.
    """

    source: str
    target: str
    source_format: str
    target_format: str
    columns: Mapping[str, str]
    n_samples: int
    n_verified: int
    seconds: float


def convert(
    source: Any,
    target: Any,
    *,
    source_format: str | None = None,
    target_format: str | None = None,
    columns: str | Iterable[str] | Mapping[str, str] | None = None,
    shardlen: int | None = None,
    verify: bool = True,
    progress: bool | None = None,
    options: Mapping[str, Any] | None = None,
) -> ConversionReport:
    """Convert a dataset into another format.

    ::

        convert("train.h5", "train", columns="image=x,label=y")     # to records
        convert("train", "mongodb://host/database/train.tar")       # to one WebDataset shard, in a store
        convert(data_stack.load("mnist", "train"), "mnist.npz")

    JPEG, PNG and other media files are copied if the target stores files, and decoded if it stores arrays; nothing is encoded
    lossily. The target gets its name when it is complete and verified (in a store, shards and images appear one by one, and the
    list of them last). A conversion that fails or is interrupted leaves nothing behind. Nothing is overwritten.

    Args:
        source: an iterator, a path, the URL of a store followed by the name of the dataset, or ``(connector, name)``.
        target: a path, URL or ``(connector, name)``.
        source_format: ``"records"``, ``"hdf5"``, ``"npz"``, ``"torch"``, ``"webdataset"``, ``"parquet"``, ``"images"``,
            ``"csv"`` or ``"jsonl"``; None to detect it by suffix and content. CSV and JSON lines are copied first, in bounded
            memory, into a temporary file of about their size.
        target_format: likewise, but not CSV and JSON lines; None to detect it by the suffix: records without the suffix of
            a kind of file.
        columns: ``"a,b"`` or ``["a", "b"]``, renamed by ``"new=old"`` or ``{"new": "old"}``; columns of tuples also by position,
            ``"image=0"``. None for all.
        shardlen: number of samples in a shard of records, Parquet or WebDataset; None for the format's default.
        verify: read all samples back, and compare their digests with the source's.
        progress: show progress bars; None to show them on a terminal and in a notebook.
        options: how to read a file or folder, as for :func:`data_stack.load`: ``{"delimiter": ";"}``.

    Raises:
        ConfigError: a format cannot be detected, the target cannot hold a column, or it exists already.
        DatasetFileCorruptError: the source is damaged, or verification found a difference.
        StorageError: the store failed.
    """
    started = time.perf_counter()
    location = location_of(target)
    chosen = _parse_columns(columns)
    source, kind = _open(source, source_format, location, chosen, dict(options or {}))
    with source.resources:
        source = source.select_columns(chosen)
        if target_format is None:
            target_format = _format_of_target(location)
        target = format_named(target_format)
        target.check(source, location, shardlen)
        with _publish(location, is_renamed=target.is_folder(location)) as place:
            with new_bar(
                desc="converting",
                total=len(source),
                unit=" samples",
                disable=not shows_progress(progress),
            ) as bar:
                target.write(
                    source, place, location.name, shardlen, _read_batches(source, target, bar)
                )
            n_verified = _verify(target, place, source, progress) if verify else 0
        types = {name: column.type for name, column in source.schema.items()}
        seconds = time.perf_counter() - started
        return ConversionReport(
            source.name,
            location.full_name,
            kind,
            target.name,
            types,
            len(source),
            n_verified,
            seconds,
        )


def _format_of_target(location: Location) -> str:
    """The format that the name of a target says: records, unless it has the suffix of a file.

    In ``digits.v2`` the dot is part of the name; ``digits.zip`` and ``digits.parqet`` are no folders of records.

    Raises:
        ConfigError: no format is written into files of the suffix.
    """
    suffix = os.path.splitext(location.name)[1].lower()
    known = {known for each in FORMATS.values() for known in each.suffixes}
    of_files = mimetypes.MimeTypes(filenames=()).types_map[True]
    compressions = mimetypes.MimeTypes(filenames=()).encodings_map
    is_of_file = suffix in known or suffix in of_files or suffix in compressions
    if suffix and (is_of_file or did_you_mean(suffix, known)):
        near = did_you_mean(suffix, known)
        choice = f"{near.strip()} choose one: --to {' or '.join(convertible_formats())}".strip()
        return find_format_of_name(location, choice)
    return "records"


def _parse_columns(
    columns: str | Iterable[str] | Mapping[str, str] | None,
) -> dict[str, str] | None:
    """Parse ``"a,b=c"``, ``["a", "b=c"]`` or ``{"a": "a", "b": "c"}`` into old names by new names; None for all.

    Raises:
        ConfigError: the syntax is wrong, or a column is named twice.
    """
    if columns is None:
        return None
    if isinstance(columns, Mapping):
        return dict(columns)
    parsed: dict[str, str] = {}
    for part in columns.split(",") if isinstance(columns, str) else columns:
        new, equals, old = part.partition("=")
        if not new or (equals and not old) or new in parsed:
            raise ConfigError(f"columns must be a,b or new=old, each once, got {part!r:.80}")
        parsed[new] = old or new
    if not parsed:
        raise ConfigError("columns is empty; name at least one")
    return parsed


def _open(
    source: Any,
    kind: str | None,
    target: Location,
    columns: Mapping[str, str] | None,
    options: dict[str, Any],
) -> tuple[Source, str]:
    if isinstance(source, DatasetIteratorIF):
        if kind is not None:
            raise ConfigError(
                "source_format= applies to files and folders; leave it out for an iterator"
            )
        if options:
            raise ConfigError("options= applies to files and folders; leave it out for an iterator")
        return source_of_iterator(source), "iterator"
    location = location_of(source)
    if location.full_name == target.full_name:
        raise ConfigError(f"source and target are both {location.full_name}")
    splits = [name for name, files in find_splits(location, kind).items() if not files.is_place]
    if splits:
        raise ConfigError(
            f"{location.full_name} has the splits {', '.join(splits)}; convert each: pass "
            f"data_stack.load(path, split={splits[0]!r}), or in the shell PATH:{splits[0]}"
        )
    kind = kind or find_format(
        location, f"say which it is: --from {' or '.join(readable_formats())}"
    )
    found = readable_format_named(kind)
    names = None if columns is None else list(dict.fromkeys(columns.values()))
    for option in options:
        if option not in found.options:
            known = ", ".join(sorted(found.options)) or "none"
            raise ConfigError(
                f"{location.full_name} is read as {found.name}, which has no option {option!r:.60}"
                f"{did_you_mean(option, found.options)}; its options: {known}"
            )
    with naming_stand_in(location):
        return found.open_columns(location, names, **options), found.name


@contextlib.contextmanager
def _publish(location: Location, *, is_renamed: bool) -> Iterator[Location]:
    """The place to write a dataset, which is published when the block ends cleanly, and removed otherwise.

    Args:
        location: its final place.
        is_renamed: whether it is a folder. A local folder has a temporary name until it is complete; in a store, the last file
            marks it as complete.

    Raises:
        ConfigError: the target exists already, or another process is writing it.
    """
    if location.is_file() or location.is_folder():
        raise ConfigError(
            f"{location.full_name} exists already; remove it, or choose another target"
        )
    path = location.path if is_renamed else None
    with contextlib.ExitStack() as stack:
        attempt = location
        if path is not None:
            attempt = Location(location.folder, f".{location.name}.part")
            if not stack.enter_context(location.folder.lease(f"{attempt.name}.lock")).acquire():
                raise ConfigError(f"{location.full_name} is being written by another process")
            _remove(attempt)  # files of a killed conversion
        try:
            yield attempt
            if path is not None:
                with storage_errors("make", str(path)):
                    os.rename(path.with_name(attempt.name), path)
                    sync_folder(str(path.parent))
        except BaseException:
            with contextlib.suppress(
                DataStackError, OSError
            ):  # of a store that cannot remove; the first error is raised
                _remove(attempt)
            raise


def _remove(place: Location) -> None:
    if place.path is not None and place.path.is_dir():
        with storage_errors("remove", place.path):
            shutil.rmtree(place.path)
        return
    if place.is_file():
        place.folder.delete(place.name)
    folder = place.as_folder()
    for name in folder.list_files():
        folder.delete(name)


def _read_batches(source: Source, target: ConvertibleFormat, bar: Any) -> Iterator[dict[str, Any]]:
    stored = source.stored_names if target.keeps_files else []
    for positions in _batches(source, stored):
        yield source.read(positions, source.schema, stored)
        bar.update(len(positions))


def _batches(source: Source, stored: Collection[str] = ()) -> Iterator[_Positions]:
    """All positions, in batches of a few MiB, estimated from the size of some samples."""
    if len(source):
        some = spread(len(source))
        n_bytes = sum(map(size_of, source.read(some, source.schema, stored).values())) / len(some)
        size = int(max(1, min(_MAX_IN_BATCH, _BATCH_BYTES // max(1, n_bytes))))
        for start in range(0, len(source), size):
            yield np.arange(start, min(start + size, len(source)), dtype=np.intp)


def _verify(
    target: ConvertibleFormat, place: Location, source: Source, progress: bool | None
) -> int:
    """Read back and compare all samples; returns their number."""
    found = target.open(place)
    with found.resources:
        if len(source) == 0 == len(found):  # some formats have no columns without samples
            return 0
        if (
            len(found) != len(source)
            or set(source.schema) - set(found.keys)
            or set(found.schema) - set(source.schema)
        ):
            became = f"{source.name} became {found.schema.keys()}, {len(found):,} samples"
            raise DatasetFileCorruptError(f"the conversion failed, report this: {became}")
        found = found.select_columns({name: name for name in source.schema})
        readable = set(source.stored_names).intersection(found.stored_names)
        stored = [name for name in readable if found.schema[name].type == source.schema[name].type]
        with new_bar(
            desc="verifying",
            total=len(source),
            unit=" samples",
            disable=not shows_progress(progress),
        ) as bar:
            for positions in _batches(source):
                mine, others = (
                    each.read(positions, source.schema, stored) for each in (source, found)
                )
                for name, column in source.schema.items():
                    if plain_type(column.type) == "json":
                        others[name] = as_python_values(others[name])
                    unequal = (column_digests(mine[name]) != column_digests(others[name])).any(
                        axis=1
                    )
                    if unequal.any():
                        where = f"column {name!r} of sample {positions[unequal.argmax()]}"
                        raise DatasetFileCorruptError(
                            f"{where} differs in the result; leave it out"
                        )
                bar.update(len(positions))
    return len(source)
