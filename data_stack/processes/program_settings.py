"""Settings of a program that code in its other processes and threads should meet as well.

A fork of the fork server begins with the settings of a fresh interpreter. What a program sets at
run time (precision of ``decimal``, numpy's treatment of floating-point errors, torch's default
dtype and gradient mode, the locale) belongs to its process, and most of it to one thread.
"""

from __future__ import annotations

import contextvars
import locale
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from data_stack.processes.seeding import call_with_torch, loaded_torch

_Result = TypeVar("_Result")

_DECIMAL_SETTINGS = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")

#: Modes of numpy that need no function of the program, unlike "call" and "log".
_NUMPY_MODES = frozenset({"ignore", "warn", "raise", "print"})

#: Before version 2, numpy keeps its treatment of errors for each thread.
_NUMPY_USES_CONTEXT = int(np.__version__.partition(".")[0]) >= 2


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    """Settings of a thread of the program; they pickle, and are compared by value.

    Attributes:
        decimal_context: the arguments of the thread's ``decimal.Context``, without its flags; None
            if the program has not imported ``decimal``.
        numpy_errors: what :func:`numpy.geterr` returns, as sorted pairs.
        torch_dtype: the name of torch's default dtype; None if the program has not imported torch.
        torch_records_gradients: whether torch records gradients, which ``no_grad`` turns off.
        locale_name: what ``locale.setlocale(locale.LC_ALL)`` returns.
    """

    decimal_context: tuple[tuple[str, Any], ...] | None = None
    numpy_errors: tuple[tuple[str, str], ...] = ()
    torch_dtype: str | None = None
    torch_records_gradients: bool = True
    locale_name: str = ""

    @classmethod
    def of_thread(cls) -> ProgramSettings:
        """Return the settings of the calling thread. This imports nothing."""
        torch = loaded_torch()
        torch_dtype = None
        torch_records_gradients = True
        if torch is not None:
            torch_dtype = str(torch.get_default_dtype()).removeprefix("torch.")
            torch_records_gradients = torch.is_grad_enabled()
        return cls(
            _decimal_context_of_thread(),
            _numpy_errors_of_thread(),
            torch_dtype,
            torch_records_gradients,
            locale.setlocale(locale.LC_ALL),
        )

    def apply_to_process(self) -> None:
        """Give the calling thread, and its process, these settings.

        torch gets its settings when the process imports it, which takes seconds.
        """
        if self.decimal_context is not None:
            import decimal

            arguments = dict(self.decimal_context)
            arguments["traps"] = list(arguments["traps"])
            decimal.setcontext(decimal.Context(**arguments))
        np.seterr(**dict(self.numpy_errors))  # type: ignore[arg-type]  # modes of numpy
        if self.torch_dtype is not None:
            call_with_torch(self._apply_to_torch)
        try:
            locale.setlocale(locale.LC_ALL, self.locale_name)
        except locale.Error:
            # This machine lacks the locale. Whether that matters, a comparison of values shows.
            return

    def _apply_to_torch(self, torch: Any) -> None:
        torch.set_default_dtype(getattr(torch, str(self.torch_dtype)))
        torch.set_grad_enabled(self.torch_records_gradients)


def _decimal_context_of_thread() -> tuple[tuple[str, Any], ...] | None:
    """Return :attr:`ProgramSettings.decimal_context` of the calling thread."""
    decimal = sys.modules.get("decimal")
    if decimal is None:
        return None
    context = decimal.getcontext()
    traps = tuple(signal for signal, is_set in context.traps.items() if is_set)
    numbers = tuple((name, getattr(context, name)) for name in _DECIMAL_SETTINGS)
    return (*numbers, ("traps", traps))


def _numpy_errors_of_thread() -> tuple[tuple[str, str], ...]:
    """Return :attr:`ProgramSettings.numpy_errors` of the calling thread."""
    modes = []
    for name, mode in np.geterr().items():
        if mode in _NUMPY_MODES:
            modes.append((name, str(mode)))
    return tuple(sorted(modes))


class ThreadSettings:
    """Settings of a thread, for code that another thread of the same process runs in its place.

    These are the context variables, in which ``decimal`` and numpy keep theirs, and torch's
    gradient mode.
    """

    def __init__(self) -> None:
        """Note the settings of the calling thread. This takes less than a microsecond."""
        self._context = contextvars.copy_context()
        self._numpy_errors = None if _NUMPY_USES_CONTEXT else np.geterr()
        self._records_gradients = loaded_torch() is None or loaded_torch().is_grad_enabled()

    def run(self, function: Callable[..., _Result], *arguments: Any) -> _Result:
        """Call a function with these settings, once."""
        if self._numpy_errors is not None:
            np.seterr(**self._numpy_errors)
        torch = loaded_torch()
        if torch is not None and torch.is_grad_enabled() != self._records_gradients:
            torch.set_grad_enabled(self._records_gradients)
        return self._context.run(function, *arguments)
