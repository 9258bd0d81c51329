"""Samples as values by name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final

from data_stack.dataset.iterator import Column, ColumnKey, SourceAccess
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError
from data_stack.util.suggestions import did_you_mean
from data_stack.values.stacked_values import stack_values

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


class FieldsAccess(SourceAccess):
    """Access to dict samples whose fields are read one by one."""

    @abstractmethod
    def fields(self) -> Sequence[str]:
        """The keys of the samples."""

    @abstractmethod
    def values(self, field: str, positions: Sequence[int]) -> list[Any]:
        """The values of a field, in one request."""

    def columns(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None) -> list[Column]:
        rows = range(self.n_samples) if positions is None else positions.tolist()
        known, columns = self.fields(), []
        for key in keys:
            if key not in known:
                raise ConfigError(f"samples have no column {key!r:.80}{did_you_mean(key, known)}; they have {', '.join(known)}")
            columns.append(stack_values(self.values(str(key), rows or range(min(1, self.n_samples)))))
        return columns if rows else [column[:0] for column in columns]
