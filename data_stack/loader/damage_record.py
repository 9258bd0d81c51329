"""The damaged samples that a training has met."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import TooManyDamagedSamplesError
from data_stack.loader.damaged_sample import DamagedSample
from data_stack.loader.error_log import ErrorLog
from data_stack.loader.error_policy import ErrorPolicy
from data_stack.loader.job import Job
from data_stack.util.logger import logger

#: The maximum number of samples that a message names.
_MAX_NAMED_SAMPLES = 5

#: The maximum number of samples that the log of the program names, as one block may hold thousands.
_MAX_LOGGED_SAMPLES = 10

#: What the log of the program says of a sample that a loader meets.
_CONSEQUENCES = {"skip": "left out", "replace": "replaced"}


class DamageRecord:
    """The damaged samples that a training has met, each once.

    Args:
        policy: what the loader does with them.
        log: the file to which they are appended; None for no file.
    """

    #: What the loader does with damaged samples.
    _policy: ErrorPolicy
    #: The file to which samples are appended.
    _log: ErrorLog | None
    #: The samples by their keys, in the order in which they were met.
    _samples: dict[tuple[int | None, int], DamagedSample]
    #: The positions of the samples that are in an epoch, ascending, by the epoch; made on demand.
    _positions_by_epoch: dict[int, npt.NDArray[np.int64]]

    def __init__(self, policy: ErrorPolicy, log: ErrorLog | None = None) -> None:
        self._policy = policy
        self._log = log
        self._samples = {}
        self._positions_by_epoch = {}

    @property
    def samples(self) -> list[DamagedSample]:
        """The samples, in the order in which they were met."""
        return list(self._samples.values())

    def inform(self, job: Job) -> Job:
        """Return a job that names the samples that it must not read."""
        if not self._samples or not self._policy.tolerates_damage:
            return job
        positions = self._positions_by_epoch.get(job.epoch)
        if positions is None:
            positions = self._list_positions(job.epoch)
            self._positions_by_epoch = {job.epoch: positions}
        if len(positions) == 0:  # all are of other epochs
            return job
        return job._replace(damaged=positions)

    def add(self, samples: Iterable[DamagedSample], job: Job, rank: int) -> None:
        """Add samples that a batch has met; those that are known are ignored.

        Args:
            samples: the samples.
            job: the job of the batch.
            rank: the rank of this process, for the log.

        Raises:
            TooManyDamagedSamplesError: these are more than the policy allows, with those before.
        """
        for sample in samples:
            if sample.key in self._samples:
                continue
            self._samples[sample.key] = sample
            self._positions_by_epoch = {}
            self._log_sample(sample)
            if self._log is not None:
                self._log.append(sample, rank)
        if len(self._samples) > self._policy.max_errors:
            raise too_many_damaged_samples(
                self.samples, len(self._samples), self._policy.max_errors, job
            )

    def count_by_error(self) -> dict[str, int]:
        """Return the number of samples of each class of error."""
        counts: dict[str, int] = {}
        for sample in self._samples.values():
            counts[sample.error] = counts.get(sample.error, 0) + 1
        return counts

    def to_state(self) -> dict[str, list[Any]] | None:
        """Return the samples as JSON data; None if there are none.

        Returns:
            For each class of error a list: a position for a sample that is there in all epochs,
            otherwise a list of epoch and position.
        """
        if not self._samples:
            return None
        state: dict[str, list[Any]] = {}
        for sample in self._samples.values():
            entry: Any = sample.position
            if sample.epoch is not None:
                entry = [sample.epoch, sample.position]
            state.setdefault(sample.error, []).append(entry)
        return state

    def load_state(self, state: Mapping[str, Sequence[Any]] | None) -> None:
        """Replace the samples by those that :meth:`to_state` returned."""
        self._samples = {}
        self._positions_by_epoch = {}
        for error, entries in (state or {}).items():
            for entry in entries:
                epoch = None
                position = entry
                if isinstance(entry, list):
                    epoch, position = entry
                sample = DamagedSample(position, epoch, None, error, "")
                self._samples[sample.key] = sample

    def with_state(self, state: Mapping[str, Sequence[Any]] | None) -> DamageRecord:
        """Return a record that has the samples of a state as well."""
        record = copy.copy(self)
        record.load_state(state)
        record._samples.update(self._samples)
        return record

    def replace_samples(self, samples: Iterable[DamagedSample]) -> None:
        """Replace the samples by others that another record had."""
        self._samples = {sample.key: sample for sample in samples}
        self._positions_by_epoch = {}

    def _log_sample(self, sample: DamagedSample) -> None:
        """Log a sample that was added, unless many samples were."""
        n_samples = len(self._samples)
        if n_samples > _MAX_LOGGED_SAMPLES:
            return
        consequence = _CONSEQUENCES[self._policy.on_error]
        logger.warning("a damaged sample is %s: %s", consequence, sample)
        if n_samples == _MAX_LOGGED_SAMPLES:
            logger.warning(
                "further damaged samples are not logged: see stats() and damaged_samples() of the "
                "loader, and error_log="
            )

    def _list_positions(self, epoch: int) -> npt.NDArray[np.int64]:
        positions = []
        for epoch_of_sample, position in self._samples:
            if epoch_of_sample is None or epoch_of_sample == epoch:
                positions.append(position)
        return np.array(sorted(positions), dtype=np.int64)

    def __copy__(self) -> DamageRecord:
        record = DamageRecord(self._policy, copy.copy(self._log))
        record._samples = dict(self._samples)
        return record


def too_many_damaged_samples(
    samples: Sequence[DamagedSample], n_samples: int, max_errors: int, job: Job
) -> TooManyDamagedSamplesError:
    """Return the error of more damaged samples than are allowed.

    Args:
        samples: the samples that can be named.
        n_samples: the number of all damaged samples.
        max_errors: how many are allowed.
        job: the job of the batch in which the last one was met.
    """
    texts = [str(sample) for sample in samples[:_MAX_NAMED_SAMPLES]]
    if n_samples > len(texts):
        texts.append("…")
    error = TooManyDamagedSamplesError(
        f"{n_samples:,} samples are damaged, more than max_errors={max_errors}",
        f"{'; '.join(texts)}. If one cause has damaged all of them, repair that. Otherwise restore "
        "the files, or pass a larger max_errors=",
        epoch=job.epoch,
        step=job.step,
    )
    error.samples = tuple(samples)
    return error
