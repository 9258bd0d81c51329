"""Makes the manifest of a dataset that was just prepared or adopted."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from data_stack.factories.definition import DatasetDefinition
from data_stack.factories.manifest import Manifest, SourceRecord
from data_stack.factories.resource_record import ResourceRecord
from data_stack.util.distributions import distribution_of


def make_manifest(
    definition: DatasetDefinition,
    sources: Sequence[SourceRecord],
    records: Sequence[ResourceRecord],
    *,
    seconds: float | None,
) -> Manifest:
    """Return the manifest of a dataset, written now.

    Args:
        definition: what the dataset is.
        sources: the sources of the preparation.
        records: the records of the resources that ``open()`` reads.
        seconds: how long the preparation took; None if the resources were found, and adopted.
    """
    now = datetime.datetime.now(datetime.timezone.utc)
    is_adopted = seconds is None
    rounded_seconds = None
    if seconds is not None:
        rounded_seconds = round(seconds, 3)
    return Manifest(
        name=definition.card.name,
        version=definition.card.version,
        factory=definition.factory,
        distribution=distribution_of(definition.factory),
        sources=tuple(sources),
        prepared=tuple(records),
        adopted=is_adopted,
        created=now.isoformat(timespec="seconds"),
        framework=distribution_of(__name__),
        seconds=rounded_seconds,
    )
