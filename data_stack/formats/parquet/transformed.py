"""The rows of a dataset after a transform, checked against the fields of the result."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.codecs.fitting import as_dtype, check_shape, fits_shape
from data_stack.dataset.iterator import AccessedDatasetIterator, ColumnKey, DatasetIteratorIF, IndexArray, SampleAccess, access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.indices import check_integer
from data_stack.dataset.iterator.layers.mapped import BatchMapAccess
from data_stack.dataset.iterator.ownership import copy_value
from data_stack.dataset.iterator.registry import layer
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.randomness.seeds import derive_generator, derive_seed
from data_stack.exception import ConfigError
from data_stack.formats.parquet.row_groups import empty_column
from data_stack.formats.parquet.schema import Field, Schema
from data_stack.formats.parquet.transform import TransformSpec
from data_stack.formats.parquet.types import dtype_name
from data_stack.util.functions import has_parameter
from data_stack.values.stacked_values import objects

Columns = dict[str, npt.NDArray[Any]]


@layer("transformed")
class TransformedDatasetIterator(AccessedDatasetIterator):
    """The rows of ``dataset_iterator`` as a :class:`TransformSpec` makes them, whenever they are read; nothing is kept.

    The result of the function is checked against the fields: dtype, shape, and whether a value may be missing.
    Numbers of another dtype are cast if the field's dtype holds them exactly, or holds floats as they do.

    Args:
        dataset_iterator: samples that are dicts; it stays the caller's.
        spec: what is made of them.
        schema: their fields; None: those of ``dataset_iterator.schema``.
        seed: of the function's draws, if it has a parameter ``rng``.
        epoch: likewise; a loader draws anew in each epoch.

    Raises:
        MissingDependencyError: the transform is one of DataFrames, and pandas is not installed.
        ConfigError: the samples have no schema, or not the fields that are removed or selected. When reading: what the function
            gave is not of a field; the message names row and field.
    """

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        spec: TransformSpec,
        *,
        schema: Schema | None = None,
        seed: int = 0,
        epoch: int = 0,
    ) -> None:
        self._dataset_iterator, self._source = dataset_iterator, as_iterator(dataset_iterator)
        self._spec = spec
        below = getattr(self._source, "schema", None) if schema is None else schema
        if not isinstance(below, Schema):
            raise ConfigError(f"a transform must know the fields of its rows; {self._source!r:.80} has no schema: give schema=")
        self._given_schema = schema
        self._schema = spec.schema_of(below)
        self._seed, self._epoch = check_integer("seed", seed), check_integer("epoch", epoch)
        if spec.on == "pandas":
            import data_stack.formats.parquet.transform_pandas  # noqa: F401  # a missing pandas is an error here, not in a worker
        self._draws = spec.func is not None and has_parameter(spec.func, "rng")
        self._mixed_seed = derive_seed("transformed", self._seed, self._epoch)

    if TYPE_CHECKING:  # samples are dicts

        def read_batch(self, indices: IndexArray) -> Columns: ...

    def make_access(self) -> SampleAccess:
        mixed_seed = self._mixed_seed if self._draws else None
        return _TransformedAccess(access_to(self._source), self._spec, self._schema, mixed_seed)

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterator of the rows."""
        return [self._dataset_iterator]

    @property
    def schema(self) -> Schema:
        """The fields that come out."""
        return self._schema

    # ------------------------------------------------------------------ as a layer

    def _arguments(self) -> dict[str, Any]:
        spec = self._spec
        arguments: dict[str, Any] = {
            **vars(spec),
            "edit_fields": [field.to_json() for field in spec.edit_fields],
            "removed_fields": spec.removed_fields or None,
            "schema": None if self._given_schema is None else self._given_schema.to_json(),
        }
        if self._draws:  # otherwise it is the same in each epoch
            arguments |= {"seed": self._seed, "epoch": self._epoch}
        return arguments

    @classmethod
    def _rebuilt(cls, underlying: list[Any], arguments: Mapping[str, Any]) -> DatasetIteratorIF:
        given = dict(arguments)
        edited = [Field.from_json(each) for each in given.pop("edit_fields")]
        stored = given.pop("schema")
        drawn = {name: given.pop(name) for name in ("seed", "epoch") if name in given}
        spec = TransformSpec(given.pop("func"), edited, **given)
        (rows,) = underlying
        return cls(rows, spec, schema=None if stored is None else Schema.from_json(stored), **drawn)


class _TransformedAccess(BatchMapAccess):
    """Access to transformed rows.

    Args:
        below: what is transformed.
        spec: how.
        schema: of what comes out.
        mixed_seed: of the function's draws; None where it does not draw.
    """

    def __init__(self, below: SampleAccess, spec: TransformSpec, schema: Schema, mixed_seed: int | None) -> None:
        super().__init__(below, spec.func or _as_it_is, mixed_seed)
        self._spec, self._schema = spec, schema

    def empty_batch(self) -> Columns:
        return {field.name: empty_column(field) for field in self._schema}

    def columns(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None) -> list[npt.NDArray[Any]]:
        fields = [self._schema[str(key)] for key in keys]
        if positions is None:
            positions = np.arange(self.n_samples, dtype=np.intp)
        if not len(positions):
            return [empty_column(field) for field in fields]
        if self._spec.func is not None:
            return super().columns(keys, positions)
        read = self.below.columns([field.name for field in fields], positions)
        return [_check(field, column, positions) for field, column in zip(fields, read, strict=True)]

    def map_batch(self, positions: IndexArrayOfInts) -> Columns:
        names, on = list(self._schema.fields), self._spec.on or "rows"
        if self._spec.func is None:
            columns: Any = dict(zip(names, self.below.columns(names, positions), strict=True))
        elif on == "rows":  # what lies below may keep the arrays that it hands out
            rows = zip(positions.tolist(), self.below.samples(positions), strict=True)
            made = [self._function(copy_value(row), **self._draws(at)) for at, row in rows]
            columns = {}
            for name in names:
                for at, row in zip(positions.tolist(), made, strict=True):
                    if not isinstance(row, Mapping) or name not in row:
                        raise _lacks(name, row, f" for row {at}")
                columns[name] = [row[name] for row in made]
        else:
            batch = self.below.batch(positions)
            if not isinstance(batch, dict):
                raise ConfigError(f"a transform is of rows that are dicts, not {type(batch).__name__}: name their columns first")
            draws = self._draws(int(positions[0]))
            if on == "pandas":
                from data_stack.formats.parquet.transform_pandas import as_frame, columns_of_frame

                columns = columns_of_frame(self._function(as_frame(batch), **draws), names)
            else:
                columns = self._function(copy_value(batch), **draws)
        for name in names:
            if not isinstance(columns, Mapping) or name not in columns:
                raise _lacks(name, columns, "")
            if len(columns[name]) != len(positions):
                raise ConfigError(
                    f"the transform gave {len(columns[name])} values of field {name!r} for {len(positions)} rows; it gives one "
                    f"for each row. Leave rows out by a predicate or by filter(…)"
                )
        return {field.name: _check(field, columns[field.name], positions) for field in self._schema}

    def _draws(self, position: int) -> dict[str, np.random.Generator]:
        return {} if self._mixed_seed is None else {"rng": derive_generator(self._mixed_seed, position)}


def _as_it_is(given: Any) -> Any:
    return given


def _lacks(name: str, found: Any, where: str) -> ConfigError:
    told = ", ".join(map(str, found)) if isinstance(found, Mapping) else f"a {type(found).__name__}"
    return ConfigError(
        f"the transform gave no field {name!r}{where}, but {told}: it gives a dict (or DataFrame) of all fields; name those that "
        f"it drops in removed_fields"
    )


# ---------------------------------------------------------------------- what comes out


def _check(field: Field, values: Any, positions: IndexArrayOfInts) -> npt.NDArray[Any]:
    """Values of one field as a column, if they are of it.

    Raises:
        ConfigError: one is not; the message names its row.
    """
    dtype = field.dtype
    is_plain = isinstance(dtype, np.dtype) and dtype.kind not in "USO"
    if is_plain:
        with contextlib.suppress(TypeError, ValueError, RuntimeError):  # of different shapes; tensors of a device
            together = values if isinstance(values, np.ndarray) else np.array(values)
            if together.dtype == dtype and fits_shape(together.shape[1:], field.shape):
                return together
    found = []
    for value, position in zip(values, positions.tolist(), strict=True):
        try:
            found.append(_value(field, value))
        except (TypeError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"what the transform gave as field {field.name!r} of row {position} does not fit: {error}. If it makes "
                f"something else of the field, name that in edit_fields; convert values by astype()"
            ) from error
    if not is_plain or any(value is None for value in found):
        return objects(found)
    if not field.shape:
        return np.array(found, dtype)
    return np.stack(found) if len({value.shape for value in found}) == 1 else objects(found)


def _value(field: Field, value: Any) -> Any:
    """A value as one of a field.

    Raises:
        TypeError, ValueError: it does not fit.
    """
    dtype = field.dtype
    if value is None:
        if not field.nullable:
            raise TypeError("it is None, but the field is not nullable")
        return None
    if isinstance(dtype, np.dtype) and dtype.kind not in "USO":
        array = np.asarray(value)
        check_shape(array.shape, field.shape)
        array = as_dtype(array, dtype, rounds=array.dtype.kind in "fc")
        return array if field.shape else array[()]
    kind = _KINDS[dtype.kind] if isinstance(dtype, np.dtype) else Decimal
    cells = objects([value.item() if isinstance(value, np.generic) else value])
    if field.shape:
        cells = np.array(value, dtype=object)
        check_shape(cells.shape, field.shape)
    for cell in cells.flat:
        if not isinstance(cell, kind) and not (cell is None and field.shape):
            raise TypeError(f"{cell!r:.40} is not of dtype {dtype_name(dtype)}")
    return cells if field.shape else cells[0]


_KINDS: Final[dict[str, type]] = {"U": str, "S": bytes, "O": object}
