"""Where redirects and links of untrusted documents may lead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit

from data_stack.io.redaction import shorten
from data_stack.io.web.ranges import ByteRange as ByteRange

if TYPE_CHECKING:
    pass

from data_stack.io.web.errors import WebError


def is_web(place: str) -> bool:
    """Whether a text begins as a URL of a web server."""
    return place[:8].lower().startswith(("https://", "http://"))


def follow(origin: str, target: Any) -> str:
    """The URL that ``target`` names beside ``origin``, if ``origin`` may lead there: to ``https``, or to its own ``http``.

    All links of servers and untrusted documents pass through here: redirects, and the files that catalogues, published
    descriptions and Croissant documents name. They cannot name local files, packages or other schemes.

    Args:
        origin: URL of the server or document; a path, for a document on this machine, from which only ``https`` may be named.
        target: URL or relative URL.

    Returns:
        An absolute URL without fragment; with the user and password of ``origin`` if it leads to the same scheme, host and port.

    Raises:
        WebError: it may not.
    """
    try:
        if not isinstance(target, str):
            raise ValueError(target)
        parts = urlsplit(urljoin(origin if is_web(origin) else "", target))
        is_url = bool(parts.hostname) and (parts.port or 0) >= 0
    except ValueError:
        raise WebError(f"leads to {shorten(repr(target))[:200]}, which is not a URL") from None
    allowed = ("https", "http") if origin[:5].lower() == "http:" else ("https",)
    if parts.scheme not in allowed or not is_url:
        why = (
            "which is not encrypted"
            if parts.scheme == "http" and is_url
            else f"which is not an {' or '.join(allowed)} URL"
        )
        raise WebError(f"leads to {shorten(str(target))[:200]}, {why}; that is not followed")
    url, (userinfo, mark, _) = bare_url(parts), urlsplit(origin).netloc.rpartition("@")
    return (
        url.replace("://", f"://{userinfo}@", 1)
        if mark and origin_of(url) == origin_of(origin)
        else url
    )


# ---------------------------------------------------------------------- small questions


def bare_url(parts: SplitResult) -> str:
    """A URL without user, password and fragment."""
    return urlunsplit(
        (parts.scheme.lower(), parts.netloc.rpartition("@")[2], parts.path, parts.query, "")
    )


def origin_of(url: str) -> tuple[str, str | None, int]:
    """Return scheme, host and port of a URL."""
    parts = urlsplit(url)
    return (
        parts.scheme,
        parts.hostname,
        parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0),
    )
