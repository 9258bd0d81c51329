"""Opens datasets of known formats as samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.layers.columns_layer import list_columns
from data_stack.dataset.iterator.layers.combined import CombinedDatasetIterator
from data_stack.dataset.iterator.names_of_others import FILE_ARGUMENTS, explain
from data_stack.exception import ConfigError
from data_stack.formats.dataset_files import DatasetFiles
from data_stack.formats.format import ALL_COLUMNS, ColumnChoice, Format, FormatOptions
from data_stack.formats.registry import format_named
from data_stack.io.location import Location, explain_stand_in
from data_stack.util.program_lines import warn_program
from data_stack.util.suggestions import did_you_mean

_NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})

#: The arguments of :func:`open_as` that all formats have, besides their own options.
_COMMON_OPTIONS: Final = ("format", "target", "columns")


def open_as(
    place: Location,
    kind: str,
    target: str | None = None,
    columns: Sequence[str] | None = None,
    options: Mapping[str, Any] = _NO_OPTIONS,
) -> DatasetIteratorIF:
    """Open one file or folder of a known format as samples.

    Args:
        place: the file or folder.
        kind: the name of its format.
        target: the column of the target.
        columns: a selection, in this order.
        options: how to read it, see :meth:`~data_stack.repository.places.Place.load`.

    Raises:
        ConfigError: there is no such format, option, target or column.
        DatasetFileCorruptError: the dataset is damaged, or of another format.
    """
    format_ = format_named(kind)
    format_options = make_options(place.full_name, format_, options)
    with explain_stand_in(place):
        samples = format_.open(place, _choose_columns(columns, target), format_options)
    iterator: DatasetIteratorIF = format_.with_target(samples, place, target)
    if columns is not None:
        iterator = iterator.select(*columns)
    return iterator


def open_splits(
    datasets: Mapping[str, DatasetFiles],
    chosen: Sequence[str],
    target: str | None = None,
    columns: Sequence[str] | None = None,
    options: Mapping[str, Any] = _NO_OPTIONS,
) -> dict[str, DatasetIteratorIF]:
    """Open some of the datasets at a place as samples.

    Whatever is chosen, classes and types are those of all splits of the place: a class has one
    number, and a column of a CSV or JSON lines file one dtype, in all of them. A split without the
    target, as a test split often is, has no target.

    Args:
        datasets: all datasets at the place, which have one format, as
            :func:`~data_stack.formats.place_splits.find_places` returns them.
        chosen: the names of those to open.
        target: the column of the target.
        columns: a selection, in this order; a split that lacks the target is read without it.
        options: how to read them, see :meth:`~data_stack.repository.places.Place.load`.

    Raises:
        ConfigError: there is no such option, no split has the target, or a column of JSON lines
            has types in two splits that no dtype holds.

    Warns:
        UserWarning: a column has different types in two splits.
    """
    if columns is not None:
        columns = list_columns(columns)
        if not columns:
            raise ConfigError("samples need at least one column; columns=[] selects none")
    first_dataset = next(iter(datasets.values()))
    format_ = format_named(first_dataset.kind)
    format_options = make_options(first_dataset.parts[0].full_name, format_, options)
    splits = {name: files for name, files in datasets.items() if files.is_split}

    choice = _choose_columns(columns, target)
    parts: Mapping[str, Sequence[DatasetIteratorIF]]
    if splits:
        parts = format_.open_splits(datasets, chosen, choice, format_options)
    else:
        parts = {
            name: format_.open_parts(datasets[name].parts, choice, format_options)
            for name in chosen
        }

    opened: dict[str, DatasetIteratorIF] = {}
    for name in chosen:
        target_of_split = target
        columns_of_split = columns
        may_lack_target = (
            target is not None
            and name in splits
            and not _has_target(format_, parts[name], target)
            and _is_target_elsewhere(format_, splits, parts, target, format_options)
        )
        if may_lack_target:
            target_of_split = None
            columns_of_split = _without_column(columns, target)
        samples = _join_with_target(format_, parts[name], datasets[name].parts, target_of_split)
        if columns_of_split is not None:
            samples = samples.select(*columns_of_split)
        opened[name] = samples
    _warn_of_types(opened, splits)
    return opened


def _join_with_target(
    format_: Format,
    parts: Sequence[DatasetIteratorIF],
    locations: Sequence[Location],
    target: str | None,
) -> Any:
    """Return the samples of all parts of a dataset, whose meta names the target.

    Args:
        format_: the format of the parts.
        parts: the parts. A format may open several files as one part.
        locations: where the files are, at least as many as parts. A part of several files gets the
            location of the first one.
        target: the column of the target; None without one.
    """
    if len(parts) == len(locations):
        _warn_of_columns(parts, locations)
    parts_with_target = []
    for part, location in zip(parts, locations, strict=False):
        parts_with_target.append(format_.with_target(part, location, target))
    return _join_parts(parts_with_target)


def _join_parts(parts: Sequence[Any]) -> Any:
    """Return the samples of all parts, one part after the other."""
    if len(parts) == 1:
        return parts[0]
    first = as_iterator(parts[0])
    # combine() would also compare the classes, which parts of one dataset share.
    return first._stack_layer(CombinedDatasetIterator, *parts[1:])


def make_options(name: str, format_: Format, options: Mapping[str, Any]) -> FormatOptions:
    """Return the options of a format.

    Args:
        name: the name of the place, for messages.
        format_: the format of the place.
        options: values by name.

    Raises:
        ConfigError: the format lacks an option.
    """
    own_options = format_.list_options()
    known = [*_COMMON_OPTIONS, *own_options]
    for option in options:
        if option not in own_options:
            hint = explain(option, FILE_ARGUMENTS) or did_you_mean(option, known)
            raise ConfigError(
                f"{name} is opened as {format_.name}, which has no option {option!r:.60}{hint}; "
                f"its options: {', '.join(known)}"
            )
    return format_.options_class(**options)


def _choose_columns(columns: Sequence[str] | None, target: str | None) -> ColumnChoice:
    """Return the columns to open for a selection. The target is optional: a split may lack it."""
    # select(), which is called afterwards, raises the error of something that names no column.
    if columns is None or not all(isinstance(column, str) for column in columns):
        return ALL_COLUMNS
    required = tuple(column for column in columns if column != target)
    if target is None:
        return ColumnChoice(required)
    return ColumnChoice(required, (target,))


def _without_column(columns: Sequence[str] | None, column: str | None) -> list[str] | None:
    """Return a selection of columns without one; None, which means all columns, stays None."""
    if columns is None:
        return None
    return [name for name in columns if name != column]


def _has_target(format_: Format, parts: Sequence[DatasetIteratorIF], target: str) -> bool:
    """Return whether all parts of a dataset have the column of the target."""
    return all(target in format_.list_columns(part) for part in parts)


def _is_target_elsewhere(
    format_: Format,
    splits: Mapping[str, DatasetFiles],
    opened: Mapping[str, Sequence[DatasetIteratorIF]],
    target: str,
    options: FormatOptions,
) -> bool:
    """Return whether some split has the target, so that another one may lack it.

    A split that was not chosen is opened to look at its columns.

    Args:
        format_: the format of the splits.
        splits: the files of all splits.
        opened: the parts of the splits that are open.
        target: the column of the target.
        options: how to read a split that is not open.
    """
    for name, files in splits.items():
        parts = opened.get(name)
        if parts is None:
            parts = format_.open_parts(files.parts, options=options)
        if _has_target(format_, parts, target):
            return True
    return False


def _warn_of_columns(parts: Sequence[DatasetIteratorIF], locations: Sequence[Location]) -> None:
    """Warn of parts of one dataset that lack columns which another part has.

    Their samples can be read one by one, but not in one batch.

    Args:
        parts: the parts. One that does not declare its columns is passed over.
        locations: where they are, in the same order.
    """
    columns_of_parts = []
    for part in parts:
        declared_columns = access_to(part).declare_columns() or {}
        columns_of_parts.append([str(column) for column in declared_columns])
    all_columns = dict.fromkeys(column for columns in columns_of_parts for column in columns)

    for columns, location in zip(columns_of_parts, locations, strict=True):
        missing_columns = [column for column in all_columns if column not in columns]
        if columns and missing_columns:
            shown_columns = ", ".join(f"{column!r:.80}" for column in missing_columns[:5])
            warn_program(
                f"{location.full_name} lacks columns that other parts of the dataset have: "
                f"{shown_columns}. Samples of both do not fit into one batch: add the columns to "
                "the file, or read only common ones (columns=)"
            )
            return


def _warn_of_types(
    opened: Mapping[str, DatasetIteratorIF], splits: Mapping[str, DatasetFiles]
) -> None:
    """Warn of columns whose dtypes differ between splits, in files that say their dtypes."""
    dtypes_by_column: dict[str, dict[str, str]] = {}
    for split, iterator in opened.items():
        if split not in splits:
            continue
        declared_columns = access_to(iterator).declare_columns() or {}
        for column, declared in declared_columns.items():
            if declared.dtype is not None:
                dtypes_of_column = dtypes_by_column.setdefault(str(column), {})
                dtypes_of_column[split] = declared.dtype

    columns_that_differ = []
    for column, dtypes in dtypes_by_column.items():
        if len(set(dtypes.values())) > 1:
            columns_that_differ.append(column)
    if not columns_that_differ:
        return
    first_column = columns_that_differ[0]
    dtypes = dtypes_by_column[first_column]
    shown_dtypes = ", ".join(f"{dtype} in {split}" for split, dtype in dtypes.items())
    n_others = len(columns_that_differ) - 1
    suffix = f" (so do {n_others} other columns)" if n_others else ""
    warn_program(
        f"column {first_column!r:.80} differs between splits: it is {shown_dtypes}{suffix}"
    )
