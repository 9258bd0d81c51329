"""Archives and compressed files as streams, for bytes that nobody vouches for.

::

    with resources["raw/labels.csv.gz"] as resource, open_decompressed(resource) as stream:
        ...
    with resources["raw/images.tar.gz"] as resource, open_archive(resource) as archive:
        archive.unpack(prepared, "images")

Nothing is trusted: what comes out is bounded by :class:`ArchiveLimits`, a name never leads out of the folder it is
unpacked to, links and devices are refused, and what is damaged or cut short is an ArchiveError, never a shorter file.
Memory does not grow with the size of an archive; only its names are remembered.
"""

from data_stack.io.archives.archive import Archive, ArchiveMember, CreatesResources
from data_stack.io.archives.decompression import open_decompressed
from data_stack.io.archives.limits import ArchiveLimits
from data_stack.io.archives.opening import open_archive

__all__ = ["Archive", "ArchiveLimits", "ArchiveMember", "CreatesResources", "open_archive", "open_decompressed"]
