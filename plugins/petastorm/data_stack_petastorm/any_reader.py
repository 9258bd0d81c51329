"""Properties of any reader, also of one that is not a :class:`Reader`.

Petastorm's adapters take any object with ``batched_output``, ``ngram``, ``schema``, ``reset()``,
``stop()`` and ``join()``, such as a mock in a test. A :class:`Reader` has more attributes; these
functions return a default for a reader without them.
"""

from __future__ import annotations

from typing import Any

from data_stack.exception import ConfigError


def check_reader(reader: Any) -> None:
    """Refuse values that are not readers, such as URLs.

    Raises:
        ConfigError: the value is not a reader.
    """
    if not hasattr(reader, "batched_output"):
        raise ConfigError(
            f"expected a reader, got {type(reader).__name__} {reader!r:.80}; "
            "make one with make_reader(url)"
        )


def fills_nulls(reader: Any) -> bool:
    """Return whether adapters replace missing floats of the reader by NaN; by default, not."""
    return bool(getattr(reader, "fills_nulls", False))


def is_endless(reader: Any) -> bool:
    """Return whether the reader never ends; True for a reader without ``num_epochs``."""
    return getattr(reader, "num_epochs", None) is None


def is_at_end(reader: Any) -> bool:
    """Return whether the last row of the reader was read; False if the reader does not tell."""
    return bool(getattr(reader, "last_row_consumed", False))


def seed_of(reader: Any) -> int:
    """Return the seed of the reader; 0 for a reader without one."""
    seed: int = getattr(reader, "seed", 0)
    return seed


def restart(reader: Any) -> None:
    """Let a reader begin with its next epoch.

    A :class:`Reader` can do so in the middle of an epoch. Other readers only have Petastorm's
    ``reset()``, which may raise an error before the last row.
    """
    if hasattr(reader, "restart"):
        reader.restart()
    else:
        reader.reset()
