"""Made-up rows of a schema, to try a program before there are data."""

from __future__ import annotations

import string
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.exception import ConfigError
from data_stack.formats.parquet.columns import objects
from data_stack.formats.parquet.types import is_bytes, is_list, is_text, plain_type

if TYPE_CHECKING:
    from data_stack.formats.parquet.schema import Field, Schema

__all__ = ["generated_columns"]

#: One in so many values of a nullable field is null.
_ROWS_PER_NULL: Final = 5
_MAX_FREE_SIZE: Final = 9
#: Images need some pixels to look like images.
_MAX_FREE_PIXELS: Final = 33
_LETTERS: Final = np.array(list(string.ascii_letters + "äñ字"))


def generated_columns(schema: Schema, n_rows: int, seed: int) -> dict[str, npt.NDArray[Any]]:
    """As :meth:`Schema.generate`."""
    if n_rows < 0:
        raise ConfigError(f"n_rows is a number of rows, not {n_rows}")
    # One generator for each field: a field more leaves the others as they were.
    return {field.name: _column(field, n_rows, np.random.default_rng([seed, *field.name.encode()])) for field in schema}


def _column(field: Field, n_rows: int, rng: np.random.Generator) -> npt.NDArray[Any]:
    is_ragged = None in field.shape
    if field.nullable or is_ragged or not isinstance(field.dtype, np.dtype) or field.dtype.kind in "USO":
        nulls = rng.integers(_ROWS_PER_NULL, size=n_rows) == 0 if field.nullable else np.zeros(n_rows, bool)
        return objects([None if null else _value(field, rng) for null in nulls])
    return _array(field.dtype, (n_rows, *_shape(field, rng)), rng, field.arrow_type())


def _value(field: Field, rng: np.random.Generator) -> Any:
    if not isinstance(field.dtype, np.dtype) or field.dtype == object:
        if field.codec.kind == "record":
            return {"number": int(rng.integers(100)), "text": _text("U", rng)}
        if not field.shape:
            return _nested(field.arrow_type(), rng)
        return objects([_nested(field.arrow_type().value_type, rng) for _ in range(_shape(field, rng)[0])])
    shape = _shape(field, rng)
    if field.dtype.kind not in "US":
        value = _array(field.dtype, shape, rng, field.arrow_type())
        return value if shape else value[()]
    if not shape:
        return _text(field.dtype.kind, rng)
    texts = [_text(field.dtype.kind, rng) for _ in range(int(np.prod(shape)))]
    if field.codec.kind == "list":
        return objects(texts)
    return np.array(texts or [""], field.dtype)[: len(texts)].reshape(shape)


def _shape(field: Field, rng: np.random.Generator) -> tuple[int, ...]:
    most = _MAX_FREE_PIXELS if field.codec.kind in ("png", "jpeg", "record") else _MAX_FREE_SIZE
    sizes = [int(rng.integers(1, most)) if size is None else size for size in field.shape]
    if len(sizes) == 3 and field.shape[2] is None and field.codec.kind in ("png", "jpeg"):
        sizes[2] = 3
    return tuple(sizes)


def _array(dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator, type_: pa.DataType) -> npt.NDArray[Any]:
    if dtype.kind == "b":
        return rng.integers(2, size=shape).astype(bool)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if pa.types.is_integer(type_) and not pa.types.is_nested(type_):  # the narrower of the two
            stored = np.iinfo(type_.to_pandas_dtype())
            low, high = max(limits.min, stored.min), min(limits.max, stored.max)
        else:
            low, high = limits.min, limits.max
        return rng.integers(low, high, size=shape, dtype=dtype, endpoint=True)
    if dtype.kind in "fc":
        real = rng.standard_normal(shape)
        return np.asarray(real + 1j * rng.standard_normal(shape) if dtype.kind == "c" else real).astype(dtype)
    if pa.types.is_time(type_):
        seconds = rng.integers(24 * 3600, size=shape)
    else:
        seconds = rng.integers(0 if dtype.kind == "m" else -(10**9), 2 * 10**9, size=shape)
    times = np.asarray(seconds).view(np.int64).astype(f"{dtype.kind}8[s]")
    return times.astype("M8[D]").astype(dtype) if pa.types.is_date(type_) else times.astype(dtype)


def _text(kind: str, rng: np.random.Generator) -> Any:
    size = int(rng.integers(0, 12))
    if kind == "U":
        return "".join(rng.choice(_LETTERS, size).tolist())
    return rng.integers(1, 256, size, dtype=np.uint8).tobytes()


def _nested(type_: pa.DataType, rng: np.random.Generator) -> Any:
    type_ = plain_type(type_)
    types = pa.types
    if types.is_decimal(type_):
        digits = min(type_.precision, 15)
        return Decimal(int(rng.integers(-(10**digits) + 1, 10**digits))).scaleb(-type_.scale)
    if is_text(type_) or is_bytes(type_):
        return _text("U" if is_text(type_) else "S", rng)
    if is_list(type_):
        return [_nested(type_.value_type, rng) for _ in range(rng.integers(_MAX_FREE_SIZE))]
    if types.is_struct(type_):
        return {type_.field(number).name: _nested(type_.field(number).type, rng) for number in range(type_.num_fields)}
    if types.is_map(type_):
        return [(_nested(type_.key_type, rng), _nested(type_.item_type, rng)) for _ in range(rng.integers(_MAX_FREE_SIZE))]
    if types.is_null(type_):
        return None
    if types.is_date(type_) or types.is_timestamp(type_):
        unit = "D" if types.is_date(type_) else type_.unit
        return _array(np.dtype(f"M8[{unit}]"), (), rng, type_)[()]
    if types.is_duration(type_) or types.is_time(type_):
        return _array(np.dtype(f"m8[{type_.unit}]"), (), rng, type_)[()]
    return _array(np.dtype(type_.to_pandas_dtype()), (), rng, type_)[()].item()
