"""Asks the operating system about the local file behind a resource."""

from __future__ import annotations

import os
import stat
from typing import Final

from data_stack.io.resources import StreamedResource

#: A file that was written so recently may change again, or be replaced, without a change of its
#: times: file systems count in steps of up to 2 seconds.
SETTLING_NS: Final = 2 * 10**9


def local_status_of(resource: StreamedResource) -> os.stat_result | None:
    """Return the status of an open file of this machine; None for another resource."""
    try:
        status = os.fstat(resource.fileno())
    except (OSError, AttributeError, ValueError):
        # io.UnsupportedOperation, of a resource without descriptor, is an OSError and a ValueError.
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return status
