"""Datasets that declare what they are made of, and leave retrieval, storage, crashes and readiness to us."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from data_stack.dataset.base_factory import BaseDatasetFactory
from data_stack.dataset.code_digest import code_digest
from data_stack.dataset.definition import DatasetCard, DatasetDefinition
from data_stack.dataset.engine import PreparationEngine
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.manifest import Manifest
from data_stack.dataset.meta import IteratorMeta
from data_stack.dataset.preparation import Preparation, PreparationReport
from data_stack.dataset.prepared import PreparedResources, Resources
from data_stack.dataset.resource_names import MANIFEST
from data_stack.dataset.shards import EnginePreparation, prepare_in_turn
from data_stack.dataset.stored import Finding, Readiness, StoredDataset
from data_stack.exception import ConfigError, ResourceChangedError, ResourceNotFoundError
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.storage_connectors.connector import StorageConnector

__all__ = [
    "DatasetCard",
    "DatasetFactory",
    "Finding",
    "PreparationReport",
    "PreparedResources",
    "Readiness",
    "Resources",
    "dataset_folder",
]

_ATTEMPTS = 3
_LEASE_TIMEOUT_SECONDS = 600.0


class DatasetFactory(BaseDatasetFactory):
    """A dataset, described by its author; subclass it, declare, and override ``preprocess`` and ``open``.

    ::

        class DigitsFactory(DatasetFactory):
            \"\"\"Handwritten digits of the UCI repository, 8 × 8 pixels.\"\"\"

            card = DatasetCard(name="digits", version="1.0.0", license="CC-BY-4.0")
            sources = [ResourceDefinition("raw/digits.csv.gz", "https://…", sha256="…", mirrors=("https://…",))]
            splits = ("train", "test")

            def preprocess(self, raw, prepared):           # bytes in, bytes out
                with raw["raw/digits.csv.gz"] as source, prepared.create("preprocessed/digits.npy") as file:
                    ...

            def open(self, split, prepared, *, scaled=False):   # bytes in, samples out
                return ...

    The user's part is ``DigitsFactory(storage_connector).get_dataset_iterator({"split": "test", "scaled": True})``:
    keyword parameters of ``open`` are the configuration keys.

    Everything is stored below ``card.name/card.version``, under the names that the author gives; several versions lie
    side by side. A dataset is *ready* when its ``manifest.json`` is there and true: it is of this name and version, was
    prepared from sources of these digests, and all that it lists lies in the store. Otherwise it is prepared, at its
    first use or by :meth:`prepare`. A preparation that died goes on at the step where it was, if the code is the same;
    sources that arrived are not fetched again. What was stored below ``card.name`` alone, by an earlier data_stack or by
    the original DataStack, is used where it lies.

    Without ``preprocess`` the sources are opened as they are; without sources too, nothing is stored at all.

    Attributes:
        card: name, version, licence, homepage, citation.
        sources: what to retrieve.
        splits: names of the splits; the first is the default.
        prepared_resources: names of all that ``preprocess`` makes. If declared, a store that holds all of it but no
            manifest, as the original DataStack left it, is adopted: each split's first and last sample are read, and
            the manifest is written with ``adopted``.
        columns: names of the columns of tuple samples, in their order, e.g. ``("image", "label", "tag")``, which stand for
            positions wherever a column is asked for. None: they have none.
        iterator_meta: where a sample has its parts: positions, names out of ``columns``, or keys of dict samples.
        class_names: of the classes that targets name, in the order of their numbers; None if there are none.
        feature_names: of the values in the sample proper; None if they have none.

    Args:
        storage_connector: where the dataset is kept; not needed for one that stores nothing.
    """

    card: ClassVar[DatasetCard]
    sources: ClassVar[Sequence[ResourceDefinition]] = ()
    splits: ClassVar[Sequence[str]]
    prepared_resources: ClassVar[Sequence[str] | None] = None
    columns: ClassVar[Sequence[str] | None] = None
    iterator_meta: ClassVar[IteratorMeta] = IteratorMeta(sample_pos=0, target_pos=1, tag_pos=2)
    class_names: ClassVar[Sequence[str] | None] = None
    feature_names: ClassVar[Sequence[str] | None] = None

    #: The digest of an author's code covers the classes that are derived from this one.
    _is_base_of_authors = True

    # Of a complete dataset in a store that cannot be written. On the class, as a subclass need not call our __init__.
    _unwritten_manifest: Manifest | None = None
    #: Of what was opened last, for recipes.
    _opened_manifest: Manifest | None = None

    def __init__(self, storage_connector: StorageConnector | None = None) -> None:
        super().__init__(storage_connector)

    # ------------------------------------------------------------------ the author's part

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Make the prepared resources from the raw ones; override it, or :meth:`preparation_shards` and :meth:`prepare_shard`.

        Each resource counts once its ``with prepared.create(name)`` block has ended. Work in ``prepared.steps(names)``
        is not repeated after a crash. Whatever is raised reaches the user as PreparationError, and leaves nothing half done.

        Args:
            raw: the sources, verified, by the names of their definitions.
            prepared: where to put what ``open`` reads.
        """
        prepare_in_turn(self, raw, prepared)

    def preparation_shards(self, raw: Resources) -> Sequence[Any]:
        """Name the independent parts of the work, if it has any; override it together with :meth:`prepare_shard`.

        Then they may be prepared at once, by the processes of this machine or by a Spark cluster (``prepare(engine=...)``);
        without an engine they are prepared one after the other. They take the place of ``preprocess``.

        Args:
            raw: the sources, verified, by the names of their definitions.

        Returns:
            Plain JSON values, each different, e.g. ``[{"file": "raw/part-0.csv"}, ...]``; the same at each call.
        """
        raise NotImplementedError

    def prepare_shard(self, shard: Any, raw: Resources, prepared: PreparedResources) -> None:
        """Make the resources of one shard, and no others; override it together with :meth:`preparation_shards`.

        It runs in any process, on any machine, any number of times, perhaps twice at once; what it makes counts as a whole, and
        of one time only. It sees nothing of what other shards make.

        Args:
            shard: one of the values of ``preparation_shards``.
            raw: the sources, verified, by the names of their definitions.
            prepared: where to put what ``open`` reads, under names that no other shard uses.
        """
        raise NotImplementedError

    def finish_preparation(self, raw: Resources, prepared: PreparedResources) -> None:
        """Make what needs all shards, such as an index; override it if there is such a thing.

        Args:
            raw: the sources.
            prepared: what all shards made, and where to put more.
        """

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """Give the samples of one split; override it, with an own keyword parameter for each option.

        Args:
            split: one of ``splits``.
            prepared: what ``preprocess`` made; the sources where there is no ``preprocess``.
        """
        raise NotImplementedError

    # ------------------------------------------------------------------ the user's part

    def get_dataset_iterator(self, config: Mapping[str, Any] | None = None) -> tuple[DatasetIteratorIF, IteratorMeta]:
        """The samples of one split; the dataset is prepared first if it is not ready.

        Args:
            config: ``"split"`` (default: the first), and the options of this dataset's ``open``.

        Raises:
            UnknownSplitError, ConfigError: the dataset has no such split or option, or needs a storage connector.
            RetrievalError, StorageError, PreparationError: as for :meth:`prepare`.
        """
        definition = self._check_definition()
        split, options = definition.check_config(config)
        if not definition.needs_store:
            return self._open_split(definition, split, Resources(None, definition.folder, ()), options), definition.iterator_meta
        stored = self._find_stored(definition)
        attempts_left = _ATTEMPTS
        while True:
            attempts_left -= 1
            manifest = self._ready_manifest(stored)
            resources = Resources(stored.connector, stored.definition.folder, manifest.prepared)
            try:
                iterator = self._open_split(definition, split, resources, options)
            except (ResourceChangedError, ResourceNotFoundError):
                if not attempts_left or (self._is_current(stored, manifest) and stored.damage(manifest) is None):
                    raise
            else:
                # A preparation takes the manifest away before it replaces anything: what was opened belongs together.
                if not attempts_left or self._is_current(stored, manifest):
                    self._opened_manifest = manifest
                    return iterator, definition.iterator_meta

    def prepare(
        self,
        *,
        offline: bool | None = None,
        progress: bool | None = None,
        lease_timeout_seconds: float = _LEASE_TIMEOUT_SECONDS,
        engine: PreparationEngine | None = None,
        again: bool = False,
        keep_steps: bool = False,
    ) -> PreparationReport:
        """Retrieve and preprocess what is not ready. Any number of processes may do so at once; one does the work.

        Args:
            offline: ask no network; None for what ``DATA_STACK_OFFLINE`` says.
            progress: show progress bars; None to show them on a terminal and in a notebook.
            lease_timeout_seconds: how long to wait for another process that is preparing; then go on beside it, which is
                as right but does its work twice.
            engine: where to prepare the shards, e.g. :class:`data_stack.distributed.ProcessEngine`; None: here, in turn. A
                dataset without shards is prepared there as a whole. What comes of it is the same.
            again: prepare also what is ready, from the sources that are kept; what is ready stays in use until that is done. A
                dataset of a version is prepared once, so this is how a mended ``preprocess`` comes to bear without a new version.
            keep_steps: keep the steps and shards that are done when the author's code raises, and take over those that were
                done by other code than this. What they made is then for the author to answer for.

        Raises:
            ConfigError: the class contradicts itself, or needs a storage connector.
            RetrievalError: a source did not arrive; what arrived is kept.
            StorageError: something could not be stored; what was done is kept.
            PreparationError: the author's code failed, and is the cause. Where it was ``preprocess`` or one of its parts, the
                sources are kept and nothing else, unless ``keep_steps``; where it was ``open``, all is kept.
        """
        definition = self._check_definition()
        if not definition.needs_store:
            return PreparationReport((), adopted=False, already_ready=True)
        stored = self._find_stored(definition)
        return self._make_ready(stored, offline, progress, lease_timeout_seconds, engine, again=again, keep_steps=keep_steps)[1]

    def is_ready(self) -> bool:
        """Whether everything is there, so that using the dataset prepares nothing.

        A complete store without a manifest becomes ready when it is adopted, at its first use.
        """
        definition = self._check_definition()
        return not definition.needs_store or self.manifest() is not None

    def readiness(self) -> Readiness:
        """Whether everything is there, and if not, why what is stored has to be prepared again at the next use."""
        definition = self._check_definition()
        if not definition.needs_store:
            return Readiness()
        stored = self._find_stored(definition)
        unwritten = self._intact_unwritten_manifest(stored)
        return Readiness(unwritten) if unwritten is not None else stored.readiness(lambda: code_digest(self))

    def manifest(self) -> Manifest | None:
        """What the dataset consists of and was made from; None if it is not ready, or stores nothing."""
        definition = self._check_definition()
        if not definition.needs_store:
            return None
        stored = self._find_stored(definition)
        return stored.ready_manifest() or self._intact_unwritten_manifest(stored)

    def verify(self, deep: bool = True) -> list[Finding]:
        """Hold all that is stored against the manifest.

        Args:
            deep: read every byte; otherwise sizes and recorded digests are compared.

        Returns:
            What is not as it should be; empty if all is well. Sources that were not kept are named, but are no fault.
        """
        definition = self._check_definition()
        if not definition.needs_store:
            return []
        stored = self._find_stored(definition)
        manifest = stored.manifest() or self._unwritten_manifest
        if manifest is None:
            problem = stored.readiness(lambda: code_digest(self)).reason or "the dataset is not prepared: it has no manifest"
            return [Finding(stored.identifier(MANIFEST), problem)]
        return stored.verify(manifest, deep)

    # ------------------------------------------------------------------ inside

    def _check_definition(self) -> DatasetDefinition:
        return DatasetDefinition.of(self, DatasetFactory)

    def _find_stored(self, definition: DatasetDefinition) -> StoredDataset:
        if self.storage_connector is None:
            raise ConfigError(
                f"dataset {definition.card.name!r} needs a store: {type(self).__name__}(FileStorageConnector(folder)), "
                f"or data_stack.load({definition.card.name!r}), which has a default"
            )
        return StoredDataset.find(self.storage_connector, definition)

    def _ready_manifest(self, stored: StoredDataset) -> Manifest:
        manifest = self._intact_unwritten_manifest(stored)
        return manifest or self._make_ready(stored, None, None, _LEASE_TIMEOUT_SECONDS)[0]

    def _make_ready(
        self,
        stored: StoredDataset,
        offline: bool | None,
        progress: bool | None,
        lease_timeout_seconds: float,
        engine: PreparationEngine | None = None,
        *,
        again: bool = False,
        keep_steps: bool = False,
    ) -> tuple[Manifest, PreparationReport]:
        preprocess: Callable[[Resources, PreparedResources], None] = self.preprocess
        if engine is not None:
            preprocess = EnginePreparation(self, engine, has_shards=stored.definition.has_shards)
        preparation = Preparation(
            stored,
            preprocess,
            self._read_ends,
            lambda: code_digest(self),
            may_be_staged=engine is not None,
            again=again,
            keep_steps=keep_steps,
            offline=offline,
            progress=progress,
        )
        manifest, report = preparation.run(lease_timeout_seconds)
        self._unwritten_manifest = manifest if manifest.adopted and not stored.has_manifest() else None
        return manifest, report

    def _intact_unwritten_manifest(self, stored: StoredDataset) -> Manifest | None:
        manifest = self._unwritten_manifest
        if manifest is None or stored.has_manifest() or (stored.difference(manifest) or stored.damage(manifest)) is not None:
            return None
        return manifest

    def _is_current(self, stored: StoredDataset, manifest: Manifest) -> bool:
        return (stored.manifest() or self._unwritten_manifest) == manifest

    def _open_split(
        self, definition: DatasetDefinition, split: str, resources: Resources, options: Mapping[str, Any]
    ) -> DatasetIteratorIF:
        iterator: Any = self.open(split, resources, **options)
        if iterator is None:
            raise ConfigError(
                f"open() of {definition.factory} returned None for split {split!r}; it must return a dataset iterator"
            )
        opened: DatasetIteratorIF = iterator
        return opened

    def _read_ends(self, split: str, resources: Resources) -> None:
        """Read the first and last sample of a split, or raise whatever that raises."""
        definition = self._check_definition()
        if any(definition.options.values()):
            return  # nobody has said what to open it with
        iterator = self._open_split(definition, split, resources, {})
        n_samples = len(iterator)
        for index in {0, n_samples - 1} if n_samples else ():
            definition.check_sample(iterator[index])


def dataset_folder(factory: DatasetFactory) -> str:
    """What the dataset of a factory lies below in its store, or will: ``name/version``, or ``name`` if it was stored there."""
    definition = factory._check_definition()
    return factory._find_stored(definition).definition.folder if definition.needs_store else definition.folder
