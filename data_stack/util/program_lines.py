"""Errors and warnings that point at a line of the program, not at those of data_stack."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import sys
import warnings
from collections.abc import Callable
from types import FrameType, ModuleType, TracebackType
from typing import Any, TypeVar

from data_stack.exception import DataStackError
from data_stack.util.logger import logger

_Public = TypeVar("_Public", bound=Callable[..., Any])
_HIDDEN = {"data_stack", *sys.stdlib_module_names}
_BRIEF = "_data_stack_brief"  # attribute of a decorated function, and of its decorated form


def brief_errors(public: _Public) -> _Public:
    """Decorate a public function or class: the traceback of a DataStackError ends at the line that called it.

    Of a class the constructor, the public methods, and its bases are decorated in place, so that it remains the same class.
    Lines of other packages that data_stack called, such as those of a function for ``map``, remain. With ``DATA_STACK_DEBUG=1``
    in the environment, or the logger of data_stack at DEBUG (``data-stack --debug``), all lines remain.
    """
    if isinstance(public, type):
        _decorate(public, lambda name, member: name == "__init__" or not name.startswith("_"))
        return public
    if _BRIEF in vars(public):
        return vars(public)[_BRIEF]  # type: ignore[no-any-return]

    @functools.wraps(public)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True  # of pytest
        try:
            return public(*args, **kwargs)
        except DataStackError as error:
            if not os.environ.get("DATA_STACK_DEBUG") and not logger.isEnabledFor(logging.DEBUG):
                for shown in filter(None, (error, error.__cause__, error.__context__)):
                    shown.__traceback__ = frames_of_others(shown.__traceback__)
            raise error  # DATA_STACK_DEBUG=1 shows all lines

    setattr(call, _BRIEF, call)
    return vars(public).setdefault(_BRIEF, call)  # type: ignore[no-any-return]  # one for all threads, for pickle


def hand_out(module: ModuleType, name: str) -> Any:
    """A function or class of a module for the program, decorated by :func:`brief_errors` in its module.

    Of a class only what makes an object is decorated, so that calls of its other methods take no longer.
    """
    value = getattr(module, name)
    if inspect.isfunction(value):
        value = brief_errors(value)
        setattr(module, name, value)
    elif isinstance(value, type) and not issubclass(value, BaseException):
        _decorate(
            value,
            lambda name, member: (
                name == "__init__" or not (name.startswith("_") or inspect.isfunction(member))
            ),
        )
    return value


def _decorate(kind: type, is_wanted: Callable[[str, Any], bool]) -> None:
    for base in kind.__mro__:
        for name, member in (
            list(vars(base).items()) if base.__module__.partition(".")[0] == "data_stack" else ()
        ):
            function = getattr(member, "__func__", member)  # of a classmethod or staticmethod
            if inspect.isfunction(function) and is_wanted(name, member):
                brief = brief_errors(function)
                setattr(base, name, brief if inspect.isfunction(member) else type(member)(brief))


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
    text = f"{name} is deprecated since data_stack {since} and will be removed in {removed_in}: use {instead}"
    warn_program(text, DeprecationWarning)


def warn_program(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the program that led here."""
    frame, level = sys._getframe(), 1
    while _is_hidden(frame) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


def _is_hidden(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] in _HIDDEN
