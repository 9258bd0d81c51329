"""Files and datasets by their DOI: ``data_stack.load("doi:10.5281/zenodo.4924875#tiny.csv")``."""

from __future__ import annotations

from collections.abc import Mapping

from data_stack import Catalogue
from data_stack.io.retriever import Fetch
from data_stack.plugins import hookimpl
from data_stack_doi.catalogue import DOICatalogue
from data_stack_doi.fetching import fetch
from data_stack_doi.record_dataset import RecordDataset

__all__ = ["DOICatalogue", "RecordDataset"]


@hookimpl
def data_stack_catalogues() -> Mapping[str, Catalogue]:
    """Return the catalogue of names such as ``doi:10.5281/zenodo.4924875#file``."""
    return {"doi": DOICatalogue()}


@hookimpl
def data_stack_retrievers() -> Mapping[str, Fetch]:
    """Return what retrieves ``doi:10.5281/zenodo.4924875/file``."""
    return {"doi": fetch}
