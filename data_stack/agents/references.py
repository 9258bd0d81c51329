"""Parses the names by which agents name datasets: ``"digits"`` and ``"STORE:NAME"``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from data_stack.exception import ConfigError
from data_stack.repository.dataset_names import is_place
from data_stack.show.markup import readable
from data_stack.util.suggestions import did_you_mean

#: The name of all files of a store as one dataset, ``"STORE:."``.
WHOLE_STORE: Final = "."

#: Longer names are refused.
_MAX_CHARACTERS: Final = 500

#: How much of a bad name is shown in a message.
_MAX_SHOWN_CHARACTERS: Final = 80


@dataclass(frozen=True, slots=True)
class DatasetReference:
    """What an agent wrote to name a dataset.

    Attributes:
        text: as it was written.
        store: the name of the store; None if none was named.
        name: the name in the store, or of an installed dataset, perhaps with a version; or
            :data:`WHOLE_STORE`.
    """

    text: str
    store: str | None
    name: str

    @property
    def is_whole_store(self) -> bool:
        """Whether all files of the store are the dataset."""
        return self.store is not None and self.name == WHOLE_STORE


def parse_reference(text: object, stores: Collection[str]) -> DatasetReference:
    """Parse ``"digits"``, ``"digits@1.0.0"``, ``"STORE:digits"`` or ``"STORE:folder/train.csv"``.

    Args:
        text: what an agent wrote.
        stores: the names of the stores that the user named.

    Raises:
        ConfigError: the text is a path or a URL, leads out of the store, or is no name.
    """
    if not isinstance(text, str):
        raise ConfigError(f"the name of a dataset must be text, got {type(text).__name__}")
    shown = readable(text, _MAX_SHOWN_CHARACTERS)
    if not text or len(text) > _MAX_CHARACTERS:
        raise ConfigError(
            f"the name of a dataset has 1 to {_MAX_CHARACTERS} characters, got {len(text):,}"
        )
    if not text.isprintable() or text != text.strip():
        raise ConfigError(
            f"'{shown}' is no name of a dataset: it has spaces around it, or control characters"
        )
    store, colon, name = text.partition(":")
    if not colon or store not in stores:
        _check_name(text, shown)
        return DatasetReference(text, None, text)
    if name != WHOLE_STORE:
        _check_name(name, shown)
    return DatasetReference(text, store, name)


def check_store(name: object, stores: Collection[str]) -> str:
    """Return the name of a store.

    Raises:
        ConfigError: there is no such store.
    """
    if isinstance(name, str) and name in stores:
        return name
    known = ", ".join(repr(known_name) for known_name in stores)
    raise ConfigError(
        f"there is no store {readable(name, _MAX_SHOWN_CHARACTERS)!r}{did_you_mean(name, stores)}; "
        f"the stores of this server are {known}"
    )


def _check_name(name: str, shown: str) -> None:
    """Check that a name is neither a path nor a URL, and does not climb out of a store.

    Raises:
        ConfigError: it is one, or does.
    """
    segments = name.split("/")
    climbs = ".." in segments or "." in segments or "" in segments
    if is_place(name) or climbs or "\\" in name or "://" in name:
        raise ConfigError(
            f"'{shown}' is a path or a URL, and this server reads neither. Name an installed "
            f"dataset ('digits'), or one in a store of this server ('STORE:NAME', as list_datasets "
            f"lists them). The user can add a store: data-stack mcp --store NAME=PATH_OR_URL"
        )
