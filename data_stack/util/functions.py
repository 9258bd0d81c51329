"""Functions of the program: their parameters, and how they are called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from data_stack.exception import ConfigError, EarlyEndError


def has_parameter(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has a parameter of this name; False for functions in C that have no signature."""
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def check_takes(function: Callable[..., Any], arguments: Sequence[str], advice: str) -> None:
    """Check now that a function can be called with these positional arguments, not when it is called for the first sample.

    Args:
        function: any; one without a signature, as some in C, passes.
        arguments: what it will receive, in words.
        advice: what to do.

    Raises:
        ConfigError: its parameters are others.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        name = getattr(function, "__qualname__", None) or repr(function)
        raise ConfigError(
            f"{name}{signature} receives {len(arguments)} argument{'s' * (len(arguments) != 1)}, {' and '.join(arguments)}: "
            f"{error}. {advice}"
        ) from None


def call_for_each(function: Callable[[Any], Any], values: Iterable[Any]) -> Iterator[Any]:
    """What a function of the program returns for each value, as ``map`` yields it and as fast.

    ``map`` itself would end where the function raises StopIteration, and whoever reads it would take that for the end of the
    data.

    Raises (while iterating):
        EarlyEndError: the function raised StopIteration.
    """
    try:
        for value in values:
            yield function(value)
    except StopIteration as error:
        raise stopped_by(function) from error


def stopped_by(function: Any) -> EarlyEndError:
    """The error in place of the StopIteration that a function, or a method of an object, of the program has raised."""
    name = getattr(function, "__qualname__", None) or f"{function!r:.80}"
    return EarlyEndError(
        f"{name} raised StopIteration, which a loop would take for the end of the data. "
        f"It often comes from next() on an empty iterator: give next() a default, next(values, None)"
    )


def explain_tuple_index(error: TypeError, sample: Any) -> TypeError:
    """The error of a function that looks for a name in a tuple sample, with what to write instead; else ``error`` itself."""
    if not isinstance(sample, tuple) or not str(error).startswith("tuple indices must be"):
        return error
    return TypeError(
        f'{error}. The samples are tuples: name the column, as in column="label", with a function of its '
        f'value; or use sample[1] in place of sample["label"]'
    )


def iterate_all(samples: Iterable[Any], n_samples: int) -> Iterator[Any]:
    """The first ``n_samples`` of an iterable of the program.

    Raises (while iterating):
        EarlyEndError: there are fewer.
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
        f"an object of {type(samples).__name__} yielded {n_yielded:,} samples, but its length is {n_samples:,}. "
        f"Its iteration ends early, or its length is wrong"
    )
