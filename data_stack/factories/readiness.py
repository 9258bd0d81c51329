"""Whether a dataset is ready, and why not."""

from __future__ import annotations

from dataclasses import dataclass

from data_stack.factories.definition import DatasetDefinition
from data_stack.factories.manifest import Manifest, SourceRecord
from data_stack.io.resource_definition import ResourceDefinition


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a dataset is ready, and why not.

    Attributes:
        manifest: the manifest of a ready dataset; None if it is not ready.
        reason: why the stored data cannot be used; None if the dataset is ready, or nothing is
            stored.
        resumes: whether the next preparation resumes an earlier one.
        is_damaged: whether the dataset was ready, and its resources were damaged or lost since.
    """

    manifest: Manifest | None = None
    reason: str | None = None
    resumes: bool = False
    is_damaged: bool = False


def difference_from_definition(manifest: Manifest, definition: DatasetDefinition) -> str | None:
    """Return how a manifest differs from what the author declares; None if it does not."""
    card = definition.card
    if (manifest.name, manifest.version) != (card.name, card.version):
        return f"stored: {manifest.name} {manifest.version}; required: {card.name} {card.version}"

    recorded_sources = {source.identifier: source for source in manifest.sources}
    declared_names = {source.identifier for source in definition.sources}
    if recorded_sources.keys() != declared_names:
        return "it was prepared from other sources"
    for source in definition.sources:
        if _is_another_source(source, recorded_sources[source.identifier]):
            return f"it was prepared from another {source.identifier!r}"

    opens_sources = not definition.has_preprocess and bool(definition.sources)
    if opens_sources:
        return None
    declared_resources = set(definition.prepared_resources or ())
    missing = declared_resources - {record.identifier for record in manifest.prepared}
    if missing:
        return f"{min(missing)!r} was not prepared"
    return None


def _is_another_source(declared: ResourceDefinition, recorded: SourceRecord) -> bool:
    """Return whether a recorded source has another digest or size than the declared one."""
    if declared.sha256:
        has_another_digest = declared.sha256 != recorded.sha256
    elif declared.md5_sum is not None:
        has_another_digest = declared.md5_sum != recorded.md5_sum
    else:
        has_another_digest = False
    are_sizes_known = declared.size is not None and recorded.size is not None
    return has_another_digest or (are_sizes_known and declared.size != recorded.size)
