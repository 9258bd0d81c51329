"""The source of a conversion: columns by name, read in batches."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Column, media_types
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.access import access_to
from data_stack.dataset.iterator.contract import ColumnKey
from data_stack.exception import ConfigError
from data_stack.util.suggestions import did_you_mean
from data_stack.values.stacked_values import as_array

_MAX_LOOKED_AT: Final = 16
_NUMERIC: Final = "biufc"

Values = Any
"""The values of a column in a batch: an array of shape ``(n, ...)``."""


@dataclass(frozen=True)
class Source:
    """A dataset as columns.

    Attributes:
        name: its name in messages.
        values: its samples.
        stored: the same samples with the bytes of files in the columns of images, sound and videos; None without such columns.
        schema: type of each column, as in records; dtype and shape if all samples share them.
        keys: key of each column in a sample; may include columns that are only read on request, which the schema lacks.
        resources: resources to close.
    """

    name: str
    values: DatasetIteratorIF
    schema: Mapping[str, Column]
    keys: Mapping[str, ColumnKey]
    stored: DatasetIteratorIF | None = None
    resources: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __len__(self) -> int:
        return len(self.values)

    def close(self) -> None:
        """Close what was opened for it."""
        self.resources.close()

    @property
    def stored_names(self) -> list[str]:
        """The columns that can be read as the bytes of their files."""
        return [name for name, each in self.schema.items() if self.stored is not None and each.codec_type in media_types()]

    def read(self, positions: npt.NDArray[np.intp], names: Iterable[str], stored: Collection[str] = ()) -> dict[str, Values]:
        """Columns of the samples at ``positions``, those in ``stored`` as the bytes of their files."""
        found: dict[str, Values] = dict.fromkeys(names)
        for iterator, chosen in ((self.values, found.keys() - set(stored)), (self.stored, found.keys() & set(stored))):
            if chosen and iterator is not None:
                columns = access_to(iterator).columns([self.keys[name] for name in chosen], positions)
                found.update(zip(chosen, columns, strict=True))
        return found

    def some(self) -> npt.NDArray[np.intp]:
        """Positions of some samples, spread over the dataset."""
        return spread(len(self))

    def select_columns(self, columns: Mapping[str, str] | None) -> Source:
        """Select columns and rename them to the keys of ``columns``.

        Raises:
            ConfigError: a column does not exist.
        """
        if columns is None:
            return self
        schema, keys = {}, {}
        for new, old in columns.items():
            by_position = {str(key): name for name, key in self.keys.items() if isinstance(key, int)}
            old = old if old in self.keys else by_position.get(old, old)
            if old not in self.keys:
                raise ConfigError(
                    f"{self.name} has no column {old!r:.80}{did_you_mean(old, self.keys)}; it has {list(self.keys)}"
                )
            schema[new] = self.schema.get(old, Column("utf8"))  # the key of a WebDataset
            keys[new] = self.keys[old]
        return replace(self, schema=schema, keys=keys)


def spread(n_samples: int) -> npt.NDArray[np.intp]:
    """Some positions of a dataset of ``n_samples``."""
    return np.unique(np.linspace(0, max(0, n_samples - 1), min(_MAX_LOOKED_AT, n_samples)).astype(np.intp))


def plain_type(kind: str) -> str:
    """The type of a column without compression: ``"array"`` for ``"zstd(array)"``."""
    return kind.replace("zstd(", "").rstrip(")")


def samples_of_batches(batches: Iterable[Mapping[str, Any]], names: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The samples of batches, with the values of each column under its name in ``names``."""
    for columns in batches:
        for values in zip(*columns.values(), strict=True):
            yield {names[name]: value for name, value in zip(columns, values, strict=True)}


def size_of(column: npt.NDArray[Any]) -> int:
    """The approximate size of a column's values in bytes."""
    if column.dtype.kind != "O":
        return int(column.nbytes)
    return sum(getattr(value, "nbytes", None) or sys.getsizeof(value) for value in column)


def parse_columns(columns: str | Iterable[str] | Mapping[str, str] | None) -> dict[str, str] | None:
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


# ---------------------------------------------------------------------- any iterator


def source_of_iterator(iterator: DatasetIteratorIF) -> Source:
    """Samples of any iterator; the columns of tuples are called ``sample``, ``target`` and ``tag`` where its meta says where
    these are, else ``column_0``, ``column_1`` …

    Raises:
        ConfigError: it has no samples, or a column holds values that no format stores.
    """
    name = getattr(getattr(iterator, "dataset_meta", None), "identifier", None) or repr(iterator)
    if not len(iterator):
        raise ConfigError(f"{name} has no samples, so its columns are unknown")
    samples = iterator.__getitems__(spread(len(iterator)))
    first = samples[0]
    keys: dict[str, ColumnKey]
    if isinstance(first, Mapping):
        keys = {str(key): key for key in first}
    elif isinstance(first, (tuple, list)):
        keys = {name_of_position(iterator, position): position for position in range(len(first))}
    else:
        raise ConfigError(f"samples of {name} are bare values; name them: .map(lambda value: {{'x': value}})")
    try:
        columns = {column: [sample[key] for sample in samples] for column, key in keys.items()}
    except LookupError as error:
        raise ConfigError(f"samples of {name} differ in their columns; map them to the same ones") from error
    return Source(name, iterator, {column: infer_column(values, column) for column, values in columns.items()}, keys)


def name_of_position(iterator: Any, position: int) -> str:
    """The name of a column of tuples: its role in the meta, or ``column_0`` and so on."""
    meta = getattr(iterator, "dataset_meta", None)
    for name in ("sample", "target", "tag"):
        if meta is not None and getattr(meta, f"{name}_pos") == position:
            return name
    return f"column_{position}"


def infer_column(values: Sequence[Any], name: str) -> Column:
    """Infer the type of a column from some of its values; without dtype and shape, as other values may differ."""
    types = {_type_of(value, name) for value in values}
    if types <= {"i64", "u64", "array"} and len(types) > 1:
        return Column("array")
    if len(types) > 1:
        if types <= {"json", "utf8", "i64", "array", "u64"} and not any(isinstance(value, np.ndarray) for value in values):
            return Column("json")
        raise ConfigError(f"column {name!r} holds values of several types ({', '.join(sorted(types))}); leave it out")
    return Column(types.pop() if types else "json")


def _type_of(value: Any, name: str) -> str:
    if isinstance(value, (bytes, bytearray)):
        return "bytes"
    if isinstance(value, str):
        return "utf8"
    if isinstance(value, (bool, np.bool_)):
        return "array"
    if isinstance(value, (int, np.integer)) and getattr(value, "dtype", np.dtype(int)).kind != "m":  # a timedelta is an integer
        return "u64" if value >= 2**63 or isinstance(value, np.uint64) else "i64"
    if isinstance(value, (float, complex)):
        return "array"
    if isinstance(value, (np.generic, np.ndarray)) or hasattr(value, "__array__"):
        try:
            dtype = as_array(value).dtype
        except TypeError as error:
            raise ConfigError(f"column {name!r} holds values that numpy cannot convert: {error}") from error
        if dtype.kind in "fc" and dtype.itemsize > (8 if dtype.kind == "f" else 16):
            raise ConfigError(f"column {name!r} is of dtype {dtype}, whose size differs between machines; map it to float64")
        return "array" if dtype.kind in _NUMERIC else "npy"
    if value is None or isinstance(value, (list, tuple, dict)):
        return "tree" if _holds_arrays(value) else "json"
    raise ConfigError(f"column {name!r} holds a {type(value).__qualname__}, which no format stores; map it, or leave it out")


def _holds_arrays(value: Any) -> bool:
    """Whether a value contains anything that JSON cannot hold."""
    if isinstance(value, Mapping):
        return any(not isinstance(key, str) for key in value) or any(map(_holds_arrays, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_holds_arrays, value))
    return not (value is None or isinstance(value, (str, bool, int, float)))
