"""Finds installed datasets by words of their names, descriptions, keywords, licences and classes."""

from __future__ import annotations

import difflib
import importlib.metadata
import re
from collections.abc import Iterable
from dataclasses import dataclass

from data_stack.exception import PluginError
from data_stack.repository.repository import DatasetDescription, DatasetRepository, default_repository

#: How much a word counts that is found in a part of a description.
_WEIGHTS = {"name": 8, "keywords": 4, "classes": 4, "title": 3, "license": 2, "description": 1}
_MIN_FUZZY = 4  # characters of a word that may be misspelled


@dataclass(frozen=True, slots=True)
class FoundDataset:
    """A dataset that :func:`search_datasets` found.

    Attributes:
        description: of the dataset; only its name if its plugin is broken.
        score: how well it matches, higher is better.
        parts: where the words were found: name, keywords, classes, title, license, description.
    """

    description: DatasetDescription
    score: float
    parts: tuple[str, ...]


def search_datasets(text: str, repository: DatasetRepository | None = None) -> list[FoundDataset]:
    """The datasets in which each word of ``text`` is found, best match first.

    A word is found in equal or longer words, and in words that differ by a letter or two. Imports the plugins; a broken one is
    found by its name.

    Args:
        text: words; upper and lower case are equal.
        repository: the datasets to search; None for the default one.
    """
    repository = default_repository() if repository is None else repository
    words = _words(text)
    found = []
    for name in repository.list():
        try:
            description = repository.describe(name)
        except PluginError:
            description = DatasetDescription(name)
        scores = {part: [_score(word, known) for word in words] for part, known in _parts(description).items()}
        best = [max(column) for column in zip(*scores.values(), strict=True)]
        if best and all(best):
            parts = tuple(part for part, column in scores.items() if any(column))
            total = sum(_WEIGHTS[part] * score for part, column in scores.items() for score in column)
            found.append(FoundDataset(description, total, parts))
    return sorted(found, key=lambda each: (-each.score, each.description.name))


def _parts(description: DatasetDescription) -> dict[str, list[str]]:
    """The words of a description by its parts."""
    title, _, text = description.description.partition("\n")
    texts = {
        "name": description.name,
        "keywords": " ".join(keywords_of(description.distribution)),
        "classes": " ".join(description.class_names),
        "title": title,
        "license": description.license or "",
        "description": f"{text} {description.citation or ''}",
    }
    return {part: _words(text) for part, text in texts.items()}


def keywords_of(distribution: str | None) -> list[str]:
    """The keywords that the package of a dataset declares."""
    declared = [] if distribution is None else importlib.metadata.metadata(distribution).get_all("Keywords", [])
    return [each.strip() for text in declared for each in text.split(",") if each.strip()]


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"\w+", text.casefold())))


def _score(word: str, known: Iterable[str]) -> float:
    """How well a word is found among others, from 0 to 1."""
    if word in known or any(each.startswith(word) for each in known):
        return 1.0 if word in known else 0.8
    if len(word) < _MIN_FUZZY:
        return 0.0
    return 0.6 if any(word in each for each in known) else 0.4 * bool(difflib.get_close_matches(word, known, n=1, cutoff=0.8))
