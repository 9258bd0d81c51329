"""Values of all types that samples have, and their exact meaning: the same for equal values of any
type.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from torch_or_stand_in import torch

_ATTOSECONDS = {
    "s": 10**18,
    "ms": 10**15,
    "us": 10**12,
    "ns": 10**9,
    "ps": 10**6,
    "fs": 1000,
    "as": 1,
}
_SECONDS = {"W": 7 * 86_400, "D": 86_400, "h": 3600, "m": 60}
_RECORD = np.dtype([("a", "<i8"), ("b", "<f8")])


def meaning(value: Any) -> Any:
    """A value as exact numbers, attoseconds, or lists of these, without the types of numbers and
    arrays.
    """
    if isinstance(value, np.ma.MaskedArray):
        if value.ndim == 0 and value.dtype.names is None:
            return "masked" if np.ma.getmaskarray(value).all() else meaning(value.data[()])
        if value.dtype.names is None:
            return [meaning(item) for item in value]
        return [
            ("masked" if any(mask.tobytes()) else meaning(item))
            for item, mask in zip(value.data, np.ma.getmaskarray(value), strict=True)
        ]
    if isinstance(value, torch.Tensor):
        return meaning(
            (value.double() if value.dtype == torch.bfloat16 else value).detach().numpy()
        )
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return _time(value)
    if isinstance(value, np.void):
        return (
            value.tobytes()
            if value.dtype.names is None
            else [meaning(value[name]) for name in value.dtype.names]
        )
    if isinstance(value, np.ndarray):
        return meaning(value[()]) if value.ndim == 0 else [meaning(item) for item in value]
    if isinstance(value, (list, tuple)):
        return [meaning(item) for item in value]
    if isinstance(value, Mapping):
        return {key: meaning(item) for key, item in value.items()}
    if isinstance(value, (bool, np.bool_, int, np.integer)):
        return int(value)
    if isinstance(value, (complex, np.complexfloating)):
        return (
            meaning(value.real) if value.imag == 0 else (meaning(value.real), meaning(value.imag))
        )
    if isinstance(value, (float, np.floating)):
        return Fraction(*value.as_integer_ratio()) if np.isfinite(value) else str(value)
    if isinstance(value, (str, bytes)):
        return value
    return type(value), value


def _time(value: Any) -> Any:
    kind, (unit, count) = value.dtype.kind, np.datetime_data(value.dtype)
    if np.isnat(value):
        return kind, "NaT"
    ticks = int(value.view(np.int64)) * count
    if unit in ("Y", "M"):
        if kind == "m":
            return "months", ticks * (12 if unit == "Y" else 1)
        ticks, unit = int(value.astype("M8[D]").view(np.int64)), "D"
    if unit == "generic":
        return "ticks", ticks
    return kind, ticks * (_SECONDS[unit] * 10**18 if unit in _SECONDS else _ATTOSECONDS[unit])


def _of_all_dtypes() -> list[Any]:
    values: list[Any] = []
    for dtype in map(np.dtype, ("int8", "uint8", "int32", "uint32", "int64", "uint64")):
        values += [
            dtype.type(np.iinfo(dtype).max),
            np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype),
        ]
    for dtype in map(np.dtype, ("float16", "float32", "float64", "longdouble", "complex64")):
        values += [dtype.type(1) / dtype.type(3), np.array([0.1, np.nan], dtype)]
    for kind in "Mm":
        for unit in ("Y", "M", "W", "D", "h", "s", "ms", "us", "ns", "as", "25s"):
            values += [np.array(7, f"{kind}8[{unit}]")[()], np.array([2, 3], f"{kind}8[{unit}]")]
        values += [np.array("NaT", f"{kind}8")[()], np.array("NaT", f"{kind}8[ns]")[()]]
    return values


_MASKED = np.ma.array([1, 2], mask=[False, True])
EXAMPLES: list[Any] = [
    *(
        True,
        0,
        -1,
        2**53 + 1,
        -(2**63),
        2**64 - 1,
        2**70,
        0.5,
        -0.0,
        float("nan"),
        float("inf"),
        1j,
        Decimal("0.1"),
        Fraction(1, 3),
    ),
    *(
        "",
        "a\0",
        b"a\0",
        None,
        (),
        [],
        [0.5, 2**53 + 1],
        [2**63, -1],
        [1, "a"],
        [[1, 2], [3, 4]],
        {"a": 1},
    ),
    *([_MASKED, _MASKED], [np.ma.masked, 3], [np.array([2**53 + 1]), np.array([0.5])]),
    *(
        datetime.datetime(2020, 1, 2, 3, 4, 5, 6),
        datetime.datetime(2020, 1, 2, tzinfo=datetime.timezone.utc),
    ),
    *(datetime.date(9999, 12, 31), datetime.timedelta(days=3, microseconds=1), datetime.time(1, 2)),
    *_of_all_dtypes(),
    *(
        np.timedelta64(2**62, "s"),
        np.array(["9999-12-31", "NaT"], "M8[D]"),
        np.array([1, 1000], "M8[ns]"),
    ),
    *(
        np.bool_(True),
        np.array([True, False]),
        np.str_("ab"),
        np.bytes_(b"ab"),
        np.array(["a", "bcd"]),
        np.array([b"a", b"bcd"]),
    ),
    *(
        np.void(b"abc"),
        np.array([(2**53 + 1, 0.5)], _RECORD)[0],
        np.array([(1, 0.5), (2, 1.5)], _RECORD),
    ),
    *(
        np.array(5),
        np.array([1, None], dtype=object),
        np.array([1, 2], dtype=">i4"),
        np.array([], np.int64),
    ),
    *(
        np.ma.masked,
        _MASKED,
        np.ma.array(3, mask=True),
        np.ma.array(np.array([(1, 2.0)], _RECORD), mask=[(False, True)]),
    ),
    *(
        torch.tensor(2**53 + 1),
        torch.tensor([0.5, 1.5]),
        torch.tensor([1.5, 2], dtype=torch.bfloat16),
        torch.tensor([1j, 2]),
    ),
]
"""At least one value of each type, and those at the limits of the types."""
