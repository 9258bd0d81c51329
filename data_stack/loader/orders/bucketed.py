"""A random order in which samples of similar length are neighbours."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from data_stack.dataset.hashing import draw_below
from data_stack.dataset.permutation import KeyedPermutation
from data_stack.dataset.positions import IndexArrayOfInts, check_integer
from data_stack.dataset.randomness import derive_seed
from data_stack.dataset.recipes.array_values import array_digest
from data_stack.exception import ConfigError
from data_stack.loader.orders.order import Order
from data_stack.loader.orders.shuffled import Shuffled


@dataclass(frozen=True, slots=True)
class _SortedWindow:
    """A window of an epoch.

    Attributes:
        key: seed, epoch and number of the window.
        samples: its samples in their order, shape ``(samples of the window,)``.
    """

    key: tuple[int, int, int]
    samples: npt.NDArray[np.int64]


class Bucketed(Order):
    """Shuffles all samples, and collects samples of similar length in chunks, window by window::

        lengths = [len(tokens) for tokens in texts.read_column("tokens")]
        Loader(texts, 32, shuffle=Bucketed(lengths, chunk=32), collate=Padded())

    The order of :class:`~data_stack.loader.orders.Shuffled` is cut into windows of
    ``window * chunk`` samples. Within each, samples are sorted by length (equal ones stay in their
    shuffled order) and cut into chunks of ``chunk`` samples, and these are shuffled. So each epoch
    mixes other samples in a window, and short and long batches come in random order. The lengths in
    a chunk differ little: about as in one of ``window`` equal parts of all sorted lengths.

    If ``chunk`` does not divide the number of samples, one chunk is short and comes at the end of
    the epoch, so that batches and chunks stay in step. Its samples are drawn: if they were always
    the longest, ``drop_last`` would hide these in most epochs.

    With ``chunk = batch_size`` each batch of each rank is one chunk, with any number of ranks,
    except in the last step of an epoch, whose samples are divided evenly. With
    ``chunk = world * batch_size`` the batches of *all* ranks in a step have similar lengths, so
    that no rank waits for another.

    It keeps the lengths, in as few bytes as the longest needs, and one sorted window of 8 bytes a
    sample.

    Args:
        lengths: the length of each sample, integers in any unit, shape ``(n_samples,)``; only their
            order counts.
        chunk: the number of samples that stay together, at least 1; usually the batch size.
        window: the number of chunks that are sorted together, at least 1. A larger window leaves
            less padding, and mixes as well.

    Raises:
        ConfigError: lengths are not integers, or are negative; ``chunk`` or ``window`` is not
            positive. When the order is used: the number of samples differs from that of the
            lengths.
    """

    #: The length of each sample, shape ``(n_samples,)``.
    _lengths: npt.NDArray[np.unsignedinteger[Any]]
    #: The number of samples in a chunk.
    _chunk: int
    #: The number of chunks in a window.
    _n_chunks_of_window: int
    #: The window that was sorted last. It is replaced as a whole, so threads need no lock.
    _stored_window: _SortedWindow | None

    def __init__(
        self, lengths: npt.ArrayLike, *, chunk: SupportsIndex, window: SupportsIndex = 100
    ) -> None:
        self._lengths = _check_lengths(lengths)
        self._chunk = check_integer("the chunk of a bucketed order", chunk, at_least=1)
        self._n_chunks_of_window = check_integer(
            "the window of a bucketed order", window, at_least=1
        )
        self._stored_window = None

    def indices(
        self, positions: IndexArrayOfInts, n_samples: int, seed: int, epoch: int
    ) -> IndexArrayOfInts:
        if n_samples != len(self._lengths):
            raise ConfigError(
                f"this bucketed order has the lengths of {len(self._lengths):,} samples, but the "
                f"iterator has {n_samples:,}: pass the lengths of this iterator"
            )
        windows, places = np.divmod(positions.astype(np.int64), self._window_size)
        indices = np.empty(len(positions), dtype=np.int64)
        for window in np.unique(windows).tolist():
            is_in_window = windows == window
            samples = self._samples_of(window, seed, epoch)
            indices[is_in_window] = samples[places[is_in_window]]
        return indices

    def content(self) -> dict[str, Any]:
        return {
            "order": "bucketed",
            "lengths": self._digest,
            "chunk": self._chunk,
            "window": self._n_chunks_of_window,
        }

    @functools.cached_property
    def _digest(self) -> str:
        return array_digest(self._lengths.astype(np.int64))

    def __repr__(self) -> str:
        return (
            f"Bucketed({len(self._lengths):,} lengths, chunk={self._chunk}, "
            f"window={self._n_chunks_of_window})"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stored_window": None}

    @property
    def _window_size(self) -> int:
        """The number of samples in every window but the last."""
        return self._n_chunks_of_window * self._chunk

    def _samples_of(self, window: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
        """Return the samples of a window, by its number, in their order.

        They have the shape ``(samples of the window,)``, and are stored until the next window.
        """
        key = (seed, epoch, window)
        stored_window = self._stored_window
        if stored_window is None or stored_window.key != key:
            stored_window = _SortedWindow(key, self._sort_window(window, seed, epoch))
            self._stored_window = stored_window
        return stored_window.samples

    def _sort_window(self, window: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
        """Draw the samples of a window: sorted by length, in shuffled chunks."""
        # Sort the shuffled samples of the window by length.
        n_samples = len(self._lengths)
        start = window * self._window_size
        end = min(start + self._window_size, n_samples)
        shuffled = Shuffled().indices(np.arange(start, end), n_samples, seed, epoch)
        ranking = np.argsort(self._lengths[shuffled], kind="stable")
        by_length = shuffled[ranking].astype(np.int64)

        # Cut the short chunk out in front of a full chunk, or behind the last one.
        n_full_chunks, n_short = divmod(len(by_length), self._chunk)
        key = derive_seed("buckets", seed, epoch, window)
        n_full_chunks_before = draw_below(n_full_chunks + 1, key)
        short_start = n_full_chunks_before * self._chunk
        short_end = short_start + n_short
        short_chunk = by_length[short_start:short_end]
        full_chunks = np.delete(by_length, np.s_[short_start:short_end])

        # Shuffle the full chunks; the short one comes last.
        chunk_order = KeyedPermutation(n_full_chunks, key).take(np.arange(n_full_chunks))
        shuffled_chunks = full_chunks.reshape(n_full_chunks, self._chunk)[chunk_order]
        return np.concatenate((shuffled_chunks.ravel(), short_chunk))


def _check_lengths(lengths: npt.ArrayLike) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Return a copy of lengths, in the smallest type that holds them.

    Raises:
        ConfigError: they are not integers, or are negative.
    """
    array = np.asarray(lengths)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ConfigError(
            f"lengths must be one integer per sample, got {array.dtype} of shape {array.shape}; "
            "for a column of lists, pass [len(value) for value in iterator.read_column(key)]"
        )
    if array.size == 0:
        return array.astype(np.uint8)
    shortest = int(array.min())
    if shortest < 0:
        raise ConfigError(
            f"lengths must not be negative; that of sample {int(array.argmin())} is {shortest}"
        )
    return array.astype(np.min_scalar_type(int(array.max())))
