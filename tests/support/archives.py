"""Archives of files that a test names."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping
from typing import Literal


def tar_of(
    files: Mapping[str, bytes],
    mode: Literal["w", "w:gz"] = "w:gz",
    layout: int = tarfile.PAX_FORMAT,
) -> bytes:
    """A tar of files by their names."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode, format=layout) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def zip_of(files: Mapping[str, bytes]) -> bytes:
    """A zip archive of files."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return stream.getvalue()
