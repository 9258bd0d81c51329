"""Hides the credentials of URLs in texts for errors, logs and manifests."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from data_stack.util.program_lines import warn_deprecated

#: What shows a credential in a text.
HIDDEN: Final = "***"
#: Names of parameters whose values are secret.
_SECRET_NAME: Final = re.compile(
    r"token|secret|sig|key|passw|pwd|auth|credential|session|jwt", re.IGNORECASE
)
#: A parameter of a query or fragment: what stands before it, its name and its value.
_PARAMETER: Final = re.compile(r"([?&;#])([^=&;#?]*)=([^&;#]*)")
#: User and password in front of the host of a URL.
_USERINFO: Final = re.compile(r"(?<=://)[^/?#\s@]*(?:@[^/?#\s@]*)*@")
#: A host, perhaps with a port.
_HOST: Final = re.compile(r"(\[.*\]|[^:]*)(:\d*)?")
#: Shorter secrets may be parts of ordinary words.
_MIN_CHARACTERS_WITHIN_WORDS: Final = 8
#: Shorter texts are not taken for secrets.
_MIN_SECRET_CHARACTERS: Final = 4


def hide_credentials(source: str) -> str:
    """Return a path or URL for errors, logs and manifests.

    It has no credentials, and no control characters.
    """
    userinfo = _userinfo(source)
    if userinfo:
        source = source.replace(f"{userinfo}@", f"{HIDDEN}@", 1)
    return _without_secrets(source)


def shorten(source: str) -> str:
    """Return :func:`hide_credentials` of a source, under its old name."""
    warn_deprecated(
        "data_stack.io.redaction.shorten()",
        instead="hide_credentials()",
        since="0.2",
        removed_in="1.0",
    )
    return hide_credentials(source)


def redact(text: str, *sources: str) -> str:
    """Return a text of a server or library without the credentials of any of ``sources``."""
    for source in sources:
        # One secret may be a part of another one, so the longest is hidden first.
        for secret in sorted(_secrets_in(source), key=len, reverse=True):
            text = hide(text, secret, HIDDEN)
    return _without_secrets(text)


def hide(text: str, secret: str, replacement: str) -> str:
    """Return a text with ``replacement`` in place of a secret.

    A short secret may be an ordinary word, so it is only hidden where it is a word of its own:
    hidden within ``database``, what is left would reveal the secret ``data``.
    """
    pattern = re.escape(secret)
    if len(secret) < _MIN_CHARACTERS_WITHIN_WORDS:
        pattern = rf"(?<!\w){pattern}(?!\w)"
    # re.sub() would interpret backslashes in a text, but not in what a function returns.
    return re.sub(pattern, lambda _: replacement, text)


def printable(text: str) -> str:
    """Return a text in one line without control characters."""
    return "".join(character if character.isprintable() else " " for character in text)


def _without_secrets(text: str) -> str:
    """Return a text without anything that looks like a credential of a URL."""
    without_userinfo = _USERINFO.sub(f"{HIDDEN}@", text)
    without_parameters = _PARAMETER.sub(_hide_secret_value, without_userinfo)
    return printable(without_parameters)


def _hide_secret_value(parameter: re.Match[str]) -> str:
    separator, name, _ = parameter.groups()
    if not is_secret_name(name):
        return parameter.group()
    return f"{separator}{name}={HIDDEN}"


def is_secret_name(name: str) -> bool:
    """Return whether the name of a parameter, as written, is that of a secret."""
    return _SECRET_NAME.search(unquote(name)) is not None


def _userinfo(source: str) -> str:
    """Return the user and password of a URL, as written; empty if it has none.

    An unencoded ``/``, ``?`` or ``#`` in a password misleads parsers of URLs, which take what
    follows for the path. So where the authority has no ``@`` and is no host either, the last ``@``
    of the URL ends the password.
    """
    _, _, after_scheme = source.partition("://")
    authority = re.split(r"[/?#]", after_scheme, maxsplit=1)[0]
    is_whole_authority = "@" in authority or _HOST.fullmatch(authority) is not None
    if is_whole_authority:
        return authority.rpartition("@")[0]
    return after_scheme.rpartition("@")[0]


def _secrets_in(source: str) -> set[str]:
    """Return all secrets in a source, as written and decoded, except very short ones."""
    userinfo = _userinfo(source)
    secrets = [userinfo]
    secrets.extend(userinfo.split(":", 1))
    secrets.extend(re.split(r"[:/?#@]", userinfo))
    for _, name, value in _PARAMETER.findall(source):
        if is_secret_name(name):
            secrets.append(value)

    forms = set[str]()
    for secret in secrets:
        forms.add(secret)
        forms.add(unquote(secret))
    return {form for form in forms if len(form) >= _MIN_SECRET_CHARACTERS}
