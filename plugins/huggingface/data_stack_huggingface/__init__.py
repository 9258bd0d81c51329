"""Datasets of the Hugging Face Hub: ``data_stack.load("hf:owner/name@revision#config")``."""

from __future__ import annotations

from collections.abc import Mapping

from data_stack.io.retriever import Fetch
from data_stack.plugins import hookimpl
from data_stack_huggingface.catalogue import HubDataset, HuggingFaceCatalogue
from data_stack_huggingface.hub import fetch

__all__ = ["HubDataset", "HuggingFaceCatalogue"]


@hookimpl
def data_stack_catalogues() -> Mapping[str, HuggingFaceCatalogue]:
    """``hf:owner/name``."""
    return {"hf": HuggingFaceCatalogue()}


@hookimpl
def data_stack_retrievers() -> Mapping[str, Fetch]:
    """``hf://datasets/owner/name@commit/path?etag=…``."""
    return {"hf": fetch}
