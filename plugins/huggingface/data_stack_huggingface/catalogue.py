"""The Hub as a catalogue, and its datasets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import data_stack
from data_stack import (
    CatalogueEntry,
    CatalogueName,
    DatasetFactory,
    DatasetIteratorIF,
    IteratorMeta,
    ResourceDefinition,
    StorageConnector,
    exception,
)
from data_stack.factories.definition import DatasetDefinition
from data_stack.factories.manifest import Manifest, ResourceRecord
from data_stack.io.retriever import is_offline
from data_stack_huggingface.columns import (
    encoders_of,
    features_of_card,
    features_of_files,
    parts_of,
)
from data_stack_huggingface.hub import (
    HubFile,
    HubFiles,
    converted_commits,
    dataset_info,
    find_datasets,
)
from data_stack_huggingface.layout import converted_files, split_files

if TYPE_CHECKING:
    from huggingface_hub import DatasetInfo

_README = "README.md"
_MAX_CARD_BYTES = 16 << 20
#: Prefix of versions that are commits of Parquet files converted by the Hub.
_CONVERTED = "parquet-"


class HuggingFaceCatalogue(data_stack.Catalogue):
    """The datasets of the Hugging Face Hub with Parquet files, their own or converted by the Hub; none of their code is run.

    The server is ``HF_ENDPOINT``, the token that of huggingface_hub.
    """

    def find(self, name: CatalogueName, store: StorageConnector | None = None) -> HubDataset:
        """Return the dataset at the current commit of its version, which is a branch, tag or commit."""
        if is_offline():
            return _find_stored(name, store)
        repo, (_, mark, converted) = name.name, (name.version or "").partition(_CONVERTED)
        revision = "main" if mark or name.version is None else name.version
        info = dataset_info(repo, revision)
        card, files = _card_of(info), _files_of(info)
        splits = {} if mark else split_files(repo, card, files, name.part)
        if not splits and revision == "main":
            mark, commits = _CONVERTED, [converted] if converted else converted_commits(repo)
            files = _files_of(dataset_info(repo, commits[0])) if commits else {}
            splits = converted_files(repo, card, files, name.part)
        if not splits:
            raise exception.CatalogueError(
                f"hf:{repo} has no Parquet files at {revision!r:.80}, and the Hub has not converted its main branch. Read it "
                f"with the package datasets, and pass it to data_stack.from_huggingface()"
            )
        digits = max(
            5, *(len(str(len(paths))) for paths in splits.values())
        )  # the names are sorted
        parts = (
            (f"data/{split}/{n:0{digits}}.parquet", path)
            for split, paths in splits.items()
            for n, path in enumerate(paths)
        )
        listed = {key: files[path] for key, path in parts}
        commit = next(iter(listed.values())).commit
        if (
            not mark
            and _README in files
            and files[_README].size < _MAX_CARD_BYTES
            and features_of_card(card, name.part)
        ):
            listed[_README] = files[_README]  # offline, the features come from it
        return HubDataset(name, mark + commit, listed, card)

    def search(self, text: str, limit: int = 20) -> list[CatalogueEntry]:
        """Return datasets whose names contain the text."""
        found = [(each, _card_of(each)) for each in find_datasets(text, limit)]
        titles = [card["description"].partition("\n")[0][:200] for _, card in found]
        sizes = [
            getattr(each, "main_size", None) for each, _ in found
        ]  # unknown to huggingface_hub 0.26
        rows = zip(found, titles, sizes, strict=True)
        return [
            CatalogueEntry(f"hf:{each.id}", title, _license(card), size)
            for (each, card), title, size in rows
        ]

    def list_files(self, name: CatalogueName) -> dict[str, ResourceDefinition]:
        """Return all files of a repository at the current commit of its version."""
        files = _files_of(dataset_info(name.name, name.version or "main"))
        return {
            path: file.define(f"files/{number}")
            for number, (path, file) in enumerate(files.items())
        }


def _card_of(info: DatasetInfo) -> dict[str, Any]:
    """Return the metadata of the README, with the title in ``description``."""
    card = dict(vars(info.card_data)) if info.card_data is not None else {}
    return {
        **card,
        "description": "\n".join(
            filter(None, [str(card.get("pretty_name") or ""), (info.description or "").strip()])
        ),
    }


def _license(card: Mapping[str, Any]) -> str | None:
    """Return the licenses of a card, joined by AND."""
    licenses = card.get("license")
    listed = licenses if isinstance(licenses, list) else [licenses]
    return (
        " AND ".join(str(each) for each in listed if each not in (None, "unknown", "other")) or None
    )


def _files_of(info: DatasetInfo) -> dict[str, HubFile]:
    """Return the files of a revision by path, with the digests of the Hub's listing."""
    if re.fullmatch("[0-9a-f]{40}", commit := str(info.sha)) is None:
        raise exception.CatalogueError(
            f"the Hub's answer for hf:{info.id} lacks the commit: update this package"
        )
    etags = [each.lfs.sha256 if each.lfs else each.blob_id for each in info.siblings or ()]
    listed = zip(info.siblings or (), etags, strict=True)
    return {
        each.rfilename: HubFile(info.id, commit, each.rfilename, each.size or 0, etag)
        for each, etag in listed
        if etag
    }


def _find_stored(name: CatalogueName, store: StorageConnector | None) -> HubDataset:
    """Find a prepared dataset in a store, without network."""
    identifier = f"{name.folder}/{name.version}/manifest.json"
    if store is None or name.version is None or not store.has_resource(identifier):
        raise exception.CatalogueUnavailableError(
            f"DATA_STACK_OFFLINE is set, and the store does not have {name}; offline, name a prepared dataset with its commit: "
            f"{name.plain}@COMMIT"
        )
    with store.get_resource(identifier) as file:
        sources = Manifest.from_json(file.read()).sources
    files = {
        each.identifier: HubFile(
            name.name, name.version, each.identifier, each.size or 0, each.sha256 or ""
        )
        for each in sources
    }
    if _README not in files:
        return HubDataset(name, name.version, files, {})
    with store.get_resource(f"{name.folder}/{name.version}/{_README}") as file:
        text = file.read(_MAX_CARD_BYTES).decode("utf-8", "replace")
    from huggingface_hub import DatasetCard

    try:
        card = vars(DatasetCard(text, ignore_metadata_errors=True).data)
    except Exception as error:  # an error of the YAML parser
        raise exception.CatalogueError(
            f"the stored README of {name} cannot be read ({type(error).__name__}): prepare it again"
        ) from error
    return HubDataset(name, name.version, files, card)


class HubDataset(data_stack.CatalogueDataset):
    """A dataset of the Hub at a commit; samples are dicts, with images and arrays as NumPy arrays.

    Loading it first retrieves all files into the store. With ``lazy=True`` it stores nothing, and reads row groups from the Hub
    on access.

    Args:
        name: name of the dataset.
        version: the commit; for files converted by the Hub, ``parquet-`` and the commit.
        files: files by their names in the store, ``data/SPLIT/00000.parquet``.
        card: metadata of the README; may be empty.
    """

    def __init__(
        self,
        name: CatalogueName,
        version: str,
        files: Mapping[str, HubFile],
        card: Mapping[str, Any],
    ) -> None:
        facts = data_stack.DatasetCard(
            name.folder, version, _license(card), f"https://huggingface.co/datasets/{name.name}"
        )
        splits = list(dict.fromkeys(key.split("/")[1] for key in files if key != _README))
        super().__init__(
            facts,
            splits,
            [file.define(key) for key, file in files.items()],
            card.get("description") or "",
        )
        self._files, self._features = dict(files), features_of_card(card, name.part)
        vars(self).update(parts_of(self._features, list(self._features)))

    def get_dataset_iterator(
        self, config: Mapping[str, Any] | None = None
    ) -> tuple[DatasetIteratorIF, IteratorMeta]:
        """Open one split; with ``"lazy": True`` nothing is prepared."""
        if not (config or {}).get("lazy"):
            return super().get_dataset_iterator(config)[0], self.iterator_meta
        definition = DatasetDefinition(self, DatasetFactory)
        records = [ResourceRecord(key, each.size, each.sha256) for key, each in self._files.items()]
        files = HubFiles({f"{definition.folder}/{key}": each for key, each in self._files.items()})
        prepared = data_stack.Resources(files, definition.folder, records)
        split, options = definition.check_config(config)
        return self.open(split, prepared, **options), self.iterator_meta

    def open(
        self,
        split: str,
        prepared: data_stack.Resources,
        *,
        lazy: bool = False,
        image_mode: str | None = None,
    ) -> DatasetIteratorIF:
        """Open a split; ``image_mode="RGB"`` converts all images to a mode of Pillow."""
        from data_stack.formats.parquet import ParquetDataset

        rows = ParquetDataset(prepared, prefix=f"data/{split}")
        features = self._features or features_of_files(rows.metadata)
        encoders = encoders_of(
            rows, features, f"{split!r} of {self.card.name}@{self.card.version}", image_mode
        )
        names = list(features or rows.schema.fields)
        vars(self).update(parts_of(features, names))
        ordered = rows if names == list(rows.schema.fields) else rows.select(*names)
        return ordered.encode(encoders) if encoders else ordered
