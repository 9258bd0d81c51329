"""Datasets of OpenML: ``data_stack.load("openml:61")``."""

from __future__ import annotations

from collections.abc import Mapping

from data_stack import Catalogue
from data_stack.plugins import hookimpl
from data_stack_openml.catalogue import OpenMLCatalogue
from data_stack_openml.openml_dataset import OpenMLDataset

__all__ = ["OpenMLCatalogue", "OpenMLDataset"]


@hookimpl
def data_stack_catalogues() -> Mapping[str, Catalogue]:
    """Return the catalogue of names such as ``openml:number`` and ``openml:name@version``."""
    return {"openml": OpenMLCatalogue()}
