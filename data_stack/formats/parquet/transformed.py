"""The rows of a dataset as a transform makes them, held against the fields that shall come out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.codecs.fitting import as_dtype, fits_shape
from data_stack.dataset.iterator import ColumnKey, DatasetIteratorIF, Sample, SampleAccess
from data_stack.dataset.iterator.indices import checked_integer
from data_stack.dataset.iterator.registry import layer
from data_stack.dataset.iterator.stacking import join_columns
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.randomness.seeds import derived_generator, derived_seed
from data_stack.exception import ConfigError
from data_stack.formats.parquet.columns import objects
from data_stack.formats.parquet.row_layer import RowAccess, RowLayer
from data_stack.formats.parquet.schema import Field, Schema
from data_stack.formats.parquet.transform import TransformSpec
from data_stack.formats.parquet.types import dtype_name
from data_stack.util.functions import has_parameter

__all__ = ["TransformedDatasetIterator"]

Columns = dict[str, npt.NDArray[Any]]
_ROWS_AT_ONCE: Final = 1024


@layer("transformed")
class TransformedDatasetIterator(RowLayer):
    """The rows of ``dataset_iterator`` as a :class:`TransformSpec` makes them, whenever they are read; nothing is kept.

    What the function gives is held against the fields that shall come out: dtype, shape, and whether a value may be missing.
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
        super().__init__(dataset_iterator)
        self._spec = spec
        below = getattr(self._source, "schema", None) if schema is None else schema
        if not isinstance(below, Schema):
            raise ConfigError(f"a transform must know the fields of its rows; {self._source!r:.80} has no schema: give schema=")
        self._given_schema = schema
        self._schema = spec.schema_of(below)
        self._seed, self._epoch = checked_integer("seed", seed), checked_integer("epoch", epoch)
        if spec.on == "pandas":
            import data_stack.formats.parquet.transform_pandas  # noqa: F401  # who lacks pandas hears of it now, and not in a worker
        self._draws = spec.func is not None and has_parameter(spec.func, "rng")
        self._mixed_seed = derived_seed("transformed", self._seed, self._epoch)

    def make_access(self) -> SampleAccess:
        mixed_seed = self._mixed_seed if self._draws else None
        return _TransformedAccess(self._source, self._spec, self._schema, mixed_seed)

    @property
    def schema(self) -> Schema:
        """The fields that come out."""
        return self._schema

    # ------------------------------------------------------------------ as a layer

    def _arguments(self) -> dict[str, Any]:
        spec = self._spec
        arguments: dict[str, Any] = {
            "func": spec.func,
            "edit_fields": [field.to_json() for field in spec.edit_fields],
            "removed_fields": spec.removed_fields or None,
            "selected_fields": spec.selected_fields,
            "on": spec.on,
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


class _TransformedAccess(RowAccess):
    """Access to transformed rows.

    Args:
        rows: what is transformed.
        spec: how.
        schema: of what comes out.
        mixed_seed: of the function's draws; None where it does not draw.
    """

    def __init__(self, rows: DatasetIteratorIF, spec: TransformSpec, schema: Schema, mixed_seed: int | None) -> None:
        super().__init__(rows)
        self._spec, self._schema, self._mixed_seed = spec, schema, mixed_seed

    def some_samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        batch = self.batch(positions)
        return [dict(zip(batch, row, strict=True)) for row in zip(*batch.values(), strict=True)]

    def batch(self, positions: IndexArrayOfInts) -> Columns:
        names = list(self._schema.fields)
        if len(positions) == 0:
            return {field.name: _empty(field) for field in self._schema}
        func = self._spec.func
        if func is None:
            given = dict(zip(names, self.below.columns(names, positions), strict=True))
            return {field.name: _checked(field, given[field.name], positions) for field in self._schema}
        columns: Mapping[str, Any]
        if self._spec.on in (None, "rows"):
            columns = self._mapped_rows(func, positions)
        else:
            columns = self._mapped_columns(func, positions)
        return {field.name: _checked(field, columns[field.name], positions) for field in self._schema}

    def _mapped_rows(self, func: Callable[..., Any], positions: IndexArrayOfInts) -> dict[str, list[Any]]:
        places = positions.tolist()
        # what lies below may keep the arrays that it hands out, and a function may change what it is given
        rows = [_own(row) for row in self.below.samples(positions)]
        mixed_seed = self._mixed_seed
        if mixed_seed is not None:
            made = [func(row, rng=derived_generator(mixed_seed, at)) for at, row in zip(places, rows, strict=True)]
        else:
            made = [func(row) for row in rows]
        columns = {}
        for name in self._schema.fields:
            try:
                columns[name] = [row[name] for row in made]
            except (KeyError, TypeError, IndexError) as error:
                at = next(at for at, row in enumerate(made) if not (isinstance(row, Mapping) and name in row))
                found = ", ".join(map(str, made[at])) if isinstance(made[at], Mapping) else f"a {type(made[at]).__name__}"
                raise ConfigError(
                    f"the transform gave no field {name!r} for row {places[at]}, but {found}: it gives a dict of all fields; "
                    f"name those that it drops in removed_fields"
                ) from error
        return columns

    def _mapped_columns(self, func: Callable[..., Any], positions: IndexArrayOfInts) -> Mapping[str, Any]:
        batch = self.below.batch(positions)
        if not isinstance(batch, dict):
            raise ConfigError(
                f"a transform is of rows that are dicts; these are {type(batch).__name__}: name their columns first"
            )
        mixed_seed = self._mixed_seed
        draws = {} if mixed_seed is None else {"rng": derived_generator(mixed_seed, int(positions[0]))}
        names, n_rows = list(self._schema.fields), len(positions)
        if self._spec.on == "pandas":
            from data_stack.formats.parquet.transform_pandas import as_frame, columns_of_frame

            made = func(as_frame(batch), **draws)
            columns = columns_of_frame(made, names)
        else:
            made = columns = func(_own(batch), **draws)
            if not isinstance(made, Mapping):
                raise ConfigError(f"a transform on='numpy' gives a dict of columns, not a {type(made).__name__}")
        for name in names:
            if name not in columns:
                raise ConfigError(
                    f"the transform gave no field {name!r}, but {', '.join(map(str, columns)) or 'nothing'}; name what it drops "
                    f"in removed_fields"
                )
            if len(columns[name]) != n_rows:
                raise ConfigError(
                    f"the transform gave {len(columns[name])} values of field {name!r} for {n_rows} rows; it gives one for each "
                    f"row. Leave rows out by a predicate or by filter(…)"
                )
        return columns

    def columns(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None) -> list[npt.NDArray[Any]]:
        names = [self._schema[str(key)].name for key in keys]
        if positions is None:
            positions = np.arange(self.n_samples, dtype=np.intp)
        if self._spec.func is None and len(positions):
            read = self.below.columns(names, positions)
            return [_checked(self._schema[name], column, positions) for name, column in zip(names, read, strict=True)]
        parts = [
            self.batch(positions[start : start + _ROWS_AT_ONCE]) for start in range(0, max(len(positions), 1), _ROWS_AT_ONCE)
        ]
        return [join_columns([part[name] for part in parts]) if len(parts) > 1 else parts[0][name] for name in names]


# ---------------------------------------------------------------------- what comes out


def _checked(field: Field, values: Any, positions: IndexArrayOfInts) -> npt.NDArray[Any]:
    """Values of one field as a column, if they are of it.

    Raises:
        ConfigError: one is not; the message names its row.
    """
    dtype = field.dtype
    if isinstance(dtype, np.dtype) and dtype.kind not in "USO":
        together = _together(values)
        if together is not None and together.dtype == dtype and fits_shape(together.shape[1:], field.shape):
            return together
    found = [_value(field, value, place, positions) for place, value in enumerate(values)]
    if any(value is None for value in found) or not isinstance(dtype, np.dtype) or (not field.shape and dtype.kind in "USO"):
        return objects(found)
    if not field.shape:
        return np.array(found, dtype=dtype)
    return np.stack(found) if len({value.shape for value in found}) == 1 else objects(found)


def _own(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same with copies of arrays, also of those in an array."""
    return {
        name: value
        if not isinstance(value, np.ndarray)
        else objects([each.copy() if isinstance(each, np.ndarray) else each for each in value])
        if value.dtype == object and value.ndim == 1
        else value.copy()
        for name, value in values.items()
    }


def _together(values: Any) -> npt.NDArray[Any] | None:
    """Values that are alike as one array; None where they must be looked at one by one."""
    if isinstance(values, np.ndarray):
        return values
    first = values[0]
    if isinstance(first, (np.ndarray, np.generic)):
        like = first.dtype, first.shape
        if all(isinstance(value, (np.ndarray, np.generic)) and (value.dtype, value.shape) == like for value in values):
            return np.stack(values)
    elif all(type(value) is type(first) for value in values) and isinstance(first, (bool, int, float)):
        return np.array(values)
    return None


def _value(field: Field, value: Any, place: int, positions: IndexArrayOfInts) -> Any:
    dtype = field.dtype
    if value is None:
        if field.nullable:
            return None
        raise _wrong(field, place, positions, "it is None, but the field is not nullable")
    if not isinstance(dtype, np.dtype) and not field.shape:
        if isinstance(value, Decimal):
            return value
        raise _wrong(field, place, positions, f"it is a {type(value).__name__}, not a Decimal")
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        return value
    array = value if isinstance(value, np.ndarray) else _as_array(value)
    if array is None or not fits_shape(array.shape, field.shape):
        shape = "that are no array" if array is None else f"of shape {array.shape}"
        raise _wrong(field, place, positions, f"its values {shape}, not of shape {field.shape}")
    if array.dtype != dtype:
        array = _cast(field, array, place, positions)
    if field.shape:
        return array
    return array.item() if array.dtype.kind in "USO" else array[()]


def _cast(field: Field, array: npt.NDArray[Any], place: int, positions: IndexArrayOfInts) -> npt.NDArray[Any]:
    """Values as the field's dtype, if it holds them."""
    dtype = field.dtype
    if not array.size:
        return array.astype(dtype if isinstance(dtype, np.dtype) else object)
    if array.dtype == object and not (isinstance(dtype, np.dtype) and dtype.kind not in "US"):  # as texts and Decimals are read
        kind = Decimal if not isinstance(dtype, np.dtype) else str if dtype.kind == "U" else bytes
        if all(each is None or isinstance(each, kind) for each in array.flat):
            return array
    if isinstance(dtype, np.dtype):
        if array.dtype.kind == dtype.kind and dtype.kind in "US":
            return array
        with contextlib.suppress(TypeError, ValueError):
            return as_dtype(array, dtype, rounds=array.dtype.kind in "fc")
    raise _wrong(
        field,
        place,
        positions,
        f"it is of dtype {array.dtype} ({array!r:.40}), not of dtype {dtype_name(dtype)}; cast it by astype()",
    )


def _as_array(value: Any) -> npt.NDArray[Any] | None:
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # lists of different lengths; tensors of a device
        return None


def _wrong(field: Field, place: int, positions: IndexArrayOfInts, why: str) -> ConfigError:
    return ConfigError(
        f"what the transform gave as field {field.name!r} of row {int(positions[place])} is none of it: {why}. If it makes "
        f"something else of the field, name that in edit_fields"
    )


def _empty(field: Field) -> npt.NDArray[Any]:
    sizes = [size for size in field.shape if size is not None]
    if not isinstance(field.dtype, np.dtype) or field.dtype.kind in "USO" or len(sizes) != len(field.shape):
        return np.empty(0, dtype=object)
    return np.empty((0, *sizes), dtype=field.dtype)
