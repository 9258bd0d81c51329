"""Writes the samples of a conversion."""

from __future__ import annotations

from data_stack.exception import ConfigError
from data_stack.formats.column_source import ColumnSource
from data_stack.formats.conversion.batches import batches_of_positions, new_bar_for
from data_stack.formats.format import WritableFormat
from data_stack.io.location import Location


def write(
    target_format: WritableFormat,
    source: ColumnSource,
    location: Location,
    name: str,
    shardlen: int | None,
    *,
    progress: bool | None,
) -> None:
    """Write all samples of a source.

    Args:
        target_format: the format to write.
        source: the samples.
        location: where to write.
        name: the final name of the dataset.
        shardlen: the number of samples in a shard; None for the format's default.
        progress: as for :func:`convert`.
    """
    # Images, sound and videos are copied as the bytes of their files, if the target stores files.
    stored = source.stored_names if target_format.keeps_files else []
    with new_bar_for("converting", source, progress) as bar:
        with target_format.writer(location, source, name=name, shardlen=shardlen) as write_batch:
            for positions in batches_of_positions(source, stored):
                columns = source.read(positions, source.schema, stored)
                try:
                    write_batch(columns)
                except ConfigError:
                    # The bytes of a damaged picture reach the writer, which does not know their
                    # file. Decoding them raises an error that names it.
                    source.read(positions, stored)
                    raise
                bar.update(len(positions))
