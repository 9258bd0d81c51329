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
_SIZE: Final = re.compile(r"(?P<n_bytes>[0-9]+)\s*B?")
#: Number of hexadecimal digits of the digests that documents state.
_N_DIGITS: Final = {"sha256": 64, "md5": 32}
#: Number of characters of a link in messages.
_MAX_SHOWN_CHARACTERS: Final = 200


def define_source(node: Any, place: str) -> ResourceDefinition:
    """Return the definition of the resource of a FileObject.

    Args:
        node: the FileObject, which is contained in no other node.
        place: path or URL of the document.

    Returns:
        A definition whose identifier is empty, as the caller decides on it.

    Raises:
        MaliciousFilePathError: the FileObject names a file outside of the folder of the document.
    """
    size = None
    stated_size = _SIZE.fullmatch(node.content_size or "")
    if stated_size is not None:
        size = int(stated_size["n_bytes"])
    return ResourceDefinition(
        "",
        locate(node.content_url, place, node),
        sha256=_digest_of(node, "sha256"),
        md5_sum=_digest_of(node, "md5"),
        size=size,
    )


def locate(url: str, place: str, node: Any) -> str:
    """Return the absolute path or URL of a file that a document names.

    Args:
        url: path or URL of the file, as the document writes it.
        place: path or URL of the document.
        node: the FileObject or FileSet of the file, for messages.

    Raises:
        MaliciousFilePathError: the file is outside of the folder of the document, or at a URL to
            which the document may not lead.
    """
    if is_web(place) or is_web(url):
        try:
            return follow(place, url)
        except WebError as error:
            problem = error.reason
    else:
        folder = Path(place).parent
        name = unquote(url)
        # No file has a name with a NUL; resolve() raises an error of its own for it.
        if "\0" not in name:
            path = (folder / name).resolve()
            if path.is_relative_to(folder):
                return str(path)
        shown_url = hide_credentials(url)[:_MAX_SHOWN_CHARACTERS]
        problem = f"leads to {shown_url}, which is outside of its folder"
    raise MaliciousFilePathError(
        f"{hide_credentials(place)} {problem}, for {node.uuid!r}. Nothing was retrieved; "
        f"ask its publisher to correct it"
    )


def state_of(source: str) -> str:
    """Return the size and the modification time of a file, by which a change is noticed.

    Args:
        source: path or URL of the file.

    Returns:
        A text; empty if the file is not on this machine.
    """
    if is_web(source) or not os.path.exists(source):
        return ""
    status = os.stat(source)
    return f":{status.st_size}:{status.st_mtime_ns}"


def _digest_of(node: Any, algorithm: str) -> str | None:
    """Return the digest that a FileObject states, in hexadecimal digits.

    Args:
        node: the FileObject.
        algorithm: ``"sha256"`` or ``"md5"``.

    Returns:
        The digest; None without one. Many documents have a placeholder, which counts as none.
    """
    written = getattr(node, algorithm) or ""
    has_digits = re.fullmatch("[0-9a-fA-F]+", written) is not None
    if has_digits and len(written) == _N_DIGITS[algorithm]:
        return str(written)
    if written:
        logger.warning(
            "the %s of %r, %.80r, is not a digest, so its bytes are not verified",
            algorithm,
            node.uuid,
            written,
        )
    return None
