"""Finds the differences of a dataset from its entry in a lock file."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from data_stack.codecs.plain_data import canonical_json
from data_stack.exception import DatasetFileCorruptError
from data_stack.repository.missing_datasets import advise_install
from data_stack.reproduce.lock_entry import libraries_of, prepared_of, sources_of
from data_stack.reproduce.sample_digests import SampleDigests

#: What to do about damaged prepared files, for messages.
REPAIR_ADVICE = (
    "Prepare it again (`data-stack lock restore`, or `data-stack prepare NAME --again`), "
    "or copy it from an intact store"
)

#: The message about a dataset that is not prepared.
NOT_PREPARED_MESSAGE = "it is not prepared here; `data-stack lock restore` prepares it"


class Difference(NamedTuple):
    """A difference from the lock.

    Attributes:
        name: the name of the dataset or stack.
        what: what differs: ``"plugin"``, ``"version"``, ``"source"``, ``"preparation"``,
            ``"samples"`` or ``"stack"``.
        message: what differs, and what to do.
        is_harmless: whether all samples are equal in spite of it.
    """

    name: str
    what: str
    message: str
    is_harmless: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


class LoadedSplits(NamedTuple):
    """The samples that a program loads.

    Attributes:
        config: the options of the dataset.
        split: the name of the split; None: all splits.
    """

    config: Mapping[str, Any]
    split: str | None


class LockedSplits(NamedTuple):
    """The splits of one configuration that are compared with a lock file.

    Attributes:
        config: the options.
        digests: the ``length`` and ``samples`` of each locked split, by its name.
        names: the splits to compare.
    """

    config: Mapping[str, Any]
    digests: Mapping[str, Any]
    names: list[str]


# ---------------------------------------------------------------------------------------- sources


def differing_sources(
    name: str, locked_sources: Iterable[Mapping[str, Any]], factory: Any
) -> Iterator[Difference]:
    """Yield the sources of a lock file that the factory does not declare with the same digest."""
    declared_sources = {source["identifier"]: source for source in sources_of(factory)}
    for locked_source in locked_sources:
        identifier = locked_source.get("identifier")
        problem = _problem_of_source(locked_source, declared_sources.get(identifier))
        if problem is not None:
            message = f"source {identifier!r:.120} {problem}, in the plugin that is installed here"
            yield Difference(name, "source", message)


def _problem_of_source(
    locked_source: Mapping[str, Any], declared_source: Mapping[str, Any] | None
) -> str | None:
    """Return how a declared source differs from a locked one; None if it does not."""
    if declared_source is None:
        return "is no longer declared"
    for algorithm in ("sha256", "md5_sum"):
        is_locked = algorithm in locked_source
        if is_locked and declared_source.get(algorithm) != locked_source[algorithm]:
            digest = declared_source.get("sha256") or declared_source.get("md5_sum")
            return f"has another digest, {digest}"
    return None


# ---------------------------------------------------------------------------------------- samples


def differing_samples(
    name: str,
    entry: Mapping[str, Any],
    dataset: Any,
    *,
    compares_equal_bytes: bool,
    only: LoadedSplits | None = None,
) -> Iterator[Difference]:
    """Compare the samples of a dataset with the digests of a lock file.

    Args:
        name: the name of the dataset.
        entry: the entry of the dataset in the lock file.
        dataset: the dataset, as the repository resolves it; it is ready.
        compares_equal_bytes: whether to read and compare the samples even if the prepared bytes
            equal those of the lock.
        only: the samples to compare; None: all locked samples. See :func:`splits_to_compare`.

    Yields:
        At most one difference.
    """
    locked_resources = entry.get("prepared")
    has_equal_bytes = prepared_of(dataset.factory) == locked_resources
    if has_equal_bytes and locked_resources and not compares_equal_bytes:
        return
    try:
        differing_splits = _find_differing_splits(name, entry, dataset, only)
    except DatasetFileCorruptError as error:
        message = f"its samples cannot be read: {error} {REPAIR_ADVICE}"
        yield Difference(name, "preparation", message)
        return
    if has_equal_bytes and not differing_splits:
        return

    libraries = _describe_libraries(
        entry.get("libraries") or (), libraries_of(dataset.distribution) or ()
    )
    if differing_splits:
        bytes_are_equal = ""
        if has_equal_bytes and locked_resources:
            bytes_are_equal = ", although the prepared bytes are equal"
        maker_here = dataset.package or "this program"
        maker_then = entry.get("plugin", "another program")
        message = (
            f"the samples of {', '.join(differing_splits)} differ from those in the lock"
            f"{bytes_are_equal} ({maker_here} made them here, {maker_then} then{libraries}). "
            f"{advise_code(entry)}; or see what changed with `data-stack diff`, and renew the lock "
            f"with `data-stack lock add`"
        )
        yield Difference(name, "samples", message)
    else:
        message = (
            f"the prepared bytes differ from those in the lock, but all samples are equal"
            f"{libraries}"
        )
        yield Difference(name, "preparation", message, is_harmless=True)


def splits_to_compare(
    configurations: Iterable[Mapping[str, Any]],
    splits: Iterable[str],
    only: LoadedSplits | None,
) -> list[LockedSplits]:
    """Return the splits to compare, by configuration.

    Args:
        configurations: the configurations of a lock file, each with ``config`` and ``splits``.
        splits: the names of the splits that the dataset has here.
        only: the samples that a program loads; None: all locked samples are compared. All are
            compared as well if no configuration of the lock file has the options of ``only``.
    """
    every_configuration = []
    for configuration in configurations:
        digests = configuration["splits"]
        names = sorted({*digests, *splits})
        every_configuration.append(LockedSplits(configuration["config"], digests, names))
    if only is None:
        return every_configuration

    for locked in every_configuration:
        if canonical_json(locked.config) != canonical_json(only.config):
            continue
        # A dataset without splits is locked under an empty name.
        has_splits = "" not in locked.digests
        if only.split is not None and has_splits:
            return [locked._replace(names=[only.split])]
        return [locked]
    return every_configuration


def _find_differing_splits(
    name: str, entry: Mapping[str, Any], dataset: Any, only: LoadedSplits | None
) -> list[str]:
    """Return the splits whose samples differ, as texts such as ``"'train' (size=64)"``.

    Raises:
        DatasetFileCorruptError: samples cannot be read.
    """
    digests = SampleDigests(name, dataset.factory, dataset.distribution)
    known_splits = dataset.splits or ("",)
    differing_splits = []
    for locked in splits_to_compare(entry["configurations"], known_splits, only):
        for split in locked.names:
            digests_here = None
            if split in known_splits:
                load = functools.partial(dataset.load, split or None, **locked.config)
                digests_here = digests.of(locked.config, split, load)
            if locked.digests.get(split) != digests_here:
                differing_splits.append(f"{split!r}{_describe_options(locked.config)}")
    return differing_splits


def _describe_options(config: Mapping[str, Any]) -> str:
    """Return options in brackets, to be appended to the name of a split; empty without options."""
    if not config:
        return ""
    options = ", ".join(f"{key}={value!r:.40}" for key, value in config.items())
    return f" ({options})"


def _describe_libraries(locked: Iterable[str], installed: Iterable[str]) -> str:
    """Return which libraries have other versions here, to be appended to a message.

    Empty if one side has no library that the other side lacks: its libraries may be unknown.

    Args:
        locked: libraries of the lock file, such as ``"numpy 2.1.0"``.
        installed: libraries that are installed here, in the same form.
    """
    only_here = sorted(set(installed) - set(locked))
    only_then = sorted(set(locked) - set(installed))
    if not only_here or not only_then:
        return ""
    return f"; libraries here: {', '.join(only_here)}, then: {', '.join(only_then)}"


# ----------------------------------------------------------------------------------------- advice


def advise_code(entry: Mapping[str, Any]) -> str:
    """Return how to get the code that the lock file names."""
    distribution, _, version = str(entry.get("plugin", "")).partition(" ")
    if not distribution:
        return "Register the dataset with its earlier code"
    return (
        f"To get it: {advise_install(f'{distribution} {version}')}; if it is installed, its code "
        f"or a library has changed: restore these, and give changed code another version"
    )
