"""Finds the boundaries of packed documents, as attention kernels for variable lengths take them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError


@dataclass(frozen=True, eq=False, slots=True)
class CuSeqlens:
    """Where the documents of a batch start and end if its sequences are laid end to end.

    Attributes:
        cu_seqlens: the first token of each document, and the number of all tokens, ascending from
            0, shape ``(n_documents + 1,)``, int32.
        max_seqlen: the number of tokens of the longest document.
    """

    cu_seqlens: npt.NDArray[np.int32]
    max_seqlen: int


def find_cu_seqlens(segment_ids: npt.ArrayLike) -> CuSeqlens:
    """Return the boundaries of the documents in a batch of packed sequences.

    ``flash_attn_varlen_func`` of FlashAttention and ``varlen_attn`` of torch take them, with the
    batch as one row of tokens, ``tokens.reshape(-1)``::

        def with_cu_seqlens(batch):
            found = find_cu_seqlens(batch["segment_ids"])
            return {**batch, "cu_seqlens": found.cu_seqlens, "max_seqlen": found.max_seqlen}

        Loader(packed, 8, transform=with_cu_seqlens)

    A document that goes on in the next sequence is two documents here, as in ``segment_ids``. The
    padding at the end of a sequence is a document of its own, so that each token is in one.

    Args:
        segment_ids: numbers of documents, 0 for padding, of ``n`` sequences: shape
            ``(n, length)``; or of one sequence, shape ``(length,)``. A list or tensor will do.

    Raises:
        ConfigError: ``segment_ids`` has another shape, or is not of integers.
    """
    segments: npt.NDArray[Any] = np.asarray(segment_ids)
    if segments.ndim not in (1, 2) or segments.dtype.kind not in "iu":
        raise ConfigError(
            f"segment_ids must be integers of shape (n, length), got {segments.dtype} of shape "
            f"{segments.shape}"
        )
    if segments.size == 0:
        return CuSeqlens(np.zeros(1, dtype=np.int32), 0)
    rows = segments.reshape(-1, segments.shape[-1])
    is_first = np.ones(rows.shape, dtype=bool)
    is_first[:, 1:] = rows[:, 1:] != rows[:, :-1]
    starts = np.flatnonzero(is_first)
    cu_seqlens = np.append(starts, rows.size)
    if rows.size > np.iinfo(np.int32).max:
        raise ConfigError(f"cu_seqlens is int32, and cannot count {rows.size:,} tokens")
    max_seqlen = int(np.diff(cu_seqlens).max(initial=0))
    return CuSeqlens(cu_seqlens.astype(np.int32), max_seqlen)
