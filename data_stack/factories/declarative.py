"""Datasets that declare their sources and splits; data_stack retrieves, stores and checks them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.meta import IteratorMeta
from data_stack.engines.engine import PreparationEngine
from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    DataStackError,
    ResourceChangedError,
    ResourceNotFoundError,
)
from data_stack.factories.base_factory import BaseDatasetFactory
from data_stack.factories.code_digest import code_digest
from data_stack.factories.definition import DatasetCard, DatasetDefinition
from data_stack.factories.manifest import Manifest
from data_stack.factories.preparation import Preparation, PreparationReport
from data_stack.factories.prepared import PreparedResources, Resources
from data_stack.factories.readiness import Readiness
from data_stack.factories.ready_resources import ReadyResources
from data_stack.factories.resource_names import MANIFEST
from data_stack.factories.shards import prepare_in_turn
from data_stack.factories.stored import StoredDataset
from data_stack.io.integrity import Fault
from data_stack.io.resource_definition import ResourceDefinition

__all__ = [
    "DatasetCard",
    "DatasetFactory",
    "PreparationReport",
    "PreparedResources",
    "Readiness",
    "Resources",
]

#: How long to wait for another process that prepares the dataset.
_LEASE_TIMEOUT_SECONDS = 600.0

#: How often a dataset is opened whose resources are replaced, or are damaged, meanwhile.
_MAX_OPENINGS = 3


class DatasetFactory(BaseDatasetFactory):
    """A dataset described by its author.

    The author subclasses this, declares attributes, and overrides ``preprocess`` and ``open``.

    ::

        class DigitsFactory(DatasetFactory):
            \"\"\"Handwritten digits of the UCI repository, 8 × 8 pixels.\"\"\"

            card = DatasetCard(name="digits", version="1.0.0", license="CC-BY-4.0")
            sources = [
                ResourceDefinition(
                    "raw/digits.csv.gz", "https://…", sha256="…", mirrors=("https://…",)
                )
            ]
            splits = ("train", "test")

            def preprocess(self, raw, prepared):  # bytes in, bytes out
                with (
                    raw["raw/digits.csv.gz"] as source,
                    prepared.create("preprocessed/digits.npy") as file,
                ):
                    ...

            def open(self, split, prepared, *, scaled=False):  # bytes in, samples out
                return ...

    Users call ``DigitsFactory(storage_connector).get_dataset_iterator({"split": "test", "scaled":
    True})``: the keyword parameters of ``open`` are the configuration keys.

    All resources are stored below ``card.name/card.version``, so several versions coexist. A
    dataset is *ready* when its ``manifest.json`` is valid: it has this name and version, was
    prepared from sources of these digests, and all resources that it lists are stored. Otherwise
    the first use, or :meth:`prepare`, prepares it. A preparation that died resumes at its step if
    the code is the same; sources are not fetched again.

    Without ``preprocess``, ``open`` reads the sources; without sources either, nothing is stored.

    Attributes:
        card: name, version, license, homepage, citation.
        sources: what to retrieve.
        splits: the names of the splits; the first is the default.
        prepared_resources: names of all resources that ``preprocess`` creates. If declared, a store
            that has all of them but no manifest, as the original DataStack left it, is adopted:
            each split's first and last sample are read, and the manifest is written with
            ``adopted``.
        columns: names of the columns of tuple samples, in their order, e.g. ``("image", "label",
            "tag")``; usable in place of positions.
        iterator_meta: where a sample has its parts: positions, names out of ``columns``, or keys of
            dict samples. The preparation fails if a sample lacks one of them. Default:
            ``IteratorMeta(0, 1, 2)``, for sample, target and tag.
        class_names: the names of the classes of targets, in the order of their numbers.
        feature_names: the names of the values in the sample proper.
        column_kinds: how columns are shown if their values do not show it, e.g. ``{"boxes":
            "boxes", "sound": "audio 16000"}``, see ``DatasetMetaIF.column_kinds``.

    Args:
        storage_connector: the store; not needed for a dataset that stores nothing.
    """

    card: ClassVar[DatasetCard]
    sources: ClassVar[Sequence[ResourceDefinition]] = ()
    splits: ClassVar[Sequence[str]]
    prepared_resources: ClassVar[Sequence[str] | None] = None
    columns: ClassVar[Sequence[str] | None] = None
    iterator_meta: ClassVar[IteratorMeta] = IteratorMeta(sample_pos=0, target_pos=1, tag_pos=2)
    class_names: ClassVar[Sequence[str] | None] = None
    feature_names: ClassVar[Sequence[str] | None] = None
    column_kinds: ClassVar[Mapping[int | str, str] | None] = None

    #: The digest of an author's code covers the classes that are derived from this one.
    _is_base_of_authors = True

    #: Of the split opened last, for recipes. On the class, as a subclass need not call our
    #: ``__init__``.
    _opened_manifest: Manifest | None = None

    # ------------------------------------------------------------------------- the author's part

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Make the prepared resources from the raw ones.

        Override it, or :meth:`preparation_shards` and :meth:`prepare_shard`.

        A resource exists once its ``with prepared.create(name)`` block has ended. Steps of
        ``prepared.steps(names)`` are not repeated after a crash. An exception reaches the user as
        PreparationError, and no resource is left half written.

        Args:
            raw: the sources, verified, by the names of their definitions.
            prepared: stores what ``open`` reads.
        """
        prepare_in_turn(self, raw, prepared)

    def preparation_shards(self, raw: Resources) -> Sequence[Any]:
        """Name independent parts of the work, in place of ``preprocess``.

        Override it together with :meth:`prepare_shard`.

        Processes of this machine or a Spark cluster prepare them concurrently
        (``prepare(engine=...)``); without an engine they are prepared one after the other.

        Args:
            raw: the sources, verified, by the names of their definitions.

        Returns:
            Plain JSON values, each different, e.g. ``[{"file": "raw/part-0.csv"}, ...]``; the same
            at each call.
        """
        raise NotImplementedError

    def prepare_shard(self, shard: Any, raw: Resources, prepared: PreparedResources) -> None:
        """Make the resources of one shard, and no others.

        Override it together with :meth:`preparation_shards`.

        It may run in any process, on any machine, several times, even concurrently; the resources
        of one complete run count. It does not see the resources of other shards.

        Args:
            shard: one of the values of ``preparation_shards``.
            raw: the sources, verified, by the names of their definitions.
            prepared: stores what ``open`` reads, under names that no other shard uses.
        """
        raise NotImplementedError

    def finish_preparation(self, raw: Resources, prepared: PreparedResources) -> None:
        """Make what needs all shards, such as an index; optional.

        Args:
            raw: the sources.
            prepared: has the resources of all shards, and stores more.
        """

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """Return the samples of one split; override it, with a keyword parameter for each option.

        It runs at each load, so it should read only what a sample needs when the sample is read.
        Options that it does not declare are refused.

        Args:
            split: one of ``splits``.
            prepared: the resources of ``preprocess``; without ``preprocess``, the sources.
        """
        raise NotImplementedError

    # --------------------------------------------------------------------------- the user's part

    def get_dataset_iterator(
        self, config: Mapping[str, Any] | None = None
    ) -> tuple[DatasetIteratorIF, IteratorMeta]:
        """Return the samples of one split; the dataset is prepared first if it is not ready.

        Args:
            config: ``"split"`` (default: the first), and the options of this dataset's ``open``.

        Raises:
            UnknownSplitError, ConfigError: the dataset has no such split or option, or needs a
                storage connector.
            RetrievalError, StorageError, PreparationError: as for :meth:`prepare`.
        """
        return self._open_together([config])[0]

    def _open_together(
        self, configs: Sequence[Mapping[str, Any] | None]
    ) -> list[tuple[DatasetIteratorIF, IteratorMeta]]:
        """Return what :meth:`get_dataset_iterator` returns for each of some configurations.

        The manifest and the stored resources are looked at once: opening n splits costs n, not n
        times all resources.
        """
        definition = self._check_definition()
        splits_to_open = [definition.check_config(config) for config in configs]
        stored = self._find_stored(definition)
        if stored is None:
            no_resources = Resources(None, definition.folder, ())
            return definition.open_splits(self, splits_to_open, no_resources)

        # The damage that made an earlier opening fail; then the dataset is prepared again.
        damage_error: DatasetFileCorruptError | None = None
        n_openings = 0
        while True:
            n_openings += 1
            is_last = n_openings == _MAX_OPENINGS
            manifest = None
            if n_openings == 1:
                manifest = stored.manifest_to_open()
            if manifest is None:
                manifest = self._make_ready(stored, damage_error)
            resources = stored.resources(manifest.prepared)
            try:
                opened_splits = definition.open_splits(self, splits_to_open, resources)
            except (ResourceChangedError, ResourceNotFoundError):
                is_intact = self._is_current(stored, manifest) and stored.damage(manifest) is None
                if is_last or is_intact:
                    raise
                # Another process has replaced the resources meanwhile: open the new ones.
                continue
            except DatasetFileCorruptError as error:
                damage = stored.damage_behind(error)
                if damage is None:
                    # Perhaps what the store records of a resource is damaged.
                    damage = stored.damage(manifest)
                if is_last or damage is None:
                    raise
                # A stored resource is damaged: have it prepared again, and open that.
                stored.outdated = manifest
                stored.why_outdated = damage
                damage_error = error
                continue
            if is_last or self._belong_together(stored, manifest, resources):
                self._opened_manifest = manifest
                return opened_splits

    def _make_ready(
        self, stored: StoredDataset, damage_error: DatasetFileCorruptError | None
    ) -> Manifest:
        """Prepare the dataset if it is not ready, and return its manifest.

        Args:
            stored: the dataset in its store.
            damage_error: why it is prepared again; None if it is not. It is the cause of an error
                without a cause.
        """
        try:
            manifest, _ = Preparation(stored, self).run(_LEASE_TIMEOUT_SECONDS)
        except DataStackError as error:
            if damage_error is None or error.__cause__ is not None:
                raise
            raise error from damage_error
        return manifest

    def prepare(
        self,
        *,
        offline: bool | None = None,
        progress: bool | None = None,
        lease_timeout_seconds: float = _LEASE_TIMEOUT_SECONDS,
        engine: PreparationEngine | str | None = None,
        again: bool = False,
        keep_steps: bool = False,
    ) -> PreparationReport:
        """Retrieve and preprocess the dataset unless it is ready.

        Of several concurrent processes, one does the work.

        Args:
            offline: use no network; None reads ``DATA_STACK_OFFLINE``.
            progress: show progress bars; None shows them on a terminal and in a notebook.
            lease_timeout_seconds: how long to wait for another process that is preparing; then
                prepare too, which is safe but does its work twice.
            engine: prepares the shards: an engine, e.g. :class:`data_stack.engines.ProcessEngine`,
                or the name of one: ``"processes"``, and with their plugins ``"ray"`` and
                ``"spark"``; None: this process does. A dataset without shards is one task.
            again: prepare a ready dataset again from the stored sources, e.g. after a fix in
                ``preprocess``; the old resources stay in use until that is done.
            keep_steps: keep finished steps and shards when the author's code raises, and take over
                those that other code than this finished. The author answers for their contents.

        Raises:
            ConfigError: the class contradicts itself, or needs a storage connector; or there is no
                such engine.
            RetrievalError: a source did not arrive; those that arrived are kept.
            StorageError: a resource could not be stored; finished work is kept.
            PreparationError: the author's code failed, see its cause. After an error in
                ``preprocess`` or one of its parts, only the sources are kept, unless
                ``keep_steps``; after one in ``open``, all is kept.
        """
        stored = self._find_stored()
        if isinstance(engine, str):
            # An unknown name is an error, also if there is nothing to prepare.
            # Imported here, as that module imports those that find plugins.
            from data_stack.factories.engine_names import make_engine

            engine = make_engine(engine)
        if stored is None:
            return PreparationReport((), adopted=False, already_ready=True)
        preparation = Preparation(
            stored,
            self,
            engine,
            again=again,
            keep_steps=keep_steps,
            offline=offline,
            progress=progress,
        )
        _, report = preparation.run(lease_timeout_seconds)
        return report

    def is_ready(self) -> bool:
        """Return whether the dataset can be used without preparing it.

        A complete store without a manifest becomes ready when its first use adopts it; if it cannot
        be written, each use does.
        """
        return self._find_stored() is None or self.manifest() is not None

    def readiness(self) -> Readiness:
        """Return whether the dataset is ready, and if not, why stored resources cannot be used."""
        stored = self._find_stored()
        if stored is None:
            return Readiness()
        return stored.readiness(partial(code_digest, self))

    def manifest(self) -> Manifest | None:
        """Return the resources of the dataset and its sources.

        Returns:
            The manifest; None if the dataset is not ready, or stores nothing.
        """
        stored = self._find_stored()
        if stored is None:
            return None
        return stored.ready_manifest()

    def verify(self) -> list[Fault]:
        """Read every byte of the stored resources, and return how they differ from the manifest.

        Sources need not be kept.
        """
        stored = self._find_stored()
        if stored is None:
            return []
        manifest = stored.manifest()
        if manifest is None:
            reason = stored.readiness(partial(code_digest, self)).reason
            if reason is None:
                reason = "the dataset is not prepared: it has no manifest"
            return [Fault(stored.identifier(MANIFEST), reason)]
        return stored.verify(manifest)

    # ---------------------------------------------------------------------------------- inside

    def _check_definition(self) -> DatasetDefinition:
        return DatasetDefinition(self, DatasetFactory)

    def _find_stored(self, definition: DatasetDefinition | None = None) -> StoredDataset | None:
        """Return the dataset in its store; None if it stores nothing.

        Args:
            definition: the definition of this factory, if it is known.
        """
        if definition is None:
            definition = self._check_definition()
        if not definition.needs_store:
            return None
        if self.storage_connector is None:
            raise ConfigError(
                f"dataset {definition.card.name!r} needs a store: "
                f"{type(self).__name__}(FileStorageConnector(folder)), or data_stack.load, which "
                f"has a default"
            )
        return StoredDataset(self.storage_connector, definition)

    def _belong_together(
        self, stored: StoredDataset, manifest: Manifest, resources: Resources
    ) -> bool:
        """Return whether all opened resources are of the same preparation."""
        if isinstance(resources, ReadyResources):
            resources.end_opening()
            if resources.are_pinned:
                # Each has the digest of the manifest, or will be compared with it.
                return True
        # A preparation removes the manifest before it replaces a resource. So if the manifest is
        # still there, no resource was replaced meanwhile.
        return self._is_current(stored, manifest)

    def _is_current(self, stored: StoredDataset, manifest: Manifest) -> bool:
        """Return whether a manifest is the stored one.

        That of an adopted store that cannot be written is stored nowhere.
        """
        if stored.manifest() == manifest:
            return True
        return manifest.adopted and not stored.has_manifest()
