"""Granular's datasets: dicts with a value for each column."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from data_stack.exception import ConfigError, MissingFileError, ResourceNotFoundError
from data_stack.formats import records
from data_stack.formats.records.layout import SPEC, check_columns, parse_spec, spec_json
from data_stack.formats.records.manifest import MANIFEST, UNFINISHED
from data_stack.io.folder import Folder, folder_of
from data_stack_granular import formats
from data_stack_granular.bag import BagReader, BagWriter, local_path, places
from data_stack_granular.utils import Closing

__all__ = ["DatasetReader", "DatasetWriter", "Reader", "codecs_of", "source_folder"]

Encoders = Mapping[str, Callable[[Any], bytes] | None]
Decoders = Mapping[str, Callable[[bytes], Any] | None]
_Self = TypeVar("_Self", bound="Reader")


class DatasetWriter(Closing):
    """Appends datapoints to a dataset in Granular's files.

    It goes on behind the datapoints that are there; where a column is ahead, since a writer was interrupted, the values that are
    appended must be those that it has. If data_stack wrote the dataset, :meth:`close` renews its manifest.

    Args:
        directory: a path, or an object with ``open``, ``exists`` and ``/``.
        spec: the type of each column.
        encoders: by type, what makes bytes of a value; None for bytes as they are.

    Raises:
        ConfigError: a dataset of other columns is there, or one that another writer has open or did not finish.
    """

    def __init__(self, directory: Any, spec: Mapping[str, str], encoders: Encoders | None) -> None:
        self.directory = local_path(directory)
        columns = check_columns(spec)
        self._spec = {name: column.type for name, column in columns.items()}
        self.encoders = {name: None if encoders is None else encoders[kind] for name, kind in self._spec.items()}
        path = self.directory / SPEC
        if path.exists():
            found = parse_spec(path.read_bytes(), str(path))
            if found != self._spec:
                raise ConfigError(f"{self.directory} holds a dataset of other columns: {found}, not {self._spec}")
            if (self.directory / UNFINISHED).exists():
                raise ConfigError(
                    f"{self.directory} was not finished by data_stack's RecordWriter: open it with that, and close it"
                )
        else:
            self.directory.mkdir(exist_ok=True, parents=True)
            path.write_bytes(spec_json(columns))
        self.writers = {name: BagWriter(self.directory / f"{name}.bag") for name in self._spec}
        self.length = min(map(len, self.writers.values()))
        self._ahead: dict[str, BagReader] = {}
        for name, writer in self.writers.items():
            if len(writer) > self.length:
                self._ahead[name] = BagReader(writer.bag_path)

    @property
    def spec(self) -> dict[str, str]:
        """The type of each column, sorted by name."""
        return self._spec

    @property
    def size(self) -> int:
        """Bytes of all columns, their indexes included."""
        return sum(writer.size for writer in self.writers.values())

    def __len__(self) -> int:
        return self.length

    def append(self, datapoint: Any, flush: bool = True) -> int:
        """Append a datapoint, a dict with a value for each column; ``flush``: so that readers that are opened from now on see it.

        Returns:
            Its position.

        Raises:
            ConfigError: it has other keys, an encoder gave no bytes, or a column is ahead with another value.
            What an encoder raises; in no case is anything of the datapoint appended.
        """
        if not isinstance(datapoint, Mapping) or datapoint.keys() != self._spec.keys():
            raise ConfigError(f"a datapoint of {self.directory} is a dict of {', '.join(self._spec)}, not {datapoint!r:.200}")
        encoded = {name: self._encode(name, datapoint[name]) for name in self._spec}
        for name, reader in self._ahead.items():
            if self.length < len(reader) and reader[self.length] != encoded[name]:
                raise ConfigError(
                    f"Record mismatch: column {name!r} of {self.directory} is ahead, and its record {self.length} is another "
                    f"one, of {len(reader[self.length])} bytes, not {len(encoded[name])}"
                )
        for name, writer in self.writers.items():
            if len(writer) <= self.length:
                writer.append(encoded[name], flush=False)
        self.length += 1
        if flush:
            self.flush()
        return self.length - 1

    def flush(self) -> None:
        """Write what was appended, so that readers see it."""
        for writer in self.writers.values():
            writer.flush()

    def close(self) -> None:
        if not self.closed:
            for writer in self.writers.values():
                writer.close()
            if (self.directory / MANIFEST).exists():
                records.seal(self.directory)
        super().close()

    def _encode(self, name: str, value: Any) -> bytes:
        encode = self.encoders[name]
        record: Any = value if encode is None else encode(value)
        if not isinstance(record, bytes):
            raise ConfigError(f"column {name!r} of type {self._spec[name]!r} takes bytes, not {record!r:.60}")
        return record


class Reader(Closing):
    """Datapoints of a dataset, or of its shards: ``reader[i]`` is a dict, ``reader[2:5]`` a dict of lists.

    ``reader[i, keys]`` and ``reader[2:5, keys]`` read these columns alone. It pickles, and keeps its length.
    """

    def __init__(self, make: Callable[..., Any], cache_keys: Any) -> None:
        self._make = make
        self._records = make()
        self._parts: dict[tuple[str, ...], Any] = {}
        unknown = set(cache_keys) - self.spec.keys()
        if unknown:
            raise ConfigError(f"cache_keys names {', '.join(sorted(unknown))}; there are: {', '.join(self.spec)}")

    @property
    def spec(self) -> dict[str, str]:
        """The type of each column, sorted by name."""
        spec: dict[str, str] = self._records.spec
        return spec

    @property
    def size(self) -> int:
        """Bytes of all columns, their indexes included."""
        return int(self._records.size)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: Any) -> dict[str, Any]:
        keys = tuple(self.spec)
        if isinstance(index, tuple):
            index, keys = index[0], tuple(index[1])
        if isinstance(index, (slice, range)):
            found = places(index, len(self))
            samples = list(self._part(keys)[found.start : found.stop]) if keys and found else []
            return {key: [sample[key] for sample in samples] for key in keys}
        place = operator.index(index)
        sample: dict[str, Any] = self._part(keys)[place] if keys else {}
        return sample

    def _part(self, keys: tuple[str, ...]) -> Any:
        """What reads these columns alone."""
        if keys == tuple(self.spec):
            return self._records
        if keys not in self._parts:
            self._parts[keys] = self._make(columns=list(keys))
        return self._parts[keys]

    def copy(self: _Self) -> _Self:
        """Another reader of the same dataset."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__getstate__(), _records=self._make())
        return twin

    def close(self) -> None:
        for each in (self._records, *self._parts.values()):
            each.close()
        super().close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parts": {}}


class DatasetReader(Reader):
    """The datapoints of a dataset of Granular or data_stack, see :class:`Reader`.

    Args:
        directory: a path, a URL, or anything else that :class:`data_stack.formats.records.RecordReader` reads.
        decoders: by type, what makes a value of bytes; None for bytes as they are.
        cache_index, cache_keys, parallel, pool_name: have no meaning here: files are mapped, and records are decoded in threads
            where that is faster. Keys that do not exist are refused.

    Raises:
        FileNotFoundError: there is no dataset.
        DatasetFileCorruptError: it is damaged.
    """

    def __init__(
        self,
        directory: Any,
        decoders: Decoders | None,
        cache_index: bool = True,
        cache_keys: Any = (),
        parallel: bool = False,
        pool_name: Any = None,
    ) -> None:
        folder = source_folder(directory)
        super().__init__(functools.partial(records.RecordReader, folder, codecs=codecs_of(folder, decoders)), cache_keys)


def source_folder(directory: Any) -> Folder:
    """Where a dataset lies: paths of other libraries are taken by their name."""
    is_foreign = hasattr(directory, "with_suffix") and not hasattr(directory, "__fspath__")
    return folder_of(str(directory) if is_foreign else directory)


def codecs_of(folder: Folder, decoders: Decoders | None) -> dict[str, Any]:
    """What data_stack shall decode otherwise than it does by itself, by type."""
    try:
        types = set(parse_spec(folder.read(SPEC), folder.full_name(SPEC)).values())
    except ResourceNotFoundError as error:
        raise MissingFileError(folder.full_name(SPEC)) from error
    chosen = {kind: None if decoders is None else decoders[kind] for kind in types}
    return {
        kind: None if decode is None else (None, decode)
        for kind, decode in chosen.items()
        if decode is None or decode is not formats.decoders.get(kind)
    }
