"""A dataset that Ray's tasks write to a store, until it is published as a whole."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Sequence
from typing import Any, Final

from data_stack import FileStorageConnector, StorageConnector
from data_stack.exception import ConfigError, DataStackError, StorageConflictError
from data_stack.formats.parquet import generate_metadata
from data_stack.formats.parquet.metadata import PARQUET_MANIFEST, PROGRESS_FOLDER
from data_stack.formats.records.layout import SPEC, shard_name

#: While this resource exists, the dataset is not complete, and readers refuse it.
_INCOMPLETE_MARKER: Final = f"{PROGRESS_FOLDER}/ray"

#: The folder with what the tasks write, which readers ignore.
_ATTEMPTS_FOLDER: Final = "_data_stack_attempts"


class UnfinishedDataset:
    """The resources of a dataset below its name in a store; it pickles with its connector.

    Args:
        connector: the store.
        name: the name of the dataset.
    """

    connector: StorageConnector
    name: str

    def __init__(self, connector: StorageConnector, name: str) -> None:
        self.connector = connector
        self.name = name

    # ------------------------------------------------------------------ begin and end

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Mark the dataset as incomplete for the block.

        Afterwards it is complete; if the block raises, nothing is left.

        Raises:
            StorageConflictError: another process is writing the dataset.
            ConfigError: there is a dataset of that name.
        """
        marker = self.identifier_of(_INCOMPLETE_MARKER)
        with self.connector.lease(f"{marker}.lease") as lease:
            if not lease.acquire():
                raise StorageConflictError(
                    f"another process is writing {self.name!r} to {self.connector!r}: "
                    "wait until it has ended"
                )
            if self._exists():
                raise ConfigError(
                    f"{self.name!r} exists already in {self.connector!r}; "
                    "remove it, or choose another name"
                )
            # A writer that was killed may have left files.
            self.remove(self.name)
            with self.connector.create(marker) as file:
                file.write(b"{}")
            try:
                yield
            except BaseException:
                with contextlib.suppress(DataStackError):  # the first error is raised
                    self.remove(self.name)
                raise
            self.connector.delete_resource(marker)
            self.remove(self.identifier_of(_ATTEMPTS_FOLDER))

    def is_being_written(self) -> bool:
        """Return whether the dataset is marked as incomplete."""
        return self.connector.has_resource(self.identifier_of(_INCOMPLETE_MARKER))

    def _exists(self) -> bool:
        """Return whether there is a dataset, other than what a killed writer left."""
        identifiers = []
        for identifier in self.connector.list_resources(f"{self.name}/"):
            if f"/{_ATTEMPTS_FOLDER}/" not in identifier:
                identifiers.append(identifier)
        has_marker = self.identifier_of(_INCOMPLETE_MARKER) in identifiers
        has_manifest = self.identifier_of(PARQUET_MANIFEST) in identifiers
        was_killed = has_marker and not has_manifest
        return bool(identifiers) and not was_killed

    # ------------------------------------------------------------------ places

    def identifier_of(self, file: str) -> str:
        """Return the identifier of a file of the dataset."""
        return f"{self.name}/{file}"

    def new_attempt_folder(self, task_number: int) -> str:
        """Return a new place in the store for what a task writes, which readers ignore."""
        unique = secrets.token_hex(8)
        return self.identifier_of(f"{_ATTEMPTS_FOLDER}/{task_number:06d}-{unique}")

    # ------------------------------------------------------------------ publish

    def publish_records(self, attempt_folders: Sequence[str]) -> None:
        """Rename the shards that tasks have written, in order.

        The first shard comes last: without it, readers see no shards.
        """
        for number, folder in reversed(list(enumerate(attempt_folders))):
            for file in self._list_shard(folder):
                new_name = f"{shard_name(number)}/{file}"
                self.connector.move_resource(f"{folder}/{file}", self.identifier_of(new_name))

    def _list_shard(self, folder: str) -> list[str]:
        """Return the names of the files of a shard. The spec, which makes it visible, is last."""
        prefix = f"{folder}/"
        identifiers = self.connector.list_resources(prefix)
        files = [identifier.removeprefix(prefix) for identifier in identifiers]
        if SPEC in files:
            files.remove(SPEC)
            files.append(SPEC)
        return files

    def publish_parquet(self, attempt_folders: Sequence[str], schema: Any) -> None:
        """Gather the files that tasks have written, write their manifest, and rename them.

        Readers see no files as long as there is an incomplete marker and no manifest.
        """
        gathered_folder = self.identifier_of(f"{_ATTEMPTS_FOLDER}/all")
        names: list[str] = []
        for folder in attempt_folders:
            for identifier in self.connector.list_resources(f"{folder}/"):
                is_manifest = identifier.endswith(PARQUET_MANIFEST)
                if is_manifest or not identifier.endswith(".parquet"):
                    continue
                name = f"part-{len(names):06d}.parquet"
                self.connector.move_resource(identifier, f"{gathered_folder}/{name}")
                names.append(name)

        generate_metadata(self.connector, prefix=gathered_folder, schema=schema)
        for name in [*names, PARQUET_MANIFEST]:
            self.connector.move_resource(f"{gathered_folder}/{name}", self.identifier_of(name))

    # ------------------------------------------------------------------ remove

    def remove(self, folder: str) -> None:
        """Remove all resources in a folder of the dataset.

        Args:
            folder: the identifier of the folder: the name of the dataset, or one below it.
        """
        # The marker comes first: a task that is still writing finds it missing, and removes its
        # own files.
        marker = self.identifier_of(_INCOMPLETE_MARKER)
        identifiers = list(self.connector.list_resources(f"{folder}/"))
        if marker in identifiers:
            identifiers.remove(marker)
            identifiers.insert(0, marker)
        for identifier in identifiers:
            with contextlib.suppress(LookupError):  # a task has removed its own
                self.connector.delete_resource(identifier)
        # Tasks that were killed may have left parts of files.
        self.connector.remove_abandoned(f"{self.name}/")
        if isinstance(self.connector, FileStorageConnector):
            _remove_empty_folders(os.path.join(self.connector.root_path, self.name))


def _remove_empty_folders(root: str) -> None:
    """Remove the empty folders below and at ``root``."""
    for path, _, _ in os.walk(root, topdown=False):
        with contextlib.suppress(OSError):  # it is not empty
            os.rmdir(path)
