"""Opens files and folders of known formats; the splits of a place so that their classes and types agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.access import access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.described import ARGUMENTS, explain
from data_stack.dataset.iterator.layers.combined import CombinedDatasetIterator
from data_stack.exception import ConfigError
from data_stack.formats.conversion.formats import FORMATS, CSVFormat, format_named
from data_stack.formats.image_folder import ImageFolderIterator, open_splits_of_images
from data_stack.formats.place_splits import DatasetFiles
from data_stack.formats.records import open as open_records
from data_stack.formats.webdataset import KEY
from data_stack.formats.webdataset_writer import open_shards
from data_stack.io.location import Location, naming_stand_in
from data_stack.util.program_lines import warn_program
from data_stack.util.suggestions import did_you_mean

_NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


def open_as(
    place: Location,
    kind: str,
    target: str | None = None,
    columns: Sequence[str] | None = None,
    options: Mapping[str, Any] = _NO_OPTIONS,
) -> DatasetIteratorIF:
    """The samples of one file or folder of a known format; see :meth:`~data_stack.repository.places.Place.load`."""
    check_options(place.full_name, kind, options)
    wanted = _Wanted.of(columns, target)
    iterator = _open(place, kind, options, wanted).with_target(target)
    return iterator if columns is None else iterator.select(*columns)


def open_splits(
    datasets: Mapping[str, DatasetFiles],
    chosen: Sequence[str],
    target: str | None = None,
    columns: Sequence[str] | None = None,
    options: Mapping[str, Any] = _NO_OPTIONS,
) -> dict[str, DatasetIteratorIF]:
    """The samples of some of the datasets at a place, as :func:`~data_stack.formats.place_splits.find_places` found them.

    Whatever is chosen, classes and types are those of all splits of the place: a class has one number, and a column of a CSV or
    JSON lines file one dtype, in all of them. A split without the target, as a test split often is, has no target.

    Args:
        datasets: all datasets at the place, which have one format.
        chosen: the names of those to open.
        target: the column of the target.
        columns: a selection, in this order; a split that lacks the target is read without it.
        options: as for :meth:`~data_stack.repository.places.Place.load`.

    Raises:
        ConfigError: there is no such option, no split has the target, or a column of JSON lines has types in two splits that no
            dtype holds.

    Warns:
        UserWarning: a column has different types in two splits.
    """
    for files in datasets.values():
        check_options(files.parts[0].full_name, files.kind, options)
    splits = {name: files for name, files in datasets.items() if files.is_split}
    kind = next(iter(datasets.values())).kind
    if splits and kind == "images":
        parts = _open_images(datasets, options)
    elif splits and kind in ("csv", "jsonl"):
        parts = _open_tables(datasets, chosen, options, _Wanted.of(columns, target))
    else:
        wanted = _Wanted.of(columns, target)
        parts = {name: _open_parts(datasets[name], options, wanted) for name in chosen}
    opened: dict[str, DatasetIteratorIF] = {}
    for name in chosen:
        target_here = target
        columns_here = columns
        is_lacking = any(target not in part.columns for part in parts[name])
        may_lack = target is not None and is_lacking and name in splits
        if may_lack and _has_target(splits, parts, target, options):
            target_here = None
            columns_here = columns and [column for column in columns if column != target]
        iterator = joined([part.with_target(target_here) for part in parts[name]])
        opened[name] = iterator if columns_here is None else iterator.select(*columns_here)
    _warn_of_types(opened, splits)
    return opened


def joined(parts: Sequence[Any]) -> Any:
    """The samples of all parts, one after the other."""
    first = as_iterator(parts[0])
    if len(parts) == 1:
        return parts[0]
    return first._stack_layer(CombinedDatasetIterator, *parts[1:])


def check_options(name: str, kind: str, options: Mapping[str, Any]) -> None:
    """Check that a format has the options.

    Raises:
        ConfigError: it lacks one.
    """
    taken = ["format", "target", "columns", *sorted(FORMATS[kind].options)]
    for option in options:
        if option not in taken[3:]:
            hint = f"{explain(option, ARGUMENTS) or did_you_mean(option, taken)}; its options: {', '.join(taken)}"
            raise ConfigError(
                f"{name} is opened as {kind}, which has no option {option!r:.60}{hint}"
            )


# ---------------------------------------------------------------------- one format


@dataclass(frozen=True)
class _Wanted:
    """The columns that will be read; others need not be readable.

    Attributes:
        columns: their names; None for all.
        optional: further ones, if they exist.
    """

    columns: tuple[str, ...] | None = None
    optional: tuple[str, ...] = ()

    @classmethod
    def of(cls, columns: Sequence[str] | None, target: str | None) -> _Wanted:
        """The columns of a selection, and the target, which a split may lack."""
        is_list = columns is not None and not isinstance(columns, str)
        if not is_list or not all(isinstance(column, str) for column in columns or ()):
            return cls()  # select() says what is wrong
        names = tuple(column for column in columns or () if column != target)
        return cls(names, () if target is None else (target,))


@dataclass(frozen=True)
class _Opened:
    """An opened file or folder, without a target.

    Attributes:
        samples: its samples.
        source: its name in the meta.
        columns: the positions or names of its columns.
    """

    samples: DatasetIteratorIF
    source: str
    columns: Sequence[Any]

    def with_target(self, target: str | None) -> DatasetIteratorIF:
        """The samples with a meta that says which column is the target; raises ConfigError if it does not exist."""
        from data_stack.formats.image_folder import with_labels
        from data_stack.formats.targets import with_target

        if isinstance(self.samples, ImageFolderIterator):
            return with_labels(self.samples, target)
        return with_target(self.samples, self.source, self.columns, target)


_ALL: Final = _Wanted()


def _open(
    place: Location, kind: str, options: Mapping[str, Any], wanted: _Wanted = _ALL
) -> _Opened:
    with naming_stand_in(place):
        return _open_as(place, kind, options, wanted)


def _open_as(place: Location, kind: str, options: Mapping[str, Any], wanted: _Wanted) -> _Opened:
    if kind in ("csv", "jsonl"):
        return _open_table(place, kind, options, wanted)
    if kind == "images":
        pictures = ImageFolderIterator(place.as_folder(), **options)
        return _Opened(pictures, place.name, pictures.fields)
    if kind == "npy":
        from data_stack.formats.numpy_arrays import NumpyDatasetIterator

        return _Opened(NumpyDatasetIterator([place.open()]), place.name, [0])
    if kind == "bin":
        from data_stack.formats.numpy_arrays import RawDatasetIterator

        if "dtype" not in options:
            raise ConfigError(
                f"{place.full_name} holds bare numbers: pass dtype=, e.g. dtype='uint16'"
            )
        return _Opened(RawDatasetIterator([place.open()], **options), place.name, [0])
    if kind == "parquet":  # a description of its columns for other formats would read all rows
        from data_stack.formats.conversion.parquet_columns import open_parquet

        rows = open_parquet(place, **options)
        return _Opened(rows, place.name, list(rows.schema.fields))
    if kind == "records":  # a conversion opens columns of pictures twice
        records = open_records(place.as_folder())
        return _Opened(records, place.name, list(records.schema))
    found = format_named(kind)
    source = found.open_columns(place, wanted.columns, optional=wanted.optional, **options)
    return _Opened(source.values, place.name, list(source.keys.values()))


def _open_table(
    place: Location, kind: str, options: Mapping[str, Any], wanted: _Wanted = _ALL
) -> _Opened:
    from data_stack.formats.text_tables.column_errors import UnknownColumnError
    from data_stack.formats.text_tables.reading import from_csv, from_jsonl

    read: Any = from_jsonl
    given = dict(options)
    if kind == "csv":
        read = from_csv
        given = {**CSVFormat().options_of_name(place.name), **options}
    columns = None if wanted.columns is None else [*wanted.columns, *wanted.optional]
    try:
        rows = read(place.local_file() or place.open(), columns=columns, **given)
    except UnknownColumnError as error:
        if columns is None or error.column not in wanted.optional:
            raise
        rows = read(place.local_file() or place.open(), columns=wanted.columns, **given)
    names = list(access_to(rows).declare_columns() or {})
    return _Opened(rows, str(place.path or place.full_name), names)


def _open_parts(
    files: DatasetFiles, options: Mapping[str, Any], wanted: _Wanted = _ALL
) -> list[_Opened]:
    """The parts of a dataset; files of rows and shards as one."""
    is_of_files = len(files.parts) > 1 and all(part.is_file() for part in files.parts)
    if is_of_files and files.kind == "parquet":
        from data_stack.formats.conversion.parquet_columns import open_parquet

        rows = open_parquet(files.parts, **options)
        return [_Opened(rows, files.parts[0].name, list(rows.schema.fields))]
    if is_of_files and files.kind == "webdataset":
        shards = open_shards(
            files.parts, wanted.columns, optional=wanted.optional, types=options.get("types")
        )
        return [_Opened(shards, files.parts[0].name, [KEY, *shards.fields])]
    return [_open(part, files.kind, options, wanted) for part in files.parts]


# ---------------------------------------------------------------------- splits that agree


def _open_images(
    datasets: Mapping[str, DatasetFiles], options: Mapping[str, Any]
) -> dict[str, list[_Opened]]:
    """The pictures of all splits, whose classes have the same numbers."""
    folder = next(iter(datasets.values())).parts[0].folder
    names = {split: [part.name for part in files.parts] for split, files in datasets.items()}
    opened = open_splits_of_images(folder, names, **options)
    return {
        split: [_Opened(pictures, folder.name, pictures.fields) for pictures in iterators]
        for split, iterators in opened.items()
    }


def _open_tables(
    datasets: Mapping[str, DatasetFiles],
    chosen: Sequence[str],
    options: Mapping[str, Any],
    wanted: _Wanted,
) -> dict[str, list[_Opened]]:
    """The tables of all splits, whose columns have the same types; a table that is no split has its own."""
    from data_stack.formats.text_tables.agreement import read_alike

    alike = [
        (split, part) for split, files in datasets.items() for part in files.parts if files.is_split
    ]
    kind = next(iter(datasets.values())).kind

    def read(number: int, dtypes: Mapping[str, Any]) -> DatasetIteratorIF:
        given = {**options, "dtypes": dtypes}
        return _open_table(alike[number][1], kind, given, wanted).samples

    tables = read_alike(
        read,
        [part.full_name for _, part in alike],
        options.get("dtypes"),
        of_text=kind == "csv",
    )
    opened: dict[str, list[_Opened]] = {}
    for (split, part), rows in zip(alike, tables, strict=True):
        columns = list(access_to(rows).declare_columns() or {})
        source = str(part.path or part.full_name)
        opened.setdefault(split, []).append(_Opened(rows, source, columns))
    for name in chosen:
        if name not in opened:
            opened[name] = _open_parts(datasets[name], options, wanted)
    return opened


def _has_target(
    splits: Mapping[str, DatasetFiles],
    opened: Mapping[str, Sequence[_Opened]],
    target: str | None,
    options: Mapping[str, Any],
) -> bool:
    """Whether a split has the target, so that another one may lack it."""
    for name, files in splits.items():
        parts = opened[name] if name in opened else _open_parts(files, options)
        if all(target in part.columns for part in parts):
            return True
    return False


def _warn_of_types(
    opened: Mapping[str, DatasetIteratorIF], splits: Mapping[str, DatasetFiles]
) -> None:
    """Warn of columns whose dtypes differ between splits, in files that say their dtypes themselves."""
    dtypes: dict[str, dict[str, str]] = {}
    for split, iterator in opened.items():
        if split in splits:
            for column, declared in (access_to(iterator).declare_columns() or {}).items():
                if declared.dtype is not None:
                    dtypes.setdefault(str(column), {})[split] = declared.dtype
    differing = {
        column: of_splits
        for column, of_splits in dtypes.items()
        if len(set(of_splits.values())) > 1
    }
    if differing:
        column, of_splits = next(iter(differing.items()))
        held = ", ".join(f"{dtype} in {split}" for split, dtype in of_splits.items())
        more = f" (so do {len(differing) - 1} other columns)" if len(differing) > 1 else ""
        warn_program(f"column {column!r:.80} differs between splits: it is {held}{more}")
