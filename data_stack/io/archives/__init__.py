"""Archives and compressed files of strangers, read as streams.

::

    with resources["raw/labels.csv.gz"] as resource, open_decompressed(resource) as stream:
        ...
    with resources["raw/images.tar.gz"] as resource, open_archive(resource) as archive:
        archive.unpack(prepared, "images")

:class:`ArchiveLimits` bound the unpacked size. A name never leads out of the target folder, links
and devices are refused, and damage or truncation is an ArchiveError, never a shorter file. Memory
holds the names of the members, not their content.
"""

from data_stack.io.archives.archive import Archive as Archive
from data_stack.io.archives.archive import ArchiveMember as ArchiveMember
from data_stack.io.archives.decompression import compression_of as compression_of
from data_stack.io.archives.decompression import open_decompressed as open_decompressed
from data_stack.io.archives.limits import ArchiveLimits as ArchiveLimits
from data_stack.io.archives.opening import open_archive as open_archive
from data_stack.io.archives.streams import read_within_limit as read_within_limit
from data_stack.io.archives.tar import looks_like_tar as looks_like_tar

__all__ = [
    "Archive",
    "ArchiveLimits",
    "ArchiveMember",
    "compression_of",
    "looks_like_tar",
    "open_archive",
    "open_decompressed",
    "read_within_limit",
]
