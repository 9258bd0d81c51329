"""The samples of any iterator as named values, for writers of named columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from data_stack.exception import ConfigError

_BYTES: Final = 8 << 20
_MAX_SAMPLES: Final = 4096


def by_name(sample: Any, names: Sequence[str] | None) -> Mapping[str, Any]:
    """The values of a sample, or the columns of a batch, by name.

    Args:
        sample: a dict; or a tuple, or a bare value, which counts as a tuple of one.
        names: a name for each value of a tuple; None if samples are dicts.

    Raises:
        ConfigError: the number of names differs from that of values.
    """
    if isinstance(sample, Mapping):
        return sample
    values = sample if isinstance(sample, (tuple, list)) else (sample,)
    if names is None or isinstance(names, str) or len(names) != len(values):
        raise ConfigError(f"writing samples of {len(values)} unnamed columns needs names=[…], one for each; got {names!r:.80}")
    return dict(zip(names, values, strict=True))


def samples_at_once(sample: Mapping[str, Any]) -> int:
    """The number of samples like this one to read together."""
    n_bytes: int = sum(
        len(value) if isinstance(value, (str, bytes)) else int(getattr(value, "nbytes", 64)) for value in sample.values()
    )
    return max(1, min(_MAX_SAMPLES, _BYTES // max(1, n_bytes)))
