"""The samples of any iterator as values by name, for writers of named columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from data_stack.exception import ConfigError

_BYTES: Final = 8 << 20
_MOST_SAMPLES: Final = 4096


def by_name(sample: Any, names: Sequence[str] | None) -> Mapping[str, Any]:
    """The values of a sample, or the columns of a batch, by name.

    Args:
        sample: a dict, which has the names; or a tuple, or a bare value, which counts as a tuple of one.
        names: one for each value of a tuple; None where samples are dicts.

    Raises:
        ConfigError: a tuple has no names, or another number of them.
    """
    if isinstance(sample, Mapping):
        return sample
    values = sample if isinstance(sample, (tuple, list)) else (sample,)
    if names is None or isinstance(names, str) or len(names) != len(values):
        raise ConfigError(
            f"samples of {len(values)} columns without names need names=[…], one for each, to be written; got {names!r:.80}"
        )
    return dict(zip(names, values, strict=True))


def samples_at_once(sample: Mapping[str, Any]) -> int:
    """How many samples like this one are worth reading together."""
    n_bytes: int = sum(
        len(value) if isinstance(value, (str, bytes)) else int(getattr(value, "nbytes", 64)) for value in sample.values()
    )
    return max(1, min(_MOST_SAMPLES, _BYTES // max(1, n_bytes)))
