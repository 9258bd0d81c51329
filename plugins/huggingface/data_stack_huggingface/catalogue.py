"""The Hub as a catalogue."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import data_stack
from data_stack import (
    CatalogueEntry,
    CatalogueName,
    ResourceDefinition,
    StorageConnector,
    exception,
)
from data_stack.factories.manifest import Manifest
from data_stack.io.retriever import is_offline
from data_stack_huggingface.api import converted_commit, dataset_info, find_datasets
from data_stack_huggingface.card import license_of
from data_stack_huggingface.features import features_of_card
from data_stack_huggingface.hub_dataset import README, HubDataset
from data_stack_huggingface.hub_file import HubFile
from data_stack_huggingface.layout import converted_files, split_files

if TYPE_CHECKING:
    from huggingface_hub import DatasetInfo

#: The largest README that is read.
_MAX_CARD_BYTES: Final = 16 << 20

#: Prefix of versions that are commits of Parquet files converted by the Hub.
_CONVERTED_PREFIX: Final = "parquet-"

#: The Hub converts the files of this branch.
_MAIN_BRANCH: Final = "main"

#: The least number of digits in the names of stored files, such as ``data/train/00000.parquet``.
_MIN_DIGITS: Final = 5

_MAX_TITLE_LENGTH: Final = 200


class HuggingFaceCatalogue(data_stack.Catalogue):
    """The datasets of the Hugging Face Hub with Parquet or Arrow files, or converted by the Hub.

    None of their code is run. The server is ``HF_ENDPOINT``, the token that of huggingface_hub.
    """

    def find(self, name: CatalogueName, store: StorageConnector | None = None) -> HubDataset:
        """Return the dataset at the current commit of its version: a branch, tag or commit."""
        if is_offline():
            return _find_stored(name, store)
        version = name.version or _MAIN_BRANCH
        if version.startswith(_CONVERTED_PREFIX):
            card = _card_of(dataset_info(name.name, _MAIN_BRANCH))
            return _find_converted(name, card, version.removeprefix(_CONVERTED_PREFIX))

        info = dataset_info(name.name, version)
        card = _card_of(info)
        files = _files_of(info)
        files_of_split = split_files(name.name, card, files, name.part)
        if not files_of_split and version == _MAIN_BRANCH:
            return _find_converted(name, card)
        if not files_of_split:
            raise _make_no_parquet_error(name.name, version)

        stored_files = _name_files(files_of_split, files)
        commit = _commit_of(stored_files)
        # Offline, the features come from the README.
        has_features = bool(features_of_card(card, name.part))
        if has_features and README in files and files[README].size < _MAX_CARD_BYTES:
            stored_files[README] = files[README]
        return HubDataset(name, commit, stored_files, card)

    def search(self, text: str, limit: int = 20) -> list[CatalogueEntry]:
        """Return datasets whose names contain the text."""
        return [_entry_of(info) for info in find_datasets(text, limit)]

    def list_files(self, name: CatalogueName) -> dict[str, ResourceDefinition]:
        """Return all files of a repository at the current commit of its version."""
        files = _files_of(dataset_info(name.name, name.version or _MAIN_BRANCH))
        definitions = {}
        for number, (path, file) in enumerate(files.items()):
            definitions[path] = file.define(f"files/{number}")
        return definitions


def _find_converted(
    name: CatalogueName, card: Mapping[str, Any], asked_commit: str | None = None
) -> HubDataset:
    """Return a dataset of Parquet files that the Hub has converted.

    Args:
        name: name of the dataset.
        card: metadata of the README of the main branch.
        asked_commit: a commit of converted files; None: the current one.

    Raises:
        CatalogueError: there are no such files.
    """
    commit = asked_commit or converted_commit(name.name)
    if commit is None:
        raise _make_no_parquet_error(name.name, _MAIN_BRANCH)
    files = _files_of(dataset_info(name.name, commit))
    files_of_split = converted_files(name.name, card, files, name.part)
    if not files_of_split:
        raise _make_no_parquet_error(name.name, _MAIN_BRANCH)
    stored_files = _name_files(files_of_split, files)
    version = f"{_CONVERTED_PREFIX}{_commit_of(stored_files)}"
    return HubDataset(name, version, stored_files, card)


def _make_no_parquet_error(repo: str, revision: str) -> exception.CatalogueError:
    """Return the error for a dataset without Parquet and Arrow files."""
    return exception.CatalogueError(
        f"hf:{repo} has no Parquet or Arrow files at {revision!r:.80}, and the Hub has not "
        f"converted its main branch. Read it with the package datasets, and pass it to "
        f"data_stack.from_huggingface()"
    )


def _name_files(
    files_of_split: Mapping[str, Sequence[str]], files: Mapping[str, HubFile]
) -> dict[str, HubFile]:
    """Return files by their names in a store, ``data/SPLIT/00000.parquet`` or ``….arrow``."""
    # The names are sorted, so all have the same number of digits.
    max_n_files = max(len(paths) for paths in files_of_split.values())
    n_digits = max(_MIN_DIGITS, len(str(max_n_files)))
    named_files = {}
    for split, paths in files_of_split.items():
        for number, path in enumerate(paths):
            suffix = ".arrow" if path.endswith(".arrow") else ".parquet"
            named_files[f"data/{split}/{number:0{n_digits}}{suffix}"] = files[path]
    return named_files


def _commit_of(files: Mapping[str, HubFile]) -> str:
    """Return the commit of files of one commit."""
    return next(iter(files.values())).commit


# ------------------------------------------------------------------------- answers of the API


def _card_of(info: DatasetInfo) -> dict[str, Any]:
    """Return the metadata of the README, with the title in ``description``."""
    card = {}
    if info.card_data is not None:
        card.update(vars(info.card_data))
    title = str(card.get("pretty_name") or "")
    text = (info.description or "").strip()
    if title and text:
        card["description"] = f"{title}\n{text}"
    else:
        card["description"] = title or text
    return card


def _entry_of(info: DatasetInfo) -> CatalogueEntry:
    """Return the entry of a dataset that was found."""
    card = _card_of(info)
    first_line = card["description"].partition("\n")[0]
    size = getattr(info, "main_size", None)  # unknown to huggingface_hub 0.26
    return CatalogueEntry(f"hf:{info.id}", first_line[:_MAX_TITLE_LENGTH], license_of(card), size)


def _files_of(info: DatasetInfo) -> dict[str, HubFile]:
    """Return the files of a revision by path, with the digests of the Hub's listing.

    Raises:
        CatalogueError: the answer has no commit.
    """
    commit = str(info.sha)
    if re.fullmatch("[0-9a-f]{40}", commit) is None:
        raise exception.CatalogueError(
            f"the Hub's answer for hf:{info.id} lacks the commit: update this package"
        )
    files = {}
    for sibling in info.siblings or ():
        etag = sibling.lfs.sha256 if sibling.lfs else sibling.blob_id
        if etag:
            path = sibling.rfilename
            files[path] = HubFile(info.id, commit, path, sibling.size or 0, etag)
    return files


# ------------------------------------------------------------------------- without network


def _find_stored(name: CatalogueName, store: StorageConnector | None) -> HubDataset:
    """Find a prepared dataset in a store, without network.

    Raises:
        CatalogueUnavailableError: the store does not have it.
        CatalogueError: its README is damaged.
    """
    folder = f"{name.folder}/{name.version}"
    manifest = f"{folder}/manifest.json"
    if store is None or name.version is None or not store.has_resource(manifest):
        raise exception.CatalogueUnavailableError(
            f"DATA_STACK_OFFLINE is set, and the store does not have {name}; offline, name a "
            f"prepared dataset with its commit: {name.plain}@COMMIT"
        )
    with store.get_resource(manifest) as file:
        sources = Manifest.from_json(file.read()).sources
    files = {}
    for source in sources:
        # The path in the repository is not stored; without network, it is not needed.
        files[source.identifier] = HubFile(
            name.name, name.version, source.identifier, source.size or 0, source.sha256 or ""
        )
    card: Mapping[str, Any] = {}
    if README in files:
        with store.get_resource(f"{folder}/{README}") as file:
            text = file.read(_MAX_CARD_BYTES).decode("utf-8", "replace")
        card = _parse_card(text, name)
    return HubDataset(name, name.version, files, card)


def _parse_card(text: str, name: CatalogueName) -> Mapping[str, Any]:
    """Return the metadata of a README.

    Raises:
        CatalogueError: they are damaged.
    """
    from huggingface_hub import DatasetCard

    try:
        return vars(DatasetCard(text, ignore_metadata_errors=True).data)
    except Exception as error:  # an error of the YAML parser
        raise exception.CatalogueError(
            f"the stored README of {name} cannot be read ({type(error).__name__}): prepare it again"
        ) from error
