"""Errors of samples and batches that a loader could not make."""

from __future__ import annotations

from data_stack.dataset.iterator import SampleAccess
from data_stack.exception import LoadingError
from data_stack.loader.job import Job
from data_stack.util.interrupts import suppress_own


def describe_sample(samples: SampleAccess, index: int) -> str:
    """Return the name of a sample for a message, with its file and row if the source knows them."""
    location = location_of(samples, index)
    if location is None:
        return f"sample {index}"
    return f"sample {index} ({location})"


def location_of(samples: SampleAccess, index: int) -> str | None:
    """Return the file and row of a sample; None if the source does not know them."""
    with suppress_own(Exception):
        return samples.locate(index)
    return None


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
