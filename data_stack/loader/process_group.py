"""Rank and world of this process in torch.distributed."""

from __future__ import annotations

import sys

__all__ = ["group_shard"]


def group_shard() -> tuple[int, int] | None:
    """``(rank, world)`` in the default group of ``torch.distributed``; None without a group. This does not import torch."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()
