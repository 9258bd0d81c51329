"""The columns of samples by name, as writers take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from data_stack.exception import ConfigError

#: The approximate size of a block of samples in memory.
_BLOCK_BYTES: Final = 8 << 20

#: The maximum number of samples in a block.
_MAX_IN_BLOCK: Final = 4096

#: The assumed size of a value whose size is unknown, such as a list.
_UNKNOWN_BYTES: Final = 64


def by_name(sample: Any, names: Sequence[str] | None) -> Mapping[str, Any]:
    """Return the values of a sample, or the columns of a batch, by name.

    Args:
        sample: a dict; or a tuple, or a bare value, which counts as a tuple of one.
        names: a name for each value of a tuple; None if samples are dicts.

    Raises:
        ConfigError: the number of names differs from that of values.
    """
    if isinstance(sample, Mapping):
        return sample
    values = sample if isinstance(sample, (tuple, list)) else (sample,)
    # A text is a sequence of texts, too.
    is_list_of_names = names is not None and not isinstance(names, str)
    if names is None or not is_list_of_names or len(names) != len(values):
        raise ConfigError(
            f"writing samples of {len(values)} unnamed columns needs names=[…], one for each; "
            f"got {names!r:.80}"
        )
    return dict(zip(names, values, strict=True))


def samples_at_once(sample: Mapping[str, Any]) -> int:
    """Return how many samples like this one to read together, in a block of a few MiB."""
    n_bytes = sum(_size_of_value(value) for value in sample.values())
    n_samples = _BLOCK_BYTES // max(1, n_bytes)
    return max(1, min(n_samples, _MAX_IN_BLOCK))


def _size_of_value(value: Any) -> int:
    if isinstance(value, (str, bytes)):
        return len(value)
    return int(getattr(value, "nbytes", _UNKNOWN_BYTES))
