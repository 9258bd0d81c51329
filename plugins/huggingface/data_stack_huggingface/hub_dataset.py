"""A dataset of the Hub at a commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import data_stack
from data_stack import CatalogueName, DatasetFactory, DatasetIteratorIF, IteratorMeta
from data_stack.factories.definition import DatasetDefinition
from data_stack.factories.manifest import ResourceRecord
from data_stack_huggingface.card import license_of
from data_stack_huggingface.column_encoders import encoders_of
from data_stack_huggingface.columns import parts_of
from data_stack_huggingface.features import features_of_card, features_of_files
from data_stack_huggingface.hub_file import HubFile
from data_stack_huggingface.hub_files import HubFiles

#: Name of the README, in a repository and in a store.
README: Final = "README.md"


class HubDataset(data_stack.CatalogueDataset):
    """A dataset of the Hub at a commit; samples are dicts, with images and arrays as NumPy arrays.

    Loading it first retrieves all files into the store. With ``lazy=True`` it stores nothing, and
    reads row groups from the Hub on access.

    Args:
        name: name of the dataset.
        version: the commit; for files converted by the Hub, ``parquet-`` and the commit.
        files: files by their names in the store, ``data/SPLIT/00000.parquet`` or ``….arrow``.
        card: metadata of the README; may be empty.
    """

    _files: dict[str, HubFile]

    #: The features of the card by column; empty if only the files have some.
    _features: dict[str, Any]

    def __init__(
        self,
        name: CatalogueName,
        version: str,
        files: Mapping[str, HubFile],
        card: Mapping[str, Any],
    ) -> None:
        page = f"https://huggingface.co/datasets/{name.name}"
        sources = [file.define(key) for key, file in files.items()]
        super().__init__(
            data_stack.DatasetCard(name.folder, version, license_of(card), page),
            _splits_of(files),
            sources,
            card.get("description") or "",
        )
        self._files = dict(files)
        self._features = features_of_card(card, name.part)
        self._set_parts(self._features, list(self._features))

    def get_dataset_iterator(
        self, config: Mapping[str, Any] | None = None
    ) -> tuple[DatasetIteratorIF, IteratorMeta]:
        """Open one split.

        Args:
            config: ``{"split": …}``, with the arguments of :meth:`open`; with ``"lazy": True``,
                files are read from the Hub by range, and nothing is prepared.

        Raises:
            CatalogueError: the Hub does not send a file.
        """
        if config is not None and config.get("lazy"):
            iterator = self._open_lazily(config)
        else:
            iterator, _ = super().get_dataset_iterator(config)
        # Opening it may have found the meta in the files.
        return iterator, self.iterator_meta

    def open(
        self,
        split: str,
        prepared: data_stack.Resources,
        *,
        lazy: bool = False,
        image_mode: str | None = None,
    ) -> DatasetIteratorIF:
        """Open a split.

        Args:
            split: name of the split.
            prepared: the files.
            lazy: ignored here; :meth:`get_dataset_iterator` reads the files from the Hub.
            image_mode: mode of Pillow to convert all images to, such as ``"RGB"``; None: the mode
                of their feature, or no conversion.

        Returns:
            Dicts with a value for each column; images are uint8 of shape ``(height, width)`` or
            ``(height, width, channels)``.

        Raises:
            CatalogueSchemaError: the columns of a file differ from the features.
        """
        arrow_names = self._arrow_names_of(split)
        if arrow_names:
            return self._open_arrow(arrow_names, prepared, image_mode)

        from data_stack.formats.parquet import ParquetDataset

        rows = ParquetDataset(prepared, prefix=f"data/{split}")
        features = self._features or features_of_files(rows.metadata)
        place = f"{split!r} of {self.card.name}@{self.card.version}"
        encoders = encoders_of(rows, features, place, image_mode)

        # The columns in the order of the features.
        stored_names = list(rows.schema.fields)
        names = list(features or stored_names)
        self._set_parts(features, names)
        iterator: DatasetIteratorIF = rows
        if names != stored_names:
            iterator = rows.select(*names)
        if encoders:
            iterator = iterator.encode(encoders)
        return iterator

    def _arrow_names_of(self, split: str) -> list[str]:
        """Return the names of the Arrow files of a split in the store; none if it has Parquet."""
        prefix = f"data/{split}/"
        return [key for key in self._files if key.startswith(prefix) and key.endswith(".arrow")]

    def _open_arrow(
        self, names: Sequence[str], prepared: data_stack.Resources, image_mode: str | None
    ) -> DatasetIteratorIF:
        """Open Arrow files, whose features are those of the card or else their own.

        Raises:
            DatasetFileCorruptError: the columns of a file differ from the features of the card.
        """
        from data_stack.formats.arrow_ipc import ArrowDataset

        files = [prepared[name] for name in names]
        rows = ArrowDataset(files, features=self._features or None, image_mode=image_mode)
        self._set_parts(rows.stored_features, list(map(str, rows.column_names)))
        return rows

    def _open_lazily(self, config: Mapping[str, Any]) -> DatasetIteratorIF:
        """Open a split whose files are read from the Hub by range."""
        definition = DatasetDefinition(self, DatasetFactory)
        remote_files = {}
        records = []
        for key, file in self._files.items():
            remote_files[f"{definition.folder}/{key}"] = file
            records.append(ResourceRecord(key, file.size, file.sha256))
        resources = data_stack.Resources(HubFiles(remote_files), definition.folder, records)
        split, options = definition.check_config(config)
        return self.open(split, resources, **options)

    def _set_parts(self, features: Mapping[str, Any], names: Sequence[str]) -> None:
        """Declare which columns are the sample and the target."""
        parts = parts_of(features, names)
        # On the object: these are class variables of a factory that an author writes.
        self.iterator_meta = parts.iterator_meta  # type: ignore[misc]
        self.class_names = parts.class_names  # type: ignore[misc]


def _splits_of(keys: Mapping[str, HubFile]) -> list[str]:
    """Return the splits of files ``data/SPLIT/00000.parquet``, in their order."""
    splits: dict[str, None] = {}
    for key in keys:
        if key != README:
            splits[key.split("/")[1]] = None
    return list(splits)
