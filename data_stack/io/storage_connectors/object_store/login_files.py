"""Checks the files of logins that environment variables name.

The clients pass over a file that is missing: gcsfs then reads without a login, s3fs takes the
missing file for a missing object. No message shows what a file holds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from data_stack.exception import ConfigError

_LOOPBACK_HOSTS: Final = ("127.0.0.1", "::1", "localhost")
_GOOGLE_VARIABLE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
#: The values of ``token`` for which gcsfs reads the file of the variable.
_GOOGLE_DEFAULT_TOKENS: Final = (None, "google_default")
_TOKEN_VARIABLE: Final = "AWS_WEB_IDENTITY_TOKEN_FILE"  # noqa: S105  # a name
_ROLE_VARIABLE: Final = "AWS_ROLE_ARN"
_KEY_VARIABLES: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
#: The files of AWS that may be missing, as another login may be found.
_OPTIONAL_VARIABLES: Final = ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE")


def check_google_file(options: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Check that the file of ``GOOGLE_APPLICATION_CREDENTIALS`` exists, where it is the login.

    Args:
        options: arguments of ``gcsfs.GCSFileSystem``.
        environment: the variables.

    Raises:
        ConfigError: it does not.
    """
    if options.get("token") in _GOOGLE_DEFAULT_TOKENS:
        _check_file(_GOOGLE_VARIABLE, environment)


def check_google_login(
    file_system: Any, options: Mapping[str, Any], environment: Mapping[str, str]
) -> None:
    """Check that gcsfs has logged in by the file of ``GOOGLE_APPLICATION_CREDENTIALS``.

    Where it cannot use the file, it looks for another login, and reads without one at last.

    Args:
        file_system: a ``gcsfs.GCSFileSystem``.
        options: its arguments.
        environment: the variables.

    Raises:
        ConfigError: it has not.
    """
    path = environment.get(_GOOGLE_VARIABLE)
    is_needed = path and options.get("token") is None
    if is_needed and file_system.credentials.method != "google_default":
        raise ConfigError(
            f"{_GOOGLE_VARIABLE} names {path!r:.300}, which gcsfs cannot use as a login: name a "
            "file of credentials for the project, or remove the variable"
        )


def check_google_endpoint(file_system: Any) -> None:
    """Check that nobody between here and the server sees the token of a login.

    Args:
        file_system: a ``gcsfs.GCSFileSystem``.

    Raises:
        ConfigError: it would be sent without encryption, and not only within this machine.
    """
    from google.auth.credentials import AnonymousCredentials

    credentials = file_system.credentials.credentials
    is_anonymous = credentials is None or isinstance(credentials, AnonymousCredentials)
    if is_anonymous or keeps_token_secret(file_system.base):
        return
    raise ConfigError(
        "a login of Google is sent by https:// only: name an https:// endpoint, or read without a "
        "login (?anonymous=true, token='anon')"
    )


def keeps_token_secret(endpoint: str) -> bool:
    """Return whether nobody between here and an endpoint sees what is sent there."""
    parts = urlsplit(endpoint)
    return parts.scheme == "https" or parts.hostname in _LOOPBACK_HOSTS


def check_s3_files(options: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Check that the file of ``AWS_WEB_IDENTITY_TOKEN_FILE`` exists, where it is the login.

    Args:
        options: arguments of ``s3fs.S3FileSystem``.
        environment: the variables.

    Raises:
        ConfigError: it does not.
    """
    if options.get("anon") or options.get("profile"):
        return
    has_keys = options.get("key") and options.get("secret")
    if has_keys or all(environment.get(name) for name in _KEY_VARIABLES):
        return
    # botocore uses the token only for a role.
    if environment.get(_ROLE_VARIABLE):
        _check_file(_TOKEN_VARIABLE, environment)


def describe_missing_files(environment: Mapping[str, str]) -> str:
    """Return which files of AWS are missing that variables name; empty: none is."""
    problems = []
    for variable in _OPTIONAL_VARIABLES:
        path = environment.get(variable)
        # botocore expands the paths of these variables only.
        if path and not _is_readable(os.path.expanduser(path)):
            problems.append(_describe_missing(variable, path))
    return "; ".join(problems)


def _check_file(variable: str, environment: Mapping[str, str]) -> None:
    """Check that the file exists that a variable names, if the variable is set.

    Raises:
        ConfigError: it does not.
    """
    path = environment.get(variable)
    if path and not _is_readable(path):
        raise ConfigError(
            f"{_describe_missing(variable, path)}: name the file of the login, or remove the "
            "variable"
        )


def _is_readable(path: str) -> bool:
    """Return whether there is a file, a pipe or a device such as ``/dev/null`` at a path."""
    return os.path.exists(path) and not os.path.isdir(path)


def _describe_missing(variable: str, path: str) -> str:
    return f"{variable} names {path!r:.300}, where there is no file"
