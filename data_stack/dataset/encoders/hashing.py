"""Categories as numbers of buckets, without learning which there are."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import numpy as np

from data_stack.dataset.encoders.categorical import one_hot_of
from data_stack.dataset.encoders.categories import NAN, Codes, category
from data_stack.dataset.encoders.columns import Column
from data_stack.dataset.encoders.encoder import Encoder, checked_choice
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.dataset.meta import TargetKind
from data_stack.exception import ConfigError

__all__ = ["HashingEncoder"]

_MOST_REMEMBERED = 1 << 16


class HashingEncoder(Encoder):
    """Each value as the number of a bucket that its hash decides: the same in every process, machine and Python version.

    Values are as in CategoricalEncoder, and equal as there: 1 and 1.0 share a bucket. The hash is the first 8 bytes of the
    BLAKE2b digest (RFC 7693), little-endian, modulo ``n_buckets``; nothing is learned, and no value is unknown, but different
    values may share a bucket. There is no inverse.

    Args:
        n_buckets: how many.
        output: ``"one_hot"``: ``(n, …, n_buckets)`` float32; ``"ordinal"``: ``(n, …)`` int64.
        salt: another text gives other buckets.

    Raises:
        ConfigError: an argument is none of these.
    """

    kind = "hashing"
    name_separator = "#"

    def __init__(self, n_buckets: int, output: Literal["one_hot", "ordinal"] = "one_hot", salt: str = "") -> None:
        if getattr(n_buckets, "dtype", type(n_buckets)) in (bool, np.bool_) or not hasattr(n_buckets, "__index__"):
            raise ConfigError(f"n_buckets must be an integer, got {n_buckets!r:.80}")
        if not 0 < n_buckets < 2**31:
            raise ConfigError(f"n_buckets must be an integer from 1 to 2**31 - 1, got {n_buckets!r:.80}")
        if not isinstance(salt, str):
            raise ConfigError(f"salt must be a string, got {salt!r:.80}")
        self._n_buckets, self._salt = int(n_buckets), salt
        self._output = checked_choice("output", output, ("one_hot", "ordinal"))
        self._remembered: dict[Any, int] = {}
        self._remember({})

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_remembered": {}}

    def config(self) -> dict[str, Any]:
        """``n_buckets``, ``output`` and ``salt``."""
        return {"n_buckets": self._n_buckets, "output": self._output, "salt": self._salt}

    @property
    def output_size(self) -> int | None:
        """Number of buckets; 1 for their numbers."""
        return 1 if self._output == "ordinal" else self._n_buckets

    @property
    def output_names(self) -> tuple[str, ...] | None:
        """The numbers of the buckets as text; None for the numbers themselves."""
        return None if self._output == "ordinal" else tuple(map(str, range(self._n_buckets)))

    @property
    def target_kind(self) -> TargetKind | None:
        """Labels or one-hot vectors."""
        return "label" if self._output == "ordinal" else "one_hot"

    def _transform(self, column: Column) -> Column:
        buckets = self._buckets(column)
        return buckets.astype(np.int64, copy=False) if self._output == "ordinal" else one_hot_of(buckets, self._n_buckets)

    def _buckets(self, column: Column) -> Codes:
        kind = column.dtype.kind
        if kind in "biuf" and column.dtype.itemsize <= 8:
            distinct, places = np.unique(column.ravel(), return_inverse=True)
            return self._listed(distinct.tolist(), 1)[places].reshape(column.shape)
        if kind not in "OUSf":
            raise ConfigError(f"values of dtype {column.dtype} are no categories: numbers, strings and the like are")
        return self._listed(column.ravel().tolist(), max(1, int(np.prod(column.shape[1:])))).reshape(column.shape)

    def _listed(self, values: list[Any], n_in_row: int) -> Codes:
        remembered = self._remembered
        buckets = np.empty(len(values), dtype=np.intp)
        for place, value in enumerate(values):
            try:
                bucket = remembered.get(value)
            except TypeError:
                bucket = None
            if bucket is None:
                try:
                    known = category(value)
                except TypeError as error:
                    raise EncodingError(f"{value!r:.80}: {error}", place // n_in_row) from None
                bucket = self._bucket(known)
                if len(remembered) < _MOST_REMEMBERED:
                    remembered[known] = bucket
            buckets[place] = bucket
        return buckets

    def _bucket(self, value: Any) -> int:
        digest = hashlib.blake2b(self._salt.encode("utf-8", "surrogatepass") + b"\0" + _canonical(value), digest_size=8).digest()
        return int.from_bytes(digest, "little") % self._n_buckets


def _canonical(value: Any) -> bytes:
    """Bytes that are the same for equal categories, and for no others."""
    if value is None:
        return b"none"
    if isinstance(value, str):
        return b"text " + value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return b"bytes " + value
    if isinstance(value, tuple):
        parts = [_canonical(item) for item in value]
        return b"tuple " + b"".join(b"%d:%s" % (len(part), part) for part in parts)
    if value is NAN:
        return b"nan"
    if isinstance(value, float) and not value.is_integer():  # also the infinities
        return b"float " + value.hex().encode("ascii")
    return b"integer %x" % int(value) if int(value) >= 0 else b"integer -%x" % -int(value)
