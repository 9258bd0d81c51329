"""Runs the author's ``preprocess()``, from the first step that is not finished."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import Any

from data_stack.engines.engine import PreparationEngine
from data_stack.exception import (
    PreparationError,
    RetrievalError,
    StorageError,
    TaskError,
    UnsupportedStorageOperationError,
    describe_error,
)
from data_stack.factories.code_digest import code_digest
from data_stack.factories.definition import DatasetDefinition
from data_stack.factories.journal import WHOLE, Journal
from data_stack.factories.manifest import SourceRecord
from data_stack.factories.prepared import PreparedResources, Resources, Superseded
from data_stack.factories.resource_record import ResourceRecord
from data_stack.factories.shards import prepare_by
from data_stack.factories.stored import StoredDataset
from data_stack.util.logger import logger


class PreprocessRun:
    """One run of the author's ``preprocess()``.

    Args:
        stored: the dataset in its store.
        factory: the author's.
        engine: prepares the shards, under temporary names; None: this process does.
        keep_steps: keep finished steps when the author's code raises, and reuse steps of other
            code.
        progress: show progress bars; None shows them on a terminal.

    Attributes:
        timings: (name, seconds) of each finished step, and of the rest of ``preprocess()``.
    """

    timings: list[tuple[str, float]]

    #: The dataset in its store.
    _stored: StoredDataset

    #: The author's factory.
    _factory: Any

    #: Prepares the shards; None if this process does.
    _engine: PreparationEngine | None

    #: Whether steps outlive errors and changes of the author's code.
    _keep_steps: bool

    #: Whether to show progress bars; None: on a terminal.
    _progress: bool | None

    #: What the author declares.
    _definition: DatasetDefinition

    #: The name of the dataset, for messages.
    _name: str

    def __init__(
        self,
        stored: StoredDataset,
        factory: Any,
        engine: PreparationEngine | None,
        *,
        keep_steps: bool,
        progress: bool | None,
    ) -> None:
        self.timings = []
        self._stored = stored
        self._factory = factory
        self._engine = engine
        self._keep_steps = keep_steps
        self._progress = progress
        self._definition = stored.definition
        self._name = stored.definition.card.name

    def run(
        self, sources: list[SourceRecord], raw: list[ResourceRecord], journal: Journal | None
    ) -> list[ResourceRecord]:
        """Run the author's ``preprocess()``, and return the resources that it has made.

        Args:
            sources: the sources of the preparation.
            raw: the same, as resources that ``preprocess()`` reads.
            journal: the stored journal; None if there is none to continue.

        Raises:
            RetrievalError, StorageError: something could not be read or stored.
            PreparationError: the author's code failed, or has not made all that it declares.
            Superseded: another process has prepared the dataset.
        """
        prepared = PreparedResources(
            self._stored,
            self._resume(sources, journal),
            hold=self._is_earlier_version_in_use(),
            progress=self._progress,
        )
        earlier_records = self._find_made(prepared)
        if earlier_records is not None:
            logger.info("dataset %r: all resources were prepared before", self._name)
            return earlier_records
        started_at = time.perf_counter()
        try:
            resources = Resources(self._stored.connector, self._definition.folder, raw)
            if self._engine is None:
                self._factory.preprocess(resources, prepared)
            else:
                prepare_by(self._engine, self._factory, resources, prepared)
            prepared.publish()
            problem = self._incompleteness(list(prepared.records()))
            if problem is not None:
                raise PreparationError(problem)
            prepared.note_whole()
        except (StorageError, RetrievalError):
            raise
        except Superseded:
            prepared.discard()
            raise
        except TaskError as error:
            if isinstance(error.__cause__, (StorageError, RetrievalError)):
                raise error.__cause__ from error
            # A task that raised has a traceback. One whose process died has none: its code is not
            # to blame for what was made before.
            has_died = not error.traceback_text
            raise self._failure(prepared, error, has_died=has_died) from error
        except Exception as error:
            raise self._failure(prepared, error) from error
        finally:
            prepared.discard(keep_steps=True)
            self._add_timings(prepared.timings, time.perf_counter() - started_at)
        return list(prepared.records())

    def _is_earlier_version_in_use(self) -> bool:
        """Return whether an intact dataset that differs from the definition is stored.

        Its resources stay in place until the new ones are complete.
        """
        earlier = self._stored.manifest()
        return (
            earlier is not None
            and self._stored.difference(earlier) is not None
            and self._stored.damage(earlier) is None
        )

    def _find_made(self, prepared: PreparedResources) -> list[ResourceRecord] | None:
        """Return the resources of a ``preprocess()`` that has finished before; None if none has."""
        step = prepared.step_that_made(WHOLE)
        if step is None or any(step.staged):
            return None
        records = list(step.resources)
        if self._incompleteness(records) is not None:
            return None
        return records

    def _add_timings(self, step_timings: list[tuple[str, float]], total_seconds: float) -> None:
        """Add the timings of the steps of ``preprocess()``, and of the rest of it."""
        step_seconds = sum(seconds for _, seconds in step_timings)
        self.timings.extend(step_timings)
        self.timings.append(("preprocess", total_seconds - step_seconds))

    def _resume(self, sources: list[SourceRecord], journal: Journal | None) -> Journal:
        """Return the journal to continue.

        It is the stored one if the same code began it, otherwise a new one.
        """
        own_fingerprint = self._stored.journal_fingerprint(sources)
        code = code_digest(self._factory)
        if journal is not None and journal.fingerprint != own_fingerprint:
            # It is that of other sources, or of another class.
            journal = None
        is_of_same_code = journal is not None and journal.codes == (code,)
        if not is_of_same_code and not self._keep_steps:
            journal = None
        if journal is None:
            if self._stored.was_begun():
                # Remove what another preparation made, while its journal still says that the
                # dataset is not complete.
                self._stored.remove_staged()
            journal = Journal(own_fingerprint)
        elif journal.steps and not is_of_same_code:
            logger.warning(
                "dataset %r mixes results of different code: keep_steps kept %.200s. To make all "
                "of it by the present code, prepare it again without keep_steps: data-stack "
                "prepare %s --again",
                self._name,
                ", ".join(repr(step.name) for step in journal.steps),
                self._name,
            )
        if code not in journal.codes:
            journal = replace(journal, codes=(*journal.codes, code))
            self._stored.write_journal(journal)
        return journal

    def _failure(
        self, prepared: PreparedResources, error: Exception, *, has_died: bool = False
    ) -> PreparationError:
        """Return the error for a failure of the author's code.

        What that code has made is removed, for it may be wrong too, unless the steps are kept, or
        the process of the code has died.
        """
        if has_died or self._keep_steps:
            what_is_kept = "The retrieved sources and all finished steps and shards are kept."
            with contextlib.suppress(StorageError):
                # The stored journal may lack the latest steps.
                self._stored.write_journal(prepared.journal)
        else:
            what_is_kept = "The retrieved sources are kept, and nothing else."
            self._forget(prepared)
        place = ""
        if prepared.current_step:
            place = f" in step {prepared.current_step!r}"
        return PreparationError(
            f"could not prepare dataset {self._name!r} {self._definition.card.version}: "
            f"{self._definition.factory} failed{place} with {describe_error(error)}\n"
            f"Fix the cause and prepare it again (data-stack prepare {self._name}). {what_is_kept}"
        )

    def _forget(self, prepared: PreparedResources) -> None:
        """Remove what a failed preparation made.

        An empty journal stays, so that no incomplete store is adopted.
        """
        made_names = {record.identifier for record in prepared.records()}
        for step in prepared.journal.steps:
            made_names.update(record.identifier for record in step.resources)

        # An earlier version of the dataset may still be in use.
        names_in_use = set()
        manifest = self._stored.manifest()
        if manifest is not None:
            names_in_use = {record.identifier for record in manifest.prepared}

        # Asked last, as another process may have made the dataset ready meanwhile: then these
        # resources are its work.
        if self._stored.ready_manifest() is not None:
            return
        with contextlib.suppress(StorageError, UnsupportedStorageOperationError):
            self._stored.write_journal(replace(prepared.journal, steps=()))
            self._stored.remove_staged()
            for name in sorted(made_names - names_in_use):
                self._stored.delete(name)

    def _incompleteness(self, records: list[ResourceRecord]) -> str | None:
        """Return what ``preprocess()`` should have made and has not; None if it made all."""
        names = {record.identifier for record in records}
        declared_names = self._definition.prepared_resources or ()
        missing_names = [name for name in declared_names if name not in names]
        if missing_names:
            return (
                f"preprocess() has not created {', '.join(missing_names)}, which "
                f"prepared_resources declares"
            )
        if not records:
            return (
                "preprocess() has created nothing; store what open() reads with prepared.create()"
            )
        return None
