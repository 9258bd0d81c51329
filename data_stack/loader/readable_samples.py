"""Reads the samples of a batch without those that are damaged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import SampleAccess
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import LoadingError
from data_stack.loader.damage_record import too_many_damaged_samples
from data_stack.loader.damaged_sample import DamagedSample, damaged_sample
from data_stack.loader.empty_batch import without_rows
from data_stack.loader.error_policy import ErrorPolicy, substitutes
from data_stack.loader.job import Job
from data_stack.loader.loading_errors import error_of_batch, error_of_sample, location_of
from data_stack.loader.sample_keys import SampleKeys


@dataclass(frozen=True, slots=True)
class BatchDamage:
    """How a batch differs from that of undamaged samples.

    Attributes:
        samples: damaged samples that the job did not name.
        n_skipped: how many samples the batch lacks.
        n_replaced: how many samples are there in place of others.
    """

    samples: tuple[DamagedSample, ...]
    n_skipped: int
    n_replaced: int


class ReadableSamples:
    """Reads the batch of one job without its damaged samples.

    Which samples the batch has depends only on which samples are damaged: not on which of these the
    job names, nor on the thread, process or rank.

    Args:
        job: the job.
        samples: the samples of its epoch.
        policy: what to do with damaged samples.
        keys: identifies samples in all epochs.
        read: reads the samples at positions of ``samples``.
        check_error: raises an error again that says nothing about a sample.
    """

    #: The job.
    _job: Job
    #: The samples of the epoch of the job.
    _samples: SampleAccess
    #: What to do with damaged samples.
    _policy: ErrorPolicy
    #: Identifies samples in all epochs.
    _keys: SampleKeys
    #: Reads samples.
    _read: Callable[[IndexArrayOfInts], Any]
    #: Raises an error again that says nothing about a sample.
    _check_error: Callable[[Exception], None]
    #: The keys of all samples that are known to be damaged.
    _damaged_keys: set[int]
    #: The samples among these that the job did not name.
    _met_samples: list[DamagedSample]
    #: The last error of these.
    _last_error: Exception | None
    #: How many samples of the job were left out in the last choice.
    _n_skipped: int
    #: How many samples of the job were replaced in the last choice.
    _n_replaced: int

    def __init__(
        self,
        job: Job,
        samples: SampleAccess,
        policy: ErrorPolicy,
        keys: SampleKeys,
        read: Callable[[IndexArrayOfInts], Any],
        check_error: Callable[[Exception], None],
    ) -> None:
        self._job = job
        self._samples = samples
        self._policy = policy
        self._keys = keys
        self._read = read
        self._check_error = check_error
        self._damaged_keys = set()
        if job.damaged is not None:
            self._damaged_keys.update(job.damaged.tolist())
        self._met_samples = []
        self._last_error = None
        self._n_skipped = 0
        self._n_replaced = 0

    @property
    def damage(self) -> BatchDamage:
        """How the samples that were chosen last differ from those of the job."""
        return BatchDamage(tuple(self._met_samples), self._n_skipped, self._n_replaced)

    def read_batch(self, error: Exception | None) -> Any:
        """Read the samples of the job without those that are damaged.

        Args:
            error: why the samples could not be read together; None if this was not tried.

        Raises:
            LoadingError: a sample, or all of them together, cannot be read for another reason than
                damage; or all substitutes of a sample are damaged.
            TooManyDamagedSamplesError: more samples are damaged than the policy allows.
        """
        if error is None:
            chosen = self.choose()
            try:
                return self._read_chosen(chosen)
            except LoadingError:
                raise
            except Exception as read_error:  # noqa: BLE001  # any error of a source
                self._check_error(read_error)
                error = read_error

        # Reading the samples one by one shows which of them are damaged.
        chosen = self.choose_by_reading()
        if not self._met_samples:
            raise error_of_batch("a batch could not be read", self._job, error) from error
        try:
            return self._read_chosen(chosen)
        except LoadingError:
            raise
        except Exception as read_error:
            self._check_error(read_error)
            problem = "samples could be read one by one, but not together"
            raise error_of_batch(problem, self._job, read_error) from read_error

    @property
    def is_empty(self) -> bool:
        """Whether no sample of the job is left."""
        return self._n_skipped == len(self._job.indices)

    def read_example(self) -> Any:
        """Read a sample that is not of the job, as a batch that shows the columns of an empty one.

        Raises:
            LoadingError: there is none, or a sample cannot be read for another reason than damage.
            TooManyDamagedSamplesError: more samples are damaged than the policy allows.
        """
        return self._read(np.array([self._find_example()], dtype=np.intp))

    def choose(self) -> IndexArrayOfInts:
        """Choose samples that are not known to be damaged, without reading.

        Returns:
            Their positions in the samples of the epoch, shape ``(n,)``. With "replace" they are as
            many as the job has, with "skip" maybe fewer, or none.

        Raises:
            LoadingError: all substitutes of a sample are damaged.
        """
        chosen = []
        n_skipped = 0
        n_replaced = 0
        job_keys = self._keys.of(self._samples, self._job.indices).tolist()
        for row, index in enumerate(self._job.indices.tolist()):
            if job_keys[row] not in self._damaged_keys:
                chosen.append(index)
            elif self._policy.on_error == "skip":
                n_skipped += 1
            else:
                chosen.append(self._find_substitute(self._job.position + row, index))
                n_replaced += 1
        self._n_skipped = n_skipped
        self._n_replaced = n_replaced
        return np.array(chosen, dtype=np.intp)

    def choose_by_reading(self) -> IndexArrayOfInts:
        """Choose samples of which each was read by itself, so that none of them is damaged.

        Which samples are chosen is decided as by :meth:`choose`.

        Raises:
            LoadingError: a sample cannot be read for another reason than damage, or all substitutes
                of a sample are damaged.
            TooManyDamagedSamplesError: more samples are damaged than the policy allows.
        """
        checked: set[int] = set()
        while True:
            chosen = self.choose()
            unchecked = [index for index in chosen.tolist() if index not in checked]
            if not unchecked:
                return chosen
            for index in unchecked:
                if index not in checked:
                    self._check(index)
                    checked.add(index)

    def _read_chosen(self, indices: IndexArrayOfInts) -> Any:
        """Read samples, or return columns without rows if there are none."""
        if len(indices) > 0:
            return self._read(indices)
        try:
            return self._read(indices)
        except Exception as error:
            self._check_error(error)
            if not self._policy.is_damage(error):
                raise

        # Some sources read sample 0 for its columns, and it is damaged.
        return without_rows(self.read_example())

    def _find_example(self) -> int:
        """Return a sample that can be read.

        Raises:
            LoadingError: there is none, or a sample cannot be read for another reason than damage.
            TooManyDamagedSamplesError: more samples are damaged than the policy allows.
        """
        job = self._job
        n_samples = self._samples.n_samples
        # Samples may be drawn repeatedly.
        tried: set[int] = set()
        for index in substitutes(job.seed, job.epoch, job.position, n_samples):
            tried.add(index)
            if self._is_damaged(index):
                continue
            self._check(index)
            if not self._is_damaged(index):
                return index
        raise LoadingError(
            f"all samples of a batch are damaged ({job.describe_samples()})",
            f"so are all samples that were tried in their place, {len(tried):,} of "
            f"{n_samples:,}, so that nothing shows the columns of a batch; repair the dataset",
            epoch=job.epoch,
            step=job.step,
        ) from self._last_error

    def _find_substitute(self, position: int, index: int) -> int:
        """Return the sample that takes the place of a damaged one.

        Args:
            position: the position of the damaged sample in the order of the epoch.
            index: the damaged sample.

        Raises:
            LoadingError: all samples that are tried are damaged.
        """
        job = self._job
        n_samples = self._samples.n_samples
        # Samples may be drawn repeatedly.
        tried: set[int] = set()
        for substitute in substitutes(job.seed, job.epoch, position, n_samples):
            tried.add(substitute)
            if not self._is_damaged(substitute):
                return substitute
        raise LoadingError(
            f"there is no substitute for the damaged sample {index}",
            f"all samples that were tried in its place are damaged, too, {len(tried):,} of "
            f"{n_samples:,}; repair the dataset, or use on_error='skip'",
            epoch=job.epoch,
            step=job.step,
            index=index,
        ) from self._last_error

    def _check(self, index: int) -> None:
        """Read a sample, and note that it is damaged if it cannot be read.

        Raises:
            LoadingError: it cannot be read for another reason.
            TooManyDamagedSamplesError: more samples are damaged than the policy allows.
        """
        try:
            self._read(np.array([index], dtype=np.intp))
        except Exception as error:
            self._check_error(error)
            if not self._policy.is_damage(error):
                raise error_of_sample(self._samples, index, self._job, error) from error
            self._note(index, error)

    def _note(self, index: int, error: Exception) -> None:
        """Note that a sample is damaged.

        Raises:
            TooManyDamagedSamplesError: more samples are damaged than the policy allows.
        """
        key = self._key_of(index)
        epoch = None if self._keys.are_of_all_epochs else self._job.epoch
        location = location_of(self._samples, index)
        self._damaged_keys.add(key)
        self._met_samples.append(damaged_sample(error, key, epoch, location))
        self._last_error = error
        n_damaged = len(self._damaged_keys)
        if n_damaged > self._policy.max_errors:
            raise too_many_damaged_samples(
                self._met_samples, n_damaged, self._policy.max_errors, self._job
            ) from error

    def _is_damaged(self, index: int) -> bool:
        return self._key_of(index) in self._damaged_keys

    def _key_of(self, index: int) -> int:
        positions: npt.NDArray[np.intp] = np.array([index], dtype=np.intp)
        return int(self._keys.of(self._samples, positions)[0])
