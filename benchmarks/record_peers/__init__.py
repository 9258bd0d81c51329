"""The systems that benchmarks/records.py compares, one module each."""

from __future__ import annotations

import importlib

from record_peers.system import System

#: Modules of this package by the name of their system, ours first, then the limits, then the peers.
MODULES = {
    "ours": "ours",
    "ours, append": "ours",
    "memmap": "limits",
    "memmap, owned": "limits",
    "granular": "granular_bags",
    "array_record": "array_records",
    "streaming": "mosaicml",
    "hf_datasets": "hf_datasets",
    "lmdb": "lmdb_values",
    "lmdb, joined": "lmdb_values",
    "h5py": "hdf5",
}


def system(name: str) -> System:
    """The system of that name.

    Raises:
        ImportError: what it needs is not installed.
    """
    systems: dict[str, System] = importlib.import_module(f"record_peers.{MODULES[name]}").SYSTEMS
    return systems[name]
