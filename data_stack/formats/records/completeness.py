"""How many samples a record dataset has that says nothing of itself, and whether its columns agree on it."""

from __future__ import annotations

from typing import Literal

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.records.bag import Bag
from data_stack.formats.records.layout import REFS
from data_stack.formats.records.record_files import RecordFiles
from data_stack.formats.records.sample_references import SampleReferences
from data_stack.util.logger import logger

__all__ = ["Incomplete", "checked_incomplete", "count_samples"]

Incomplete = Literal["raise", "prefix"]
"""What to do with a dataset without manifest whose columns do not hold the same samples."""


def checked_incomplete(incomplete: Incomplete) -> Incomplete:
    """``incomplete`` if it is one of its values.

    Raises:
        ConfigError: it is not.
    """
    if incomplete not in ("raise", "prefix"):
        raise ConfigError(f"incomplete is 'raise' or 'prefix', not {incomplete!r:.80}")
    return incomplete


def count_samples(files: RecordFiles, references: SampleReferences | None, incomplete: Incomplete = "raise") -> int:
    """The number of samples of a dataset without manifest.

    Args:
        files: the dataset.
        references: which records each sample has, if something tells it; else sample i has record i of each column.
        incomplete: what to do if its columns do not hold the same samples: an error, or the first ones, which all columns have.

    Raises:
        DatasetFileCorruptError: they do not, or a file is missing, or has no index.
    """
    lengths, problems = {}, {}
    for name in files.types if references is None else (*files.types, REFS):
        bag = files.bag(name)
        lengths[name], problem = len(bag), _problem_of(bag)
        bag.close()
        if problem:
            problems[name] = problem
    if references is None:
        n_whole = min(lengths.values())
        expected = dict.fromkeys(lengths, max(lengths.values()))
    else:
        n_whole = references.n_whole(lengths)
        expected = {**lengths, **references.last_ends()}
    if not problems and lengths == expected:
        return n_whole
    columns = ", ".join(
        f"{name} {length:,}" + (f" ({problems[name]})" if name in problems else "") for name, length in lengths.items()
    )
    found = (
        f"the columns of the record dataset {files.folder.name!r} do not hold the same samples; they have so "
        f"many records: {columns}"
    )
    if incomplete == "prefix":
        logger.warning("%s. The first %d samples, which all columns have, are read", found, n_whole)
        return n_whole
    raise DatasetFileCorruptError(
        f"{found}. Its writer did not finish, or a file was cut short or replaced. Restore it from a copy; or go on with it: "
        f"RecordWriter keeps its complete samples and takes those behind; or read the first {n_whole:,} samples, which all "
        f"columns have, with records.open(…, incomplete='prefix')"
    )


def _problem_of(bag: Bag) -> str | None:
    """What the index of a column and its records do not agree on."""
    index = bag.index_file
    if index is None or index is bag.file:  # an index behind the records says where they end, so it agrees
        return None
    n_named, n_torn = divmod(index.size, 8)
    if n_torn:
        return f"{index.name} ends within an entry"
    if n_named > len(bag):
        return f"{bag.file.name} is cut short: its index names {n_named:,} records"
    n_more = bag.n_bytes - (bag.ends.bounds(len(bag) - 1)[1] if len(bag) else 0)
    return f"{bag.file.name} has {n_more:,} bytes behind the last of them" if n_more else None
