"""Errors of samples and batches that a loader could not make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from data_stack.dataset.iterator import SampleAccess
from data_stack.dataset.iterator.origins import Origin
from data_stack.exception import LoadingError
from data_stack.loader.job import Job
from data_stack.util.interrupts import suppress_own

#: The maximum number of samples of sources that a message names.
_MAX_NAMED_ORIGINS: Final = 8


def describe_sample(samples: SampleAccess, index: int) -> str:
    """Return the name of a sample for a message, with its file and row if the source knows them."""
    location = location_of(samples, index)
    if location is None:
        return f"sample {index}"
    return f"sample {index} ({location})"


def location_of(samples: SampleAccess, index: int) -> str | None:
    """Return the file and row of a sample; None if the source does not know them.

    Of a sample that is made of others, such as a packed sequence, those of the first ones.
    """
    with suppress_own(Exception):
        origins = samples.origins(index)
        if len(origins) == 1:
            return samples.locate(index)
        if any(origin.location is not None for origin in origins):
            return _name_origins(origins)
    return None


def _name_origins(origins: Sequence[Origin]) -> str:
    """Return the first of several origins for a message, and how many follow."""
    names = [str(origin) for origin in origins[:_MAX_NAMED_ORIGINS]]
    n_others = len(origins) - len(names)
    if n_others > 0:
        names.append(f"and {n_others} more")
    return "; ".join(names)


def error_of_sample(
    samples: SampleAccess, index: int, job: Job, error: BaseException
) -> LoadingError:
    """Return the error of a job with a sample that cannot be read."""
    return LoadingError(
        f"{describe_sample(samples, index)} could not be read",
        error,
        epoch=job.epoch,
        step=job.step,
        index=index,
    )


def error_of_batch(problem: str, job: Job, error: BaseException) -> LoadingError:
    """Return the error of a job whose samples could be read one by one."""
    full_problem = f"{problem} (of the samples {job.describe_samples()})"
    return LoadingError(full_problem, error, epoch=job.epoch, step=job.step)
