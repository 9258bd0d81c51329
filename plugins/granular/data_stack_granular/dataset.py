"""A dataset in one folder: a bag for each column, beside the types of the columns."""

from __future__ import annotations

import contextlib
import copy
import functools
import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Union

from data_stack.exception import ConfigError, MissingFileError, ResourceNotFoundError
from data_stack.formats import records
from data_stack.formats.records.layout import (
    SPEC,
    bag_name,
    check_columns,
    parse_spec,
    spec_json,
)
from data_stack.formats.records.manifest import MANIFEST, UNFINISHED
from data_stack.io.folder import Folder, folder_of
from data_stack_granular import formats
from data_stack_granular.arguments import local_path, slice_positions
from data_stack_granular.bag import BagReader, BagWriter
from data_stack_granular.closing import Closing

#: Functions from a value to bytes, by type of column; None as a function: values are bytes.
Encoders = Mapping[str, Union[Callable[[Any], bytes], None]]

#: Functions from bytes to a value, by type of column; None as a function: values are bytes.
Decoders = Mapping[str, Union[Callable[[bytes], Any], None]]

#: A codec of a :class:`data_stack.formats.records.RecordReader` that only decodes; None: the
#: values are bytes.
_DecodingCodec = Union[tuple[None, Callable[[bytes], Any]], None]


class DatasetWriter(Closing):
    """Appends datapoints to a dataset in a local folder. A datapoint has a value for each column.

    Existing datapoints stay. If an interrupted writer left a column longer than the others, the
    next values must equal those in that column. If data_stack wrote the dataset, :meth:`close`
    updates its manifest.

    Args:
        directory: path of the folder.
        spec: the type of each column.
        encoders: functions from a value to bytes, by type; None: values are bytes.

    Attributes:
        directory: path of the folder.
        spec: the type of each column, sorted by name.
        encoders: the function of each column, by name; None: its values are bytes.
        writers: the writer of each column, by name.
        length: number of datapoints.

    Raises:
        ConfigError: the folder has a dataset with other columns, or one that data_stack did not
            finish.
        KeyError: a type has no encoder.
    """

    directory: Path
    spec: dict[str, str]
    encoders: dict[str, Callable[[Any], bytes] | None]
    writers: dict[str, BagWriter]
    length: int
    #: Readers of the columns that an interrupted writer left longer than the others, by name.
    _longer_columns: dict[str, BagReader]

    def __init__(self, directory: Any, spec: Mapping[str, str], encoders: Encoders | None) -> None:
        self.directory = local_path(directory)
        columns = check_columns(spec)
        self.spec = {name: column.type for name, column in columns.items()}
        self.encoders = {}
        for name, column_type in self.spec.items():
            self.encoders[name] = None if encoders is None else encoders[column_type]

        # A new dataset gets its spec; that of an existing dataset must be the same.
        spec_path = self.directory / SPEC
        if not spec_path.exists():
            self.directory.mkdir(exist_ok=True, parents=True)
            spec_path.write_bytes(spec_json(columns))
        stored_spec = parse_spec(spec_path.read_bytes(), str(spec_path))
        if stored_spec != self.spec:
            raise ConfigError(
                f"{self.directory} holds a dataset with other columns: {stored_spec}, "
                f"expected {self.spec}"
            )
        if (self.directory / UNFINISHED).exists():
            raise ConfigError(
                f"data_stack did not finish {self.directory}: "
                "open it with its RecordWriter, and close it"
            )

        self.writers = {}
        self._longer_columns = {}
        with contextlib.ExitStack() as opened:
            for name in self.spec:
                writer = BagWriter(self.directory / bag_name(name))
                self.writers[name] = opened.enter_context(writer)
            self.length = min(len(writer) for writer in self.writers.values())
            for name, writer in self.writers.items():
                if len(writer) > self.length:
                    reader = BagReader(writer.bag_path)
                    self._longer_columns[name] = opened.enter_context(reader)
            # They stay open, unless one of them could not be opened.
            opened.pop_all()

    @property
    def size(self) -> int:
        """Bytes of all columns and their indexes."""
        return sum(writer.size for writer in self.writers.values())

    def __len__(self) -> int:
        return self.length

    def append(self, datapoint: Any, flush: bool = True) -> int:
        """Append a datapoint. ``flush`` makes it visible to readers that are opened later.

        If it raises, no value of the datapoint is appended.

        Returns:
            The position of the datapoint.

        Raises:
            ConfigError: the writer is closed, the keys are not the columns, an encoder did not
                return bytes, or a longer column has another value.
            Exception: an encoder raised it.
        """
        if self.closed:
            raise ConfigError(f"{self.directory} is closed")
        if not isinstance(datapoint, Mapping) or datapoint.keys() != self.spec.keys():
            raise ConfigError(
                f"{self.directory} takes dicts with the keys {', '.join(self.spec)}, "
                f"got {datapoint!r:.99}"
            )

        # All values are encoded and checked before the first one is appended.
        encoded = {}
        for name, encode in self.encoders.items():
            value = datapoint[name]
            encoded[name] = value if encode is None else encode(value)
        for name, record in encoded.items():
            if not isinstance(record, bytes):
                raise ConfigError(
                    f"column {name!r} of type {self.spec[name]!r} takes bytes, got {record!r:.60}"
                )
        for name, reader in self._longer_columns.items():
            self._check_next_value(name, reader, encoded[name])

        for name, writer in self.writers.items():
            is_stored_already = len(writer) > self.length
            if not is_stored_already:
                writer.append(encoded[name], flush=False)
        self.length += 1
        if flush:
            self.flush()
        return self.length - 1

    def _check_next_value(self, name: str, longer_column: BagReader, record: bytes) -> None:
        """Check that a value equals the one that an interrupted writer left in its column.

        Raises:
            ConfigError: the column has another value.
        """
        has_value = self.length < len(longer_column)
        if has_value and longer_column[self.length] != record:
            raise ConfigError(
                f"Record mismatch: column {name!r} of {self.directory} "
                f"already has another value {self.length}"
            )

    def flush(self) -> None:
        """Write the appended datapoints, so that readers see them."""
        for writer in self.writers.values():
            writer.flush()

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        # All files are closed, even if a column cannot be written: its error is raised after that.
        with contextlib.ExitStack() as opened:
            for reader in self._longer_columns.values():
                opened.callback(reader.close)
            for writer in reversed(self.writers.values()):
                opened.callback(writer.close)
        has_manifest = (self.directory / MANIFEST).exists()
        if has_manifest:
            records.write_manifest(self.directory)


class DatasetReader(Closing):
    """The datapoints of a dataset of Granular or data_stack.

    ``reader[i]`` is a dict, ``reader[2:5]`` a dict of lists; ``reader[i, keys]`` and
    ``reader[2:5, keys]`` only read these columns. A reader pickles, and keeps its length.

    Args:
        directory: a path, a URL, or another source of
            :class:`data_stack.formats.records.RecordReader`.
        decoders: functions from bytes to a value, by type; None: values are bytes.
        cache_index: ignored, as files are mapped.
        cache_keys: names of columns, which must exist. Nothing else depends on them.
        parallel: ignored, as records are decoded in threads if that is faster.

    Attributes:
        spec: the type of each column, sorted by name.
        size: bytes of all columns and their indexes.
        shards: number of shards.

    Raises:
        ConfigError: a column of ``cache_keys`` does not exist.
        FileNotFoundError: the dataset does not exist.
        DatasetFileCorruptError: the dataset is damaged.
        KeyError: a type has no decoder.
    """

    spec: dict[str, str]
    size: int
    shards: int
    #: Opens the records of the dataset; ``columns=`` selects columns.
    _open_records: Callable[..., Any]
    #: The records of all columns.
    _records: Any
    #: The records of the selections of columns that were read, by their names.
    _records_by_keys: dict[tuple[str, ...], Any]

    def __init__(
        self,
        directory: Any,
        decoders: Decoders | None,
        cache_index: bool = True,
        cache_keys: Collection[str] = (),
        parallel: bool = False,
    ) -> None:
        folder = folder_of_dataset(directory)
        codecs = codecs_of_decoders(decoders, folder)
        open_records = functools.partial(records.RecordReader, folder, codecs=codecs)
        self._open(open_records, cache_keys)
        self.shards = 1

    def _open(self, open_records: Callable[..., Any], cache_keys: Collection[str]) -> None:
        """Open the records of all columns.

        Raises:
            ConfigError: a column of ``cache_keys`` does not exist.
        """
        self._open_records = open_records
        self._records = open_records()
        self._records_by_keys = {}
        self.spec = self._records.spec
        self.size = self._records.size
        if not set(cache_keys) <= self.spec.keys():
            raise ConfigError(
                f"unknown columns in cache_keys={cache_keys!r:.200}; "
                f"the dataset has {', '.join(self.spec)}"
            )

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: Any) -> dict[str, Any]:
        keys = tuple(self.spec)
        if isinstance(index, tuple):
            index, selected_keys = index
            keys = tuple(selected_keys)
        if isinstance(index, (slice, range)):
            return self._read_lists(slice_positions(index, len(self)), keys)
        if not keys:
            return {}
        sample = self._select(keys)[operator.index(index)]
        return {key: sample[key] for key in keys}

    def _read_lists(self, positions: range, keys: tuple[str, ...]) -> dict[str, list[Any]]:
        """Read the values of consecutive datapoints, a list for each column."""
        samples = []
        if keys and positions:
            samples = list(self._select(keys)[positions.start : positions.stop])
        return {key: [sample[key] for sample in samples] for key in keys}

    def _select(self, keys: tuple[str, ...]) -> Any:
        """Return the records of some columns, which are opened once."""
        records = self._records_by_keys.get(keys)
        if records is not None:
            return records
        if set(keys) == self.spec.keys():
            records = self._records
        else:
            records = self._open_records(columns=list(keys))
        # Threads that come first may open them twice; setdefault() decides which ones are kept.
        return self._records_by_keys.setdefault(keys, records)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        # Without it, a loop would take an IndexError of a decoder for the end of the datapoints.
        for index in range(len(self)):
            yield self[index]

    def __reversed__(self) -> Iterator[dict[str, Any]]:
        for index in reversed(range(len(self))):
            yield self[index]

    def copy(self) -> DatasetReader:
        """Return another reader of the same dataset."""
        return copy.deepcopy(self)

    def close(self) -> None:
        self._records.close()
        for selected_records in self._records_by_keys.values():
            selected_records.close()
        self.closed = True


def folder_of_dataset(directory: Any) -> Folder:
    """Return the folder of a dataset, or of its shards."""
    # Paths of other libraries, such as elements.Path, are not paths of the operating system.
    is_foreign_path = hasattr(directory, "with_suffix") and not hasattr(directory, "__fspath__")
    if is_foreign_path:
        return folder_of(str(directory))
    return folder_of(directory)


def codecs_of_decoders(decoders: Decoders | None, folder: Folder) -> dict[str, _DecodingCodec]:
    """Convert decoders to codecs for the types of a dataset in a folder.

    The decoders of this package are left out: records are decoded by the codecs of data_stack then,
    which decode many records at once.

    Raises:
        MissingFileError: the folder has no dataset.
        KeyError: a type has no decoder.
    """
    try:
        spec_bytes = folder.read(SPEC)
    except ResourceNotFoundError as error:
        raise MissingFileError(folder.full_name(SPEC)) from error

    codecs: dict[str, _DecodingCodec] = {}
    for column_type in parse_spec(spec_bytes, folder.full_name(SPEC)).values():
        decode = None if decoders is None else decoders[column_type]
        if decode is None:
            codecs[column_type] = None
        elif decode is not formats.decoders.get(column_type):
            codecs[column_type] = (None, decode)
    return codecs
