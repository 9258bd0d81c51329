"""An order that puts samples of similar length into one batch, so that little of a padded batch is padding."""

from __future__ import annotations

import functools
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from data_stack.dataset.positions import IndexArrayOfInts, check_integer
from data_stack.dataset.randomness import KeyedPermutation, derive_seed, hash_of
from data_stack.dataset.recipes.recipe_values import array_digest
from data_stack.exception import ConfigError
from data_stack.loader.orders import Order, Shuffled


class Bucketed(Order):
    """Shuffles all samples, and collects samples of similar length in chunks, window by window::

        lengths = [len(tokens) for tokens in texts.read_column("tokens")]
        Loader(texts, 32, shuffle=Bucketed(lengths, chunk=32), collate=Padded())

    The order of :class:`~data_stack.loader.orders.Shuffled` is cut into windows of ``window * chunk`` samples. Within each,
    samples are sorted by length (equal ones stay in their shuffled order) and cut into chunks of ``chunk`` samples, and these are
    shuffled. So each epoch mixes other samples in a window; short and long batches come in random order; and a padded batch
    has about the padding that the 1/``window`` quantiles of the lengths leave.

    If ``chunk`` does not divide the number of samples, one chunk is short and comes at the end of the epoch, so that batches and
    chunks stay in step. Its samples are drawn: if they were always the longest, ``drop_last`` would hide these in most epochs.

    With ``chunk = batch_size`` each batch of each rank is one chunk, with any number of ranks, except in the last step of an
    epoch, whose samples are divided evenly. With ``chunk = world * batch_size`` the batches of *all* ranks in a step have similar
    lengths, so that no rank waits for another.

    It keeps the lengths, in as few bytes as the longest needs, and one sorted window of 8 bytes a sample.

    Args:
        lengths: of each sample, integers in any unit, shape ``(n_samples,)``; only their order counts.
        chunk: number of samples that stay together, at least 1; usually the batch size.
        window: number of chunks that are sorted together, at least 1. A larger window leaves less padding, and mixes as well.

    Raises:
        ConfigError: lengths are not integers, or are negative; ``chunk`` or ``window`` is not positive. When the order is used:
            the number of samples differs from that of the lengths.
    """

    def __init__(self, lengths: npt.ArrayLike, *, chunk: SupportsIndex, window: SupportsIndex = 100) -> None:
        given = np.asarray(lengths)
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise ConfigError(
                f"lengths must be one integer per sample, got {given.dtype} of shape {given.shape}; "
                f"for a column of lists, pass [len(value) for value in iterator.read_column(key)]"
            )
        if given.size and int(given.min()) < 0:
            raise ConfigError(f"lengths must not be negative; that of sample {int(given.argmin())} is {int(given.min())}")
        longest = int(given.max()) if given.size else 0
        self._lengths: npt.NDArray[np.unsignedinteger[Any]] = given.astype(np.min_scalar_type(longest))  # a copy
        self._chunk = check_integer("the chunk of a bucketed order", chunk, at_least=1)
        self._window = check_integer("the window of a bucketed order", window, at_least=1)
        self._last: tuple[tuple[int, int, int], npt.NDArray[np.int64]] | None = None

    def indices(self, positions: IndexArrayOfInts, n_samples: int, seed: int, epoch: int) -> IndexArrayOfInts:
        if n_samples != len(self._lengths):
            raise ConfigError(
                f"this bucketed order has the lengths of {len(self._lengths):,} samples, but the iterator has {n_samples:,}: "
                f"pass the lengths of this iterator"
            )
        windows, places = np.divmod(positions.astype(np.int64, copy=False), self._chunk * self._window)
        found = np.empty(len(positions), dtype=np.int64)
        for window in np.unique(windows).tolist():
            which = windows == window
            last = self._last  # one attribute: threads need no lock
            if last is None or last[0] != (seed, epoch, window):
                self._last = last = (seed, epoch, window), self._sort_window(window, seed, epoch)
            found[which] = last[1][places[which]]
        return found

    def content(self) -> dict[str, Any]:
        return {"order": "bucketed", "lengths": self._digest, "chunk": self._chunk, "window": self._window}

    @functools.cached_property
    def _digest(self) -> str:
        return array_digest(self._lengths.astype(np.int64))

    def __repr__(self) -> str:
        return f"Bucketed({len(self._lengths):,} lengths, chunk={self._chunk}, window={self._window})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}

    def _sort_window(self, window: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
        """The samples of a window in their order, shape ``(samples of the window,)``."""
        n_samples, chunk = len(self._lengths), self._chunk
        start = window * self._window * chunk
        shuffled = Shuffled().indices(np.arange(start, min(start + self._window * chunk, n_samples)), n_samples, seed, epoch)
        by_length = shuffled[np.argsort(self._lengths[shuffled], kind="stable")].astype(np.int64, copy=False)
        n_full, n_short = divmod(len(by_length), chunk)
        drawn = derive_seed("buckets", seed, epoch, window)
        if n_short:
            place = (hash_of(drawn, 0) * (n_full + 1) >> 64) * chunk  # cut the short chunk out before one of the full ones
            short = by_length[place : place + n_short]
            by_length = np.concatenate((by_length[:place], by_length[place + n_short :]))
        else:
            short = by_length[:0]
        order = KeyedPermutation(n_full, drawn).take(np.arange(n_full))
        return np.concatenate((by_length.reshape(n_full, chunk)[order].reshape(-1), short))
