"""Parses texts that name dtypes of numpy, such as ``"<f4"``, and which may come from a file."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

#: A unit of time with a divisor, such as that of ``"datetime64[s/4]"``, or of no length, such as
#: that of ``"datetime64[0s]"``.
_REFUSED_UNIT = re.compile(r"/|\[0+[A-Za-z]")


def parse_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return ``numpy.dtype(dtype)``, unless it is a text with a unit of time that breaks numpy.

    See :func:`check_time_units`. A dtype itself never has such a text.

    Args:
        dtype: a text, or anything else of which numpy makes a dtype.

    Raises:
        ValueError: a unit of time has a divisor or no length.
        TypeError: numpy does not know the dtype; of some texts it raises SyntaxError.
    """
    if isinstance(dtype, str):
        check_time_units(dtype)
    return np.dtype(dtype)


def check_time_units(text: str) -> None:
    """Refuse a text of a dtype whose unit of time has a divisor or no length.

    numpy divides by both without a look at them. ``numpy.dtype("M8[s/0]")`` ends the process by a
    signal, and converting times of ``"M8[0s]"`` raises SystemError (seen with numpy 2.4). So the
    text is checked before numpy sees it.

    Raises:
        ValueError: the unit is one of these.
    """
    if _REFUSED_UNIT.search(text) is not None:
        raise ValueError(
            f"the dtype {text!r:.80} has a divided unit of time, or one of no length; write the "
            "unit itself, such as datetime64[ms] or datetime64[250ms]"
        )
