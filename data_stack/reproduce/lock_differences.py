"""How a dataset differs from its entry in a lock file."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from data_stack.codecs.plain_data import canonical_json
from data_stack.exception import DatasetFileCorruptError
from data_stack.repository.missing_datasets import advise_install
from data_stack.reproduce.lock_entry import libraries_of, prepared_of, sources_of
from data_stack.reproduce.sample_digests import SampleDigests

#: What to do about damaged prepared files.
ADVICE = (
    "Prepare it again (`data-stack lock restore`, or `data-stack prepare NAME --again`), "
    "or copy it from an intact store"
)

#: What to do about a dataset that is not prepared.
UNPREPARED = "it is not prepared here; `data-stack lock restore` prepares it"


class Difference(NamedTuple):
    """A difference from the lock.

    Attributes:
        name: of the dataset or stack.
        what: ``"plugin"``, ``"version"``, ``"source"``, ``"preparation"``, ``"samples"`` or
            ``"stack"``.
        message: what differs, and what to do.
        is_harmless: the samples are equal all the same.
    """

    name: str
    what: str
    message: str
    is_harmless: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


class LockedSplits(NamedTuple):
    """The splits of one configuration that are compared with a lock file.

    Attributes:
        config: the options.
        digests: by the name of each locked split its ``length`` and ``samples``.
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
    only: tuple[Any, str | None] | None = None,
) -> Iterator[Difference]:
    """Compare the samples with the digests of a lock file.

    Args:
        name: of the dataset.
        entry: of the lock file.
        dataset: resolved, and ready.
        compares_equal_bytes: whether to compare the samples where the prepared bytes are those of
            the lock.
        only: compare only these options and this split (None: all splits), if the lock file has
            them.

    Yields:
        At most one difference.
    """
    locked_resources = entry.get("prepared")
    has_equal_bytes = prepared_of(dataset.factory) == locked_resources
    if has_equal_bytes and locked_resources and not compares_equal_bytes:
        return
    try:
        splits = _differing_splits(name, entry, dataset, only)
    except DatasetFileCorruptError as error:
        message = f"its samples cannot be read: {error} {ADVICE}"
        yield Difference(name, "preparation", message)
        return
    if has_equal_bytes and not splits:
        return

    libraries = _describe_libraries(
        entry.get("libraries") or (), libraries_of(dataset.distribution) or ()
    )
    if splits:
        although = ""
        if has_equal_bytes and locked_resources:
            although = ", although the prepared bytes are equal"
        maker_here = dataset.package or "this program"
        maker_then = entry.get("plugin", "another program")
        message = (
            f"the samples of {', '.join(splits)} differ from those in the lock{although} "
            f"({maker_here} made them here, {maker_then} then{libraries}). "
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
    only: tuple[Any, str | None] | None,
) -> list[LockedSplits]:
    """Return the splits to compare, by configuration.

    Args:
        configurations: of a lock file, each with ``config`` and ``splits``.
        splits: that the dataset has here.
        only: the options and the split (None: all splits) that a program loads; None for all. If
            the lock file does not have these options, all configurations are compared.
    """
    every_configuration = []
    for configuration in configurations:
        digests = configuration["splits"]
        names = sorted({*digests, *splits})
        every_configuration.append(LockedSplits(configuration["config"], digests, names))
    if only is None:
        return every_configuration

    config, split = only
    for locked in every_configuration:
        if canonical_json(locked.config) != canonical_json(config):
            continue
        # A dataset without splits is locked under an empty name.
        has_splits = "" not in locked.digests
        if split is not None and has_splits:
            return [locked._replace(names=[split])]
        return [locked]
    return every_configuration


def _differing_splits(
    name: str, entry: Mapping[str, Any], dataset: Any, only: tuple[Any, str | None] | None
) -> list[str]:
    """Return the splits whose samples differ, as text with their options.

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
    if not config:
        return ""
    options = ", ".join(f"{key}={value!r:.40}" for key, value in config.items())
    return f" ({options})"


def _describe_libraries(locked: Iterable[str], installed: Iterable[str]) -> str:
    """Return which libraries differ, to be appended to a message; empty if none do."""
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
