"""How the datasets of a lock file differ from what is installed and stored here."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from data_stack.codecs.plain_data import canonical_json
from data_stack.exception import DatasetFileCorruptError
from data_stack.factories.declarative import DatasetFactory
from data_stack.io.redaction import shorten
from data_stack.repository.catalogues import install_command
from data_stack.reproduce.locked_samples import SampleDigests, libraries_of

#: What to do about damaged prepared files.
ADVICE = "Prepare it again (`data-stack lock restore`, or `data-stack prepare NAME --again`), or copy it from an intact store"

Chosen: TypeAlias = tuple[Mapping[str, Any], str | None]
"""Options and a split, or all splits."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference from the lock.

    Attributes:
        name: of the dataset or stack.
        what: ``"plugin"``, ``"version"``, ``"source"``, ``"preparation"``, ``"samples"`` or ``"stack"``.
        message: what differs, and what to do.
        is_harmless: the samples are equal all the same.
    """

    name: str
    what: str
    message: str
    is_harmless: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


def differing_sources(name: str, locked: Any, factory: Any) -> Iterator[Difference]:
    """The sources of a lock file that the factory does not declare, or with another digest."""
    declared = {each["identifier"]: each for each in sources_of(factory)}
    for source in locked:
        now = declared.get(source.get("identifier"))
        if now is None or any(now.get(key) != source[key] for key in ("sha256", "md5_sum") if key in source):
            problem = "is no longer declared" if now is None else f"has another digest, {now.get('sha256') or now.get('md5_sum')}"
            yield Difference(
                name, "source", f"source {source.get('identifier')!r:.120} {problem}, in the plugin that is installed here"
            )


def differing_samples(
    name: str,
    entry: Mapping[str, Any],
    dataset: Any,
    *,
    compares_equal_bytes: bool,
    only: Chosen | None = None,
) -> Iterator[Difference]:
    """Compare the samples with the digests of a lock file.

    Args:
        name: of the dataset.
        entry: of the lock file.
        dataset: resolved, and ready.
        compares_equal_bytes: whether to compare them where the prepared bytes are those of the lock.
        only: compare only this configuration and split, if the lock file has them.
    """
    distribution = dataset.package and dataset.package[0]
    same_bytes = prepared_of(dataset.factory) == entry.get("prepared")
    if same_bytes and entry.get("prepared") and not compares_equal_bytes:
        return
    digests, known = SampleDigests(name, dataset.factory, distribution), dataset.splits or ("",)
    differing = []
    try:
        for config, then, splits in _wanted(entry["configurations"], known, only):
            options = f" ({', '.join(f'{key}={value!r:.40}' for key, value in config.items())})" if config else ""
            for split in splits:
                load = functools.partial(dataset.load, split or None, **config)
                now = digests.of(config, split, load) if split in known else None
                if now != then.get(split):
                    differing.append(f"{split!r}{options}")
    except DatasetFileCorruptError as error:
        yield Difference(name, "preparation", f"its samples cannot be read: {error} {ADVICE}")
        return
    if same_bytes and not differing:
        return
    libraries = _differing_libraries(entry, distribution)
    if differing:
        although = ", although the prepared bytes are equal" if same_bytes and entry.get("prepared") else ""
        plugin = " ".join(dataset.package or ("this program",))
        made_by = f"{plugin} made them here, {entry.get('plugin', 'another program')} then{libraries}"
        yield Difference(
            name,
            "samples",
            f"the samples of {', '.join(differing)} differ from those in the lock{although} ({made_by}). "
            f"{advise_code(entry)}; or see what changed with `data-stack diff`, and renew the lock with "
            f"`data-stack lock add {name}`",
        )
    else:
        message = f"the prepared bytes differ from those in the lock, but all samples are equal{libraries}"
        yield Difference(name, "preparation", message, is_harmless=True)


def _differing_libraries(entry: Mapping[str, Any], distribution: str | None) -> str:
    """Which libraries of a plugin have other versions than in the lock, as the end of a sentence."""
    if distribution is None:
        return ""
    then, now = (
        dict(each.split(" ") for each in libraries or ()) for libraries in (entry.get("libraries"), libraries_of(distribution))
    )
    differing = [
        f"{name} {now.get(name, 'is missing')} here, {then[name]} then" for name in sorted(then) if now.get(name) != then[name]
    ]
    return f"; {', '.join(differing)}" if differing else ""


def _wanted(
    configurations: Iterable[Mapping[str, Any]], splits: Iterable[str], only: Chosen | None
) -> list[tuple[Mapping[str, Any], Mapping[str, Any], list[str]]]:
    """Options, locked digests by split, and the splits to compare."""
    every = [(each["config"], each["splits"], sorted({*each["splits"], *splits})) for each in configurations]
    if only is None:
        return every
    chosen = [each for each in every if canonical_json(each[0]) == canonical_json(only[0])]
    if chosen and only[1] is not None and "" not in chosen[0][1]:
        return [(chosen[0][0], chosen[0][1], [only[1]])]
    return chosen or every


def advise_code(entry: Mapping[str, Any]) -> str:
    """How to get the code that the lock file names."""
    distribution, _, version = str(entry.get("plugin", "")).partition(" ")
    if not distribution:
        return "Register the dataset with its earlier code"
    return (
        f"Install it with {install_command(f'{distribution} {version}')}; if it is installed, its code or a library has changed "
        f"since: restore the earlier code, and give changed code another version, or install the earlier libraries"
    )


def sources_of(factory: Any) -> list[dict[str, Any]]:
    """The declared sources of a dataset, as a lock file lists them."""
    sources = factory.sources if isinstance(factory, DatasetFactory) else ()
    keys = ("identifier", "size", "sha256", "md5_sum")
    return [
        without_none(
            {**{key: getattr(source, key) for key in keys}, "sources": [shorten(os.fsdecode(each)) for each in source.sources]}
        )
        for source in sorted(sources, key=lambda source: source.identifier)
    ]


def prepared_of(factory: Any) -> list[dict[str, Any]]:
    """The prepared resources of a dataset, as a lock file lists them; empty if it is not ready or has no manifest."""
    manifest = factory.manifest() if isinstance(factory, DatasetFactory) else None
    records = () if manifest is None else manifest.prepared
    return [
        {"identifier": each.identifier, "size": each.size, "sha256": each.sha256 or ""}
        for each in sorted(records, key=lambda each: each.identifier)
    ]


def without_none(fields: dict[str, Any]) -> dict[str, Any]:
    """``fields`` without those that are None, which TOML lacks."""
    return {key: value for key, value in fields.items() if value is not None}
