"""Counts the samples of a record dataset."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import numpy as np

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records.bag import Bag
from data_stack.formats.records.layout import ENTRY_BYTES, MAX_RECORDS, REFS
from data_stack.formats.records.manifest import MANIFEST, RecordsManifest
from data_stack.formats.records.record_files import RecordFiles
from data_stack.formats.records.sample_references import SampleReferences


def count_samples(files: RecordFiles, references: SampleReferences | None) -> int:
    """Return the number of samples, which the manifest says, or the files without one.

    Args:
        files: the files of the dataset.
        references: maps samples to records; None if sample i has record i of each column.

    Raises:
        DatasetFileCorruptError: the number is impossible, there are fewer samples, or the columns
            do not hold the same samples.
    """
    manifest = files.description.manifest
    if manifest is None:
        return _count_in_files(files, references)
    _check_count(files, manifest, references)
    return manifest.count


def _check_count(
    files: RecordFiles, manifest: RecordsManifest, references: SampleReferences | None
) -> None:
    """Check the number of samples in a manifest.

    Raises:
        DatasetFileCorruptError: the number is impossible, or there are fewer samples.
    """
    if manifest.count > MAX_RECORDS:
        raise DatasetFileCorruptError(
            f"{files.folder.full_name(MANIFEST)} claims {manifest.count:,} samples"
        )
    if references is not None and len(references) < manifest.count:
        raise DatasetFileCorruptError(
            f"{files.folder.name}: {REFS}.bag misses samples of {MANIFEST}: {manifest.count:,}"
        )


def _count_in_files(files: RecordFiles, references: SampleReferences | None) -> int:
    """Count the samples of a dataset without a manifest.

    Raises:
        DatasetFileCorruptError: the columns do not hold the same samples, or a file is missing, or
            has no index.
    """
    types = files.description.types
    n_records = {}
    are_complete = True
    for name in types:
        with contextlib.closing(files.bag(name)) as bag:
            n_records[name] = len(bag)
            if not _is_complete(bag):
                are_complete = False

    if references is None:
        n_samples = min(n_records.values())
        names_to_compare = set(types)
    else:
        n_samples = len(references)
        names_to_compare = {name for name, kind in types.items() if not kind.endswith("[]")}
        _check_last_sample(references, n_samples, n_records)
    is_even = all(n_records[name] == n_samples for name in names_to_compare)
    if not are_complete or not is_even:
        raise DatasetFileCorruptError(
            f"the columns of {files.folder.name!r} differ in their numbers of complete records: "
            f"{n_records}. Restore it from a copy, or open it with RecordWriter, "
            "which keeps its complete samples"
        )
    return n_samples


def _is_complete(bag: Bag) -> bool:
    """Return whether a bag ends with its last record, and its index with the entry of it."""
    end_of_last_record = 0
    if len(bag) > 0:
        _, ends = bag.bounds(range(len(bag) - 1, len(bag)))
        end_of_last_record = int(ends[0])
    if bag.n_bytes != end_of_last_record:
        return False
    index = bag.offsets.file
    if index is None or index is bag.file:
        return True
    return index.size == ENTRY_BYTES * len(bag)


def _check_last_sample(
    references: SampleReferences, n_samples: int, n_records: Mapping[str, int]
) -> None:
    """Check that the last sample names records that the columns have.

    Raises:
        DatasetFileCorruptError: it names others.
    """
    if n_samples == 0:
        return
    last = np.array([n_samples - 1])
    for name, (firsts, counts) in references.many(last).items():
        references.check(name, n_records[name], last, firsts, counts)
