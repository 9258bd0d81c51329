"""Functions of the program: their parameters, and how they are called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from data_stack.exception import ConfigError, EarlyEndError


def has_parameter(function: Callable[..., Any], name: str) -> bool:
    """Return whether a function has a parameter of this name.

    A function without a signature, as some in C, has no parameters.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False
    return name in signature.parameters


def check_takes(function: Callable[..., Any], arguments: Sequence[str], advice: str) -> None:
    """Check that a function can be called with these positional arguments.

    So a wrong function is refused when it is passed, not when it is called for the first sample.

    Args:
        function: any function. One without a signature, as some in C, is not checked.
        arguments: what the function will receive, each as a word for the error: ``["sample"]``.
        advice: what to do, for the error.

    Raises:
        ConfigError: the function takes other arguments.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        plural = "" if len(arguments) == 1 else "s"
        raise ConfigError(
            f"{_name_of(function)}{signature} receives {len(arguments)} argument{plural}, "
            f"{' and '.join(arguments)}: {error}. {advice}"
        ) from None


def call_for_each(function: Callable[[Any], Any], values: Iterable[Any]) -> Iterator[Any]:
    """Yield what a function of the program returns for each value, as fast as ``map``.

    ``map`` itself would end where the function raises StopIteration, and whoever reads it would
    take that for the end of the data.

    Raises (while iterating):
        EarlyEndError: the function raised StopIteration.
    """
    try:
        for value in values:
            yield function(value)
    except StopIteration as error:
        raise stopped_by(function) from error


def stopped_by(function: Any) -> EarlyEndError:
    """Return the error that replaces a StopIteration of the program.

    Args:
        function: the function that raised it, or the object whose method raised it.
    """
    return EarlyEndError(
        f"{_name_of(function)} raised StopIteration, which a loop would take for the end of the "
        f"data. It often comes from next() on an empty iterator: give next() a default, "
        f"next(values, None)"
    )


def explain_tuple_index(error: TypeError, sample: Any) -> TypeError:
    """Return a clearer error where a function looked for a column's name in a tuple sample.

    Args:
        error: what the function raised. An error of another kind is returned as it is.
        sample: what the function was called with.
    """
    is_name_in_tuple = isinstance(sample, tuple) and str(error).startswith("tuple indices must be")
    if not is_name_in_tuple:
        return error
    return TypeError(
        f'{error}. The samples are tuples: name the column, as in column="label", with a function '
        f'of its value; or use sample[1] in place of sample["label"]'
    )


def iterate_all(samples: Iterable[Any], n_samples: int) -> Iterator[Any]:
    """Yield the first ``n_samples`` samples of an iterable of the program.

    Args:
        samples: the iterable.
        n_samples: its length, which the program states.

    Raises (while iterating):
        EarlyEndError: the iterable ends before.
    """
    if n_samples == 0:
        return
    n_yielded = 0
    for sample in samples:
        yield sample
        n_yielded += 1
        if n_yielded == n_samples:
            return
    raise EarlyEndError(
        f"an object of {type(samples).__name__} yielded {n_yielded:,} samples, but its length is "
        f"{n_samples:,}. Its iteration ends early, or its length is wrong"
    )


def _name_of(function: Any) -> str:
    qualified_name = getattr(function, "__qualname__", None)
    if qualified_name:
        return str(qualified_name)
    return f"{function!r:.80}"
