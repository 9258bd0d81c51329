"""What to retrieve for one FileObject of a document."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from data_stack import ResourceDefinition
from data_stack.exception import MaliciousFilePathError
from data_stack.io.redaction import hide_credentials
from data_stack.io.web import WebError, follow, is_web

logger = logging.getLogger("data_stack")

#: A size in bytes, as documents state it.
_SIZE: Final = re.compile(r"(\d+)\s*B?")
#: Bytes of the digests that documents state.
_DIGEST_BYTES: Final = {"sha256": 32, "md5": 16}
#: Characters of a link in messages.
_MAX_SHOWN_CHARACTERS: Final = 200


def define_source(node: Any, place: str) -> ResourceDefinition:
    """Return the resource of a FileObject that is not contained in another.

    The caller replaces its identifier.

    Args:
        node: the FileObject.
        place: path or URL of the document.

    Raises:
        MaliciousFilePathError: it names a file outside of the document's folder.
    """
    size = _SIZE.fullmatch(node.content_size or "")
    return ResourceDefinition(
        "",
        locate(node.content_url, place, node),
        sha256=_digest_of(node, "sha256"),
        md5_sum=_digest_of(node, "md5"),
        size=None if size is None else int(size[1]),
    )


def locate(url: str, place: str, node: Any) -> str:
    """Return the absolute path or URL of a file that a document names.

    Args:
        url: as the document writes it.
        place: path or URL of the document.
        node: the FileObject or FileSet, for messages.

    Raises:
        MaliciousFilePathError: the document may not lead there.
    """
    if is_web(place) or is_web(url):
        try:
            return follow(place, url)
        except WebError as error:
            problem = error.reason
    else:
        folder = Path(place).parent
        path = (folder / unquote(url)).resolve()
        if path.is_relative_to(folder):
            return str(path)
        shown_url = hide_credentials(url)[:_MAX_SHOWN_CHARACTERS]
        problem = f"leads to {shown_url}, which is outside of its folder"
    raise MaliciousFilePathError(
        f"{hide_credentials(place)} {problem}, for {node.uuid!r}. Nothing was retrieved; "
        f"ask its publisher to correct it"
    )


def state_of(source: str) -> str:
    """Return size and modification time of a local file, by which a change is noticed.

    Of other files it is empty.
    """
    is_url = re.match("[a-z]+://", source) is not None
    if is_url or not os.path.exists(source):
        return ""
    status = os.stat(source)
    return f":{status.st_size}:{status.st_mtime_ns}"


def _digest_of(node: Any, algorithm: str) -> str | None:
    """Return a digest in hexadecimal digits; None for the placeholders that many documents have."""
    written = getattr(node, algorithm) or ""
    n_digits = 2 * _DIGEST_BYTES[algorithm]
    if re.fullmatch(f"[0-9a-fA-F]{{{n_digits}}}", written):
        return str(written)
    if written:
        logger.warning(
            "the %s of %r, %.80r, is not a digest, so its bytes are not verified",
            algorithm,
            node.uuid,
            written,
        )
    return None
