"""Applies a transform to the rows of a dataset."""

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
    """Applies a :class:`TransformSpec` to the rows of ``dataset_iterator`` on each read.

    It checks what the function returns against the fields: dtype, shape, and missing values. Numbers of another dtype are cast if
    the field's dtype holds them exactly, or if both are floats.

    Args:
        dataset_iterator: samples that are dicts; it stays the caller's.
        spec: the transform.
        schema: the fields of the samples; None: those of ``dataset_iterator.schema``.
        seed: seed of ``rng``, if the function has this parameter.
        epoch: epoch of ``rng``; a loader sets it.

    Raises:
        MissingDependencyError: the transform uses DataFrames, and pandas is not installed.
        ConfigError: the samples have no schema, or lack a removed or selected field. When reading: a returned value does not fit
            its field; the message names row and field.
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
            raise ConfigError(f"{self._source!r:.80} has no schema: pass schema=")
        self._given_schema = schema
        self._schema = spec.schema_of(below)
        self._seed, self._epoch = check_integer("seed", seed), check_integer("epoch", epoch)
        if spec.on == "pandas":
            import data_stack.formats.parquet.transform_pandas  # noqa: F401  # raises here if pandas is missing, not in a worker
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
        """The fields of the result."""
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
        if self._draws:  # otherwise all epochs are the same
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
        below: access to the rows.
        spec: the transform.
        schema: fields of the result.
        mixed_seed: seed of ``rng``; None without it.
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
        elif on == "rows":  # copied: the layer below may keep these arrays
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
                raise ConfigError(f"a transform needs rows that are dicts, not {type(batch).__name__}: use as_dict(…) first")
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
                    f"the transform returned {len(columns[name])} values of field {name!r} for {len(positions)} rows; it must "
                    f"return one per row. Drop rows by a predicate or by filter(…)"
                )
        return {field.name: _check(field, columns[field.name], positions) for field in self._schema}

    def _draws(self, position: int) -> dict[str, np.random.Generator]:
        return {} if self._mixed_seed is None else {"rng": derive_generator(self._mixed_seed, position)}


def _as_it_is(given: Any) -> Any:
    return given


def _lacks(name: str, found: Any, where: str) -> ConfigError:
    returned = ", ".join(map(str, found)) if isinstance(found, Mapping) else f"a {type(found).__name__}"
    return ConfigError(
        f"the transform did not return field {name!r}{where}; it returned {returned}. It must return a dict (or DataFrame) of "
        f"all fields; list dropped fields in removed_fields"
    )


# ---------------------------------------------------------------------- the result


def _check(field: Field, values: Any, positions: IndexArrayOfInts) -> npt.NDArray[Any]:
    """Check the values of a field, and return them as a column.

    Raises:
        ConfigError: a value does not fit; the message names its row.
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
                f"the transform returned an invalid value of field {field.name!r} for row {position}: {error}. Declare changed "
                f"fields in edit_fields, or convert values by astype()"
            ) from error
    if not is_plain or any(value is None for value in found):
        return objects(found)
    if not field.shape:
        return np.array(found, dtype)
    return np.stack(found) if len({value.shape for value in found}) == 1 else objects(found)


def _value(field: Field, value: Any) -> Any:
    """Check a value of a field.

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
