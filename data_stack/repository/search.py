"""Finds installed datasets by words of their names, descriptions, keywords, licences and classes."""

from __future__ import annotations

import importlib.metadata

from data_stack.exception import PluginError
from data_stack.repository.repository import DatasetDescription, DatasetRepository, default_repository


def search_datasets(text: str, repository: DatasetRepository | None = None) -> list[DatasetDescription]:
    """The datasets in which each word of ``text`` is found, those with a word in their name first.

    Imports the plugins; a broken one is found by its name.

    Args:
        text: words; upper and lower case are equal.
        repository: the datasets to search; None for the default one.
    """
    repository = default_repository() if repository is None else repository
    words, found = text.casefold().split(), list[DatasetDescription]()
    for name in repository.list():
        try:
            each = repository.describe(name)
        except PluginError:
            each = DatasetDescription(name)
        facts = (each.name, each.description, each.license, each.citation, *each.class_names, *keywords_of(each.distribution))
        known = " ".join(filter(None, facts)).casefold()
        if all(word in known for word in words):
            found.append(each)
    return sorted(found, key=lambda each: not any(word in each.name for word in words))


def keywords_of(distribution: str | None) -> list[str]:
    """The keywords that the package of a dataset declares."""
    declared = [] if distribution is None else importlib.metadata.metadata(distribution).get_all("Keywords", [])
    return [each.strip() for text in declared for each in text.split(",") if each.strip()]
