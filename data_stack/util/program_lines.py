"""Errors and warnings that point at a line of the program, not at those of data_stack."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import sys
import warnings
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, TypeVar

from data_stack.exception import DataStackError
from data_stack.util.logger import logger

_Public = TypeVar("_Public", bound=Callable[..., Any])
_HIDDEN = {"data_stack", *sys.stdlib_module_names}


def brief_errors(public: _Public) -> _Public:
    """Decorate a function, or the public methods of a class: the traceback of a DataStackError ends at the line that called it.

    Lines of other packages that data_stack called, such as those of a function for ``map``, remain. With ``DATA_STACK_DEBUG=1``
    in the environment, or the logger of data_stack at DEBUG (``data-stack --debug``), all lines remain.
    """
    if isinstance(public, type):
        for name in dir(public):
            if not name.startswith("_") and inspect.isfunction(method := inspect.getattr_static(public, name)):
                setattr(public, name, brief_errors(method))
        return public

    @functools.wraps(public)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True  # of pytest
        try:
            return public(*args, **kwargs)
        except DataStackError as error:
            if not os.environ.get("DATA_STACK_DEBUG") and not logger.isEnabledFor(logging.DEBUG):
                error.__traceback__ = frames_of_others(error.__traceback__)
            raise error  # DATA_STACK_DEBUG=1 shows all lines

    return call  # type: ignore[return-value]  # the same parameters


def frames_of_others(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of data_stack and of Python's own modules; None if no frame remains."""
    if traceback is None:
        return None
    kept = frames_of_others(traceback.tb_next)
    if _is_hidden(traceback.tb_frame):
        return kept
    return TracebackType(kept, traceback.tb_frame, traceback.tb_lasti, traceback.tb_lineno)


def warn_deprecated(name: str, *, instead: str, since: str, removed_in: str) -> None:
    """Warn that a program uses a name that a later version removes; Python shows it once for each line of the program.

    A test of the project fails when the version reaches ``removed_in``.

    Args:
        name: as users write it, such as ``"iterator.batches()"``.
        instead: what to use.
        since: the version that deprecates it.
        removed_in: the version without it, a major one.
    """
    frame, level = sys._getframe(), 1
    while _is_hidden(frame) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    text = f"{name} is deprecated since data_stack {since} and will be removed in {removed_in}: use {instead}"
    warnings.warn(text, DeprecationWarning, stacklevel=level)


def _is_hidden(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] in _HIDDEN
