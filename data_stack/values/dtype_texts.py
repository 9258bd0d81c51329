"""Parses texts that name dtypes of numpy, such as ``"<f4"``, and which may come from a file."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

#: Divides a unit of time: ``"datetime64[s/4]"`` counts quarters of a second.
_DIVISOR_MARK = "/"


def parse_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return ``numpy.dtype(dtype)``, unless it is a text whose unit of time has a divisor.

    numpy divides by that number without a look at it: ``numpy.dtype("M8[s/0]")`` ends the process
    by a signal (seen with numpy 2.4). The check is made here because no exception can be caught
    there. A dtype itself never prints a divisor.

    Args:
        dtype: a text, or anything else of which numpy makes a dtype.

    Raises:
        ValueError: a unit has a divisor.
        TypeError: numpy does not know the dtype; of some texts it raises SyntaxError.
    """
    if isinstance(dtype, str):
        check_no_divisor(dtype)
    return np.dtype(dtype)


def check_no_divisor(text: str) -> None:
    """Refuse a text of a dtype whose unit of time has a divisor.

    Raises:
        ValueError: it has one.
    """
    if _DIVISOR_MARK in text:
        raise ValueError(
            f"the dtype {text!r:.80} has a divided unit of time; write the shorter unit, such as "
            "datetime64[ms] or datetime64[250ms]"
        )
