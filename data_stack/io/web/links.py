"""Where redirects, and links of servers and untrusted documents, may lead."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit

from data_stack.io.redaction import hide_credentials
from data_stack.io.web.errors import WebError

_MAX_SHOWN_CHARACTERS = 200
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Origin(NamedTuple):
    """The server to which a password may be sent: https://www.rfc-editor.org/rfc/rfc6454.

    Attributes:
        scheme: ``"https"`` or ``"http"``.
        host: the host without a port; None if the URL has none.
        port: the port, also if it is the default one of the scheme; 0 if it is unknown.
    """

    scheme: str
    host: str | None
    port: int


@functools.lru_cache(maxsize=256)
def origin_of(url: str) -> Origin:
    """Return scheme, host and port of a URL."""
    parts = urlsplit(url)
    port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
    return Origin(parts.scheme, parts.hostname, port)


def is_web(place: str) -> bool:
    """Return whether a text begins as a URL of a web server."""
    return place[:8].lower().startswith(("https://", "http://"))


def bare_url(parts: SplitResult) -> str:
    """Return a URL without user, password and fragment."""
    host_and_port = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme.lower(), host_and_port, parts.path, parts.query, ""))


def follow(origin: str, target: Any) -> str:
    """Return the URL to which a link leads, if it may lead there.

    A link may lead to ``https``, and from ``http`` to ``http``. All links of servers and untrusted
    documents pass through here: redirects, and the files that catalogues, published descriptions
    and Croissant documents name. They cannot name local files, packages or other schemes.

    Args:
        origin: the URL of the document with the link, or of the server that redirects. For a
            document on this machine it is the path: its links may lead to ``https`` only.
        target: the link: a URL, or a URL relative to ``origin``.

    Returns:
        An absolute URL without fragment. It has the user and password of ``origin`` if it leads to
        the same scheme, host and port.

    Raises:
        WebError: the link is not a URL, or may not be followed.
    """
    base = origin if is_web(origin) else ""
    parts = _split_link(base, target)
    if parts is None:
        shown = hide_credentials(repr(target))[:_MAX_SHOWN_CHARACTERS]
        raise WebError(f"leads to {shown}, which is not a URL")

    allowed_schemes = ["https"]
    if origin[:5].lower() == "http:":
        allowed_schemes.append("http")
    is_web_url = parts.scheme in ("https", "http") and bool(parts.hostname)
    if not is_web_url:
        reason = f"which is not an {' or '.join(allowed_schemes)} URL"
    elif parts.scheme not in allowed_schemes:
        reason = "which is not encrypted"
    else:
        reason = None
    if reason is not None:
        shown = hide_credentials(target)[:_MAX_SHOWN_CHARACTERS]
        raise WebError(f"leads to {shown}, {reason}; that is not followed")

    # The user and password of the origin may be sent to the same server only.
    url = bare_url(parts)
    userinfo, _, _ = urlsplit(origin).netloc.rpartition("@")
    if userinfo and origin_of(url) == origin_of(origin):
        return url.replace("://", f"://{userinfo}@", 1)
    return url


def _split_link(base: str, target: Any) -> SplitResult | None:
    """Return the parts of a link, made absolute; None if it is not a URL."""
    if not isinstance(target, str):
        return None
    try:
        parts = urlsplit(urljoin(base, target))
        # The attributes raise a ValueError if what stands there is no host, or no number.
        parts.hostname  # noqa: B018
        parts.port  # noqa: B018
    except ValueError:
        return None
    return parts
