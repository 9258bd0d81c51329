"""The part of the samples that belongs to a process in a device mesh or process group of torch."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np

from data_stack.exception import ConfigError

#: Words in the names of dimensions along which all processes read the same batches.
_MODEL_PARALLEL_WORDS: Final = frozenset(
    ("context", "cp", "model", "mp", "pipeline", "pp", "sequence", "sp", "tensor", "tp")
)


class DeviceMesh(Protocol):
    """What a loader asks of a ``torch.distributed.device_mesh.DeviceMesh``."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of processes in each dimension."""

    @property
    def mesh_dim_names(self) -> tuple[str, ...] | None:
        """The names of the dimensions."""

    def get_coordinate(self) -> Sequence[int] | None:
        """Return the place of this process in each dimension; None outside of the mesh."""


class ProcessGroup(Protocol):
    """What a loader asks of a ``torch.distributed.ProcessGroup``."""

    def rank(self) -> int:
        """Return the rank of this process in the group."""

    def size(self) -> int:
        """Return the number of processes in the group."""


def is_mesh(value: Any) -> bool:
    """Return whether a value is a device mesh of torch. This does not import torch."""
    module = sys.modules.get("torch.distributed.device_mesh")
    return module is not None and isinstance(value, module.DeviceMesh)


def is_process_group(value: Any) -> bool:
    """Return whether a value is what ``torch.distributed.new_group`` returns.

    That includes what it returns to a process outside of the new group. This does not import torch.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available():
        return False
    if isinstance(value, distributed.ProcessGroup):
        return True
    return value is distributed.GroupMember.NON_GROUP_MEMBER


def find_mesh_shard(mesh: DeviceMesh) -> tuple[int, int]:
    """Return the rank and world of this process in a mesh, in row-major order.

    Args:
        mesh: the mesh of the data-parallel dimensions.

    Raises:
        ConfigError: this process lies outside of the mesh, or the mesh has a dimension that does
            not divide the samples.
    """
    names = mesh.mesh_dim_names or ()
    for name in names:
        if _is_model_parallel(name):
            raise ConfigError(
                f"shard= got a mesh with the dimension {name!r}, one of {names}. Its name says "
                f"that the processes along it read the same batches. Pass the mesh of the "
                f'data-parallel dimensions, as in shard=mesh["dp"]. If the samples are divided '
                f"along {name!r} all the same, pass shard=(mesh.get_local_rank(), mesh.size())"
            )
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise ConfigError(
            f"shard= got a mesh of which this process is no part: its shape is "
            f"{tuple(mesh.shape)}. Make the mesh of all processes that train"
        )
    shape = tuple(mesh.shape)
    rank = int(np.ravel_multi_index(tuple(coordinate), shape))
    return rank, int(np.prod(shape))


def _is_model_parallel(name: str) -> bool:
    """Return whether the name of a dimension has a word of model parallelism.

    Some flattened dimensions, such as ``"dp_shard_cp"``, have one beside others.
    """
    return not _MODEL_PARALLEL_WORDS.isdisjoint(re.split(r"[^a-z]+", name.lower()))


def find_shard_in_group(group: ProcessGroup) -> tuple[int, int]:
    """Return the rank and world of this process in a process group.

    Raises:
        ConfigError: this process is not in the group.
    """
    distributed = sys.modules["torch.distributed"]
    if group is distributed.GroupMember.NON_GROUP_MEMBER:
        raise ConfigError(
            "shard= got a process group of which this process is no member: "
            "torch.distributed.new_group() returns the group to its members only. Pass each "
            "process the group that it belongs to"
        )
    rank = int(distributed.get_rank(group))
    if rank < 0:
        raise ConfigError(
            "shard= got a process group of which this process is no member. Pass each process the "
            "group that it belongs to"
        )
    return rank, int(distributed.get_world_size(group))


def list_members(group: ProcessGroup) -> tuple[int, ...]:
    """Return the ranks, in the default group, of the members of a process group."""
    distributed = sys.modules["torch.distributed"]
    return tuple(distributed.get_process_group_ranks(group))
