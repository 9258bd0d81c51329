"""The options of a URL's query, as arguments of the connector and of the file system."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qsl

from data_stack.exception import ConfigError
from data_stack.io.url import parse_option
from data_stack.util.suggestions import did_you_mean

_KINDS: Final[dict[str, type]] = {"readOnly": bool, "anonymous": bool, "requesterPays": bool, "timeoutSeconds": float}
_CONNECTOR_OPTIONS: Final = {"readOnly": "read_only", "timeoutSeconds": "timeout_seconds"}
_S3: Final = {
    "endpointUrl": "endpoint_url",
    "region": "client_kwargs.region_name",
    "anonymous": "anon",
    "profile": "profile",
    "requesterPays": "requester_pays",
}
_GS: Final = {"endpointUrl": "endpoint_url", "project": "project", "anonymous": "token"}
_AZ: Final = {"account": "account_name", "anonymous": "anon"}
_SFTP: Final = {"keyFile": "key_filename", "knownHosts": "known_hosts"}
_HDFS: Final = {"user": "user", "kerberosTicket": "kerb_ticket"}
#: By scheme, options of the query: the argument of the file system, or the path to it.
_FILE_SYSTEM_OPTIONS: Final[dict[str, dict[str, str]]] = {
    "s3": _S3, "s3a": _S3, "gs": _GS, "gcs": _GS, "az": _AZ, "abfs": _AZ, "abfss": _AZ,
    "sftp": _SFTP, "ssh": _SFTP, "hdfs": _HDFS,
}  # fmt: skip


def parse_options(scheme: str, query: str) -> dict[str, Any]:
    """Arguments of the connector by the query of a URL.

    Raises:
        ConfigError: an option is unknown or invalid. Values are never shown.
    """
    try:
        given = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise ConfigError("not a URL: its query cannot be read") from None
    known = _CONNECTOR_OPTIONS | _FILE_SYSTEM_OPTIONS.get(scheme, {})
    arguments: dict[str, Any] = {}
    for name, text in given:
        if name not in known:
            near, names = did_you_mean(name, known), ", ".join(sorted(known))
            raise ConfigError(f"unknown option in a {scheme}:// URL{near}; its options are {names}")
        *above, last = known[name].split(".")
        target = arguments
        for each in above:
            target = target.setdefault(each, {})
        value = parse_option(name, text, _KINDS.get(name, str))
        if last != "token":
            target[last] = value
        elif value:
            target[last] = "anon"
    return arguments
