"""Verifies all files of a record dataset."""

from __future__ import annotations

import functools

import numpy as np

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records.layout import REFS
from data_stack.formats.records.manifest import MANIFEST, FileRecord, RecordsManifest
from data_stack.formats.records.record_files import RecordFiles
from data_stack.formats.records.stored_file import block_damage
from data_stack.io.folder import Folder
from data_stack.io.integrity import Digest, differing_blocks
from data_stack.util.logger import logger

_READ_BYTES = 1 << 20
_SAMPLES_AT_ONCE = 1 << 12


def uncovered_message(folder: Folder, manifest: RecordsManifest, n_samples: int) -> str:
    """The message for a dataset that has more samples than its manifest covers."""
    return (
        f"{folder.full_name(MANIFEST)} covers {manifest.count:,} of {n_samples:,} samples: another program, such as Granular, "
        f"appended the others. These have no checksums; add them with data_stack.formats.records.seal({folder.name!r})"
    )


@functools.cache
def warn_once(message: str) -> None:
    """Log a warning, unless it was logged before."""
    logger.warning("%s", message)


def verify_files(folder: Folder) -> None:
    """Compare all files with the manifest, if there is one, and all indexes with their records.

    Raises:
        DatasetFileCorruptError: a file is damaged; the error names the first damage.
    """
    files = RecordFiles(folder)
    manifest = files.manifest
    covering = manifest or files.covered
    if covering is not None:
        for file, record in covering.files.items():
            _verify_file(folder, file, record)
    references = files.references()
    n_samples = files.count_samples(references) if manifest is None else 0
    if files.covered is not None:
        logger.warning("%s", uncovered_message(folder, files.covered, n_samples))
    n_records = {}
    count = None if manifest is None or references is not None else manifest.count
    for name in ([] if references is None else [REFS]) + list(files.types):
        bag = files.bag(name, count)
        wrong = bag.ends.check_order()
        last = range(max(0, len(bag) - 1), len(bag))
        if wrong < 0 and manifest is not None and (bag.bounds(last)[1] != bag.n_bytes).any():
            wrong = last.start
        if wrong >= 0:
            begins, ends = bag.ends.bounds(range(wrong, wrong + 1))
            raise bag.wrong_bounds(wrong, int(begins[0]), int(ends[0]))
        n_records[name] = len(bag)
        bag.close()
    if references is not None:
        for start in range(0, len(references), _SAMPLES_AT_ONCE):
            positions = np.arange(start, min(start + _SAMPLES_AT_ONCE, len(references)))
            for name, (firsts, counts) in references.many(positions).items():
                references.check(name, n_records[name], positions, firsts, counts)


def _verify_file(folder: Folder, file: str, record: FileRecord) -> None:
    name, digest = folder.full_name(file), Digest()
    with folder.open(file) as resource:
        while digest.size < record.size and (data := resource.read(min(_READ_BYTES, record.size - digest.size))):
            digest.update(data)
    for block in differing_blocks(digest.blocks, record.blocks):
        raise block_damage(name, block)
    if digest.size != record.size or digest.sha256 != record.sha256:
        raise DatasetFileCorruptError(
            f"{name} is damaged: its first {record.size:,} bytes have the SHA-256 {digest.sha256}, but {record.sha256} when "
            f"the dataset was finished. Restore the file from a copy, or write the dataset again"
        )
