"""The options in the URL of an object store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

from data_stack.exception import ConfigError
from data_stack.io.url import parse_option
from data_stack.util.suggestions import did_you_mean

#: The options of all schemes, and the arguments of the connector.
_COMMON_OPTIONS: Final = {
    "readOnly": "read_only",
    "timeoutSeconds": "timeout_seconds",
    "client": "client",
}

_S3_OPTIONS: Final = {
    "endpointUrl": "endpoint_url",
    "region": "region_name",
    "anonymous": "anon",
    "profile": "profile",
    "requesterPays": "requester_pays",
}
#: gcsfs has no argument for anonymous access: its token says it, see parse_options().
_GS_OPTIONS: Final = {"endpointUrl": "endpoint_url", "project": "project", "anonymous": "token"}
_AZ_OPTIONS: Final = {
    "account": "account_name",
    "anonymous": "anon",
    "endpointUrl": "endpoint_url",
}
_SFTP_OPTIONS: Final = {"keyFile": "key_filename", "knownHosts": "known_hosts"}
_HDFS_OPTIONS: Final = {"user": "user", "kerberosTicket": "kerb_ticket"}
#: The options of each scheme, and the arguments of its file system.
_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "s3": _S3_OPTIONS,
    "s3a": _S3_OPTIONS,
    "gs": _GS_OPTIONS,
    "gcs": _GS_OPTIONS,
    "az": _AZ_OPTIONS,
    "abfs": _AZ_OPTIONS,
    "abfss": _AZ_OPTIONS,
    "sftp": _SFTP_OPTIONS,
    "ssh": _SFTP_OPTIONS,
    "hdfs": _HDFS_OPTIONS,
}
#: The types of options that are not texts.
_TYPES: Final[Mapping[str, type]] = {
    "readOnly": bool,
    "anonymous": bool,
    "requesterPays": bool,
    "timeoutSeconds": float,
}


def parse_options(scheme: str, query: str) -> dict[str, Any]:
    """Return the arguments of the connector that the query of a URL gives.

    Args:
        scheme: the scheme of the URL.
        query: the query, without its question mark.

    Raises:
        ConfigError: an option is unknown or invalid. Values are never shown.
    """
    try:
        options = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise ConfigError("not a URL: its query cannot be read") from None

    known = {**_COMMON_OPTIONS, **_OPTIONS.get(scheme, {})}
    arguments: dict[str, Any] = {}
    for name, text in options:
        if name not in known:
            names = ", ".join(sorted(known))
            raise ConfigError(
                f"unknown option in a {scheme}:// URL{did_you_mean(name, known)}; "
                f"its options are {names}"
            )
        arguments[known[name]] = parse_option(name, text, _TYPES.get(name, str))

    # The region is an argument of the client of s3fs.
    if "region_name" in arguments:
        arguments["client_kwargs"] = {"region_name": arguments.pop("region_name")}
    # The option anonymous of gs:// has become a token that is True or False.
    is_anonymous = arguments.pop("token", False)
    if is_anonymous:
        arguments["token"] = "anon"  # noqa: S105  # it stands for no login
    return arguments
