"""Errors and warnings that point at a line of the program, not at those of data_stack."""

from __future__ import annotations

import dis
import functools
import inspect
import logging
import os
import sys
import typing
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import FrameType, ModuleType, SimpleNamespace, TracebackType, UnionType
from typing import Any, TypeVar

from data_stack.exception import ConfigError, DataStackError
from data_stack.util.logger import logger

_Public = TypeVar("_Public", bound=Callable[..., Any])
_HIDDEN = {"data_stack", *sys.stdlib_module_names}
_BRIEF = "_data_stack_brief"  # attribute of a decorated function, and of its decorated form


def brief_errors(public: _Public) -> _Public:
    """Decorate a public function or class: the traceback of a DataStackError ends at the line that called it.

    If an AttributeError, TypeError or ValueError leaves it, and an argument is not what its annotation says, a ConfigError does.
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
        except (AttributeError, DataStackError, TypeError, ValueError) as found:
            bare = getattr(found, "bare_error", found)  # of a public function that this one called
            error = (None if isinstance(bare, DataStackError) else _explain(public, args, kwargs, bare)) or found
            if not isinstance(error, DataStackError):
                raise
            if not os.environ.get("DATA_STACK_DEBUG") and not logger.isEnabledFor(logging.DEBUG):
                for shown in filter(None, (error, error.__cause__, error.__context__)):
                    shown.__traceback__ = frames_of_others(shown.__traceback__)
            raise error  # noqa: B904  # it has its cause  # DATA_STACK_DEBUG=1 shows all lines

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
        _decorate(value, lambda name, member: name == "__init__" or not (name.startswith("_") or inspect.isfunction(member)))
    return value


def _decorate(kind: type, is_wanted: Callable[[str, Any], bool]) -> None:
    for base in kind.__mro__:
        for name, member in list(vars(base).items()) if base.__module__.partition(".")[0] == "data_stack" else ():
            function = getattr(member, "__func__", member)  # of a classmethod or staticmethod
            if inspect.isfunction(function) and is_wanted(name, member):
                brief = brief_errors(function)
                setattr(base, name, brief if inspect.isfunction(member) else type(member)(brief))


def _explain(public: Any, args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception) -> ConfigError | None:
    """The error for the first argument that is not what its annotation says; None without one, or if ours says what is wrong."""
    last: Any = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    is_raised = last is not None and last.tb_frame.f_code.co_code[last.tb_lasti] == dis.opmap["RAISE_VARARGS"]
    if is_raised and str(last.tb_frame.f_globals.get("__name__")).partition(".")[0] == "data_stack":
        return None
    try:
        given = inspect.signature(public).bind(*args, **kwargs)
    except TypeError:  # an argument is missing or unknown, as Python says
        return None
    for name, value in given.arguments.items():
        parameter = given.signature.parameters[name]
        values = value.values() if parameter.kind is parameter.VAR_KEYWORD else value
        values = values if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) else (value,)
        try:
            annotated = SimpleNamespace(__annotations__={name: public.__annotations__[name]})
            hint = typing.get_type_hints(annotated, public.__globals__)[name]
        except Exception:  # noqa: BLE001, S112  # it has none, or only type checkers import it
            continue
        if wrong := [each for each in values if not _fits(each, hint)]:
            names = ", ".join(each for each in given.signature.parameters if each not in ("self", "cls"))
            text = f"{name} must be {parameter.annotation}, got {type(wrong[0]).__name__}"
            advice = "Check the order of the arguments; help() describes each"
            made: Any = ConfigError(f"{public.__qualname__.removesuffix('.__init__')}({names}): {text}. {advice}")
            made.__cause__ = made.bare_error = error
            return made  # type: ignore[no-any-return]  # with an attribute of its own
    return None


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value may be of a type, as far as that can be seen."""
    hint = getattr(hint, "__bound__", hint)  # of a type variable
    kind = typing.get_origin(hint) or hint
    if kind in (typing.Union, UnionType):
        return any(_fits(value, each) for each in typing.get_args(hint))
    if kind in (int, float):
        return hasattr(value, "__index__" if kind is int else "__float__")
    if isinstance(value, str) and kind in (Collection, Iterable, Sequence):  # of characters
        return False
    try:
        return getattr(kind, "__module__", "") == "typing" or isinstance(value, kind)
    except TypeError:  # a type variable or a protocol
        return True


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
