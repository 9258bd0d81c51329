"""Datasets of the Hugging Face Hub: ``data_stack.load("hf:owner/name@revision#config")``."""

from __future__ import annotations

from collections.abc import Mapping

from data_stack.io.retriever import Fetch
from data_stack.plugins import hookimpl
from data_stack_huggingface.catalogue import HuggingFaceCatalogue
from data_stack_huggingface.hub_dataset import HubDataset
from data_stack_huggingface.hub_file import fetch

__all__ = ["HubDataset", "HuggingFaceCatalogue"]


@hookimpl
def data_stack_catalogues() -> Mapping[str, HuggingFaceCatalogue]:
    """Return the catalogue of names such as ``hf:owner/name``."""
    return {"hf": HuggingFaceCatalogue()}


@hookimpl
def data_stack_retrievers() -> Mapping[str, Fetch]:
    """Return what retrieves ``hf://datasets/owner/name@commit/path?etag=…``."""
    return {"hf": fetch}
