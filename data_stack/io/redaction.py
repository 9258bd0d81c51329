"""Texts for errors, logs and manifests without the credentials of URLs."""

from __future__ import annotations

import re
from urllib.parse import unquote

_SECRET_NAME = re.compile(
    r"token|secret|sig|key|passw|pwd|auth|credential|session|jwt", re.IGNORECASE
)
#: Shorter secrets may be parts of ordinary words.
_MIN_CHARACTERS_WITHIN_WORDS = 8
_PARAMETER = re.compile(r"([?&;#])([^=&;#?]*)=([^&;#]*)")


def shorten(source: str) -> str:
    """A source for errors, logs and manifests: without credentials or control characters."""
    if userinfo := _userinfo(source):
        source = source.replace(f"{userinfo}@", "***@", 1)
    return _without_secrets(source)


def redact(text: str, *sources: str) -> str:
    """``text`` of a server or library without the credentials in any of ``sources``."""
    for source in sources:
        for secret in sorted(_secrets(source), key=len, reverse=True):
            text = hide(text, secret, "***")
    return _without_secrets(text)


def hide(text: str, secret: str, mark: str) -> str:
    """``text`` with ``mark`` in place of a secret.

    A short secret may be an ordinary word, so it is only hidden where it is a word of its own: hidden within ``database``, the
    secret ``data`` would be told by what is left.
    """
    pattern = re.escape(secret)
    if len(secret) < _MIN_CHARACTERS_WITHIN_WORDS:
        pattern = rf"(?<!\w){pattern}(?!\w)"
    return re.sub(pattern, lambda _: mark, text)


def printable(text: str) -> str:
    """``text`` in one line without control characters."""
    return "".join(character if character.isprintable() else " " for character in text)


def _without_value(parameter: re.Match[str]) -> str:
    mark, name, _ = parameter.groups()
    return f"{mark}{name}=***" if _SECRET_NAME.search(unquote(name)) else parameter.group()


def _without_secrets(text: str) -> str:
    """A text without anything that looks like a credential of a URL."""
    return printable(
        _PARAMETER.sub(_without_value, re.sub(r"(?<=://)[^/?#\s@]*(?:@[^/?#\s@]*)*@", "***@", text))
    )


def _userinfo(source: str) -> str:
    """The user and password of a URL, even with an unencoded ``/``, ``?`` or ``#``, which misleads parsers."""
    _, _, rest = source.partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    is_clear = "@" in authority or re.fullmatch(r"(\[.*\]|[^:]*)(:\d*)?", authority) is not None
    return (authority if is_clear else rest).rpartition("@")[0]


def _secrets(source: str) -> set[str]:
    """All secrets in ``source``, as written and decoded, except very short ones."""
    userinfo = _userinfo(source)
    found = [userinfo, *userinfo.split(":", 1), *re.split(r"[:/?#@]", userinfo)]
    found += [
        value for _, name, value in _PARAMETER.findall(source) if _SECRET_NAME.search(unquote(name))
    ]
    return {form for secret in found for form in (secret, unquote(secret)) if len(form) >= 4}
