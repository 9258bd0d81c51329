"""The loaders that benchmarks/loader.py compares, one module each."""

from __future__ import annotations

import importlib

from loader_peers.loading import LoaderSystem

#: Modules of this package by the name of their loader: ours first, then the limits, then the peers.
MODULES = {
    **{
        f"ours, {source}, {kind}": "ours"
        for source in ("arrays", "records")
        for kind in ("auto", "inline", "threads", "processes")
    },
    "ours, arrays combined of 4, inline": "ours",
    "take": "limits",
    "decoder, 2 threads": "limits",
    "torch, memmap": "torch_arrays",
    "torch, memmap, batched": "torch_arrays",
    "torch, lmdb": "torch_stores",
    "torch, hf_datasets": "torch_stores",
    "torch, granular": "torch_stores",
    "granular": "granular_loader",
    "grain, array_record": "grain_loader",
    "streaming": "mosaicml_loader",
    **{f"ours, python, {kind}": "python_work" for kind in ("inline", "auto", "processes")},
    "torch, python, 0 workers": "python_work",
    "torch, python, 2 workers": "python_work",
    "bare loop, python": "python_work",
}


def loader_system(name: str) -> LoaderSystem:
    """The loader of that name.

    Raises:
        ImportError: what it needs is not installed.
    """
    systems: dict[str, LoaderSystem] = importlib.import_module(
        f"loader_peers.{MODULES[name]}"
    ).SYSTEMS
    return systems[name]
