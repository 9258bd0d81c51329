"""Our errors for the exceptions of file systems and their clients, with redacted messages."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from data_stack.exception import StorageError, StorageFullError, StorageUnavailableError
from data_stack.io.storage_errors import FULL_ERRORS

#: Besides those of ConnectionError and TimeoutError. 121 is EREMOTEIO, which other systems than Linux do not name.
_BUSY: Final = {
    errno.EBUSY,
    errno.EAGAIN,
    121,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.ENOTCONN,
}
#: Exceptions of botocore, aiohttp, azure and paramiko for a server that did not answer.
_UNREACHABLE: Final = {
    "HTTPClientError", "ClientError", "IncompleteRead", "ServiceRequestError", "ServiceResponseError", "SSHException", "EOFError",
    "ConnectionError", "TimeoutError", "TransferEncodingError", "HTTPException", "ProxyError", "NoValidConnectionsError",
    "gaierror",
}  # fmt: skip
#: Subclasses of those for a server that did answer (paramiko).
_REFUSED: Final = {"AuthenticationException", "BadHostKeyException", "IncompatiblePeer"}


def is_unreachable(error: BaseException) -> bool:
    """Whether a retry may help: the server did not answer, disconnected, or is overloaded."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in _BUSY:
            return True
        response = getattr(seen, "response", None)
        if isinstance(response, Mapping):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        else:
            status = (
                getattr(seen, "status", None)
                or getattr(seen, "status_code", None)
                or getattr(seen, "code", None)
            )
        if isinstance(status, int):
            return status in (408, 429) or status >= 500
        names = {each.__name__ for each in type(seen).__mro__}
        if _REFUSED & names:
            return False
        if _UNREACHABLE & names:
            return True
        seen = seen.__cause__
    return False


def explain(
    problem: str, error: Exception, options: Mapping[str, Any], seconds: float | None
) -> StorageError:
    """The error to raise for an exception; ``seconds`` within which the store did not answer, or None."""
    number = error.errno if isinstance(error, OSError) else None
    problem = f"{problem}: {reason_of(error, options)}"
    if number in FULL_ERRORS:
        return StorageFullError(
            f"{problem}. Nothing was published; make room and try again.", number
        )
    if seconds is not None:
        return StorageUnavailableError(
            f"{problem} (within {seconds:g} s). Check the network and the server, and try again.",
            number,
        )
    is_login = isinstance(error, PermissionError) or re.search(
        "Credential|Authentication", type(error).__name__
    )
    if is_login:
        advice = "Check the credentials and what they allow."
        return StorageError(f"{problem}. {advice}", number or errno.EACCES)
    return StorageError(f"{problem}. The store is as it was.", number)


def reason_of(error: BaseException, options: Mapping[str, Any]) -> str:
    """The message of an exception without secrets; ``options`` are those of the file system."""
    text = re.sub(r"//[^/@\s]*@", "//…@", str(error).split("\n")[0])
    text = re.sub(r"\?\S+", "?…", text)
    for secret in _secrets_in(options):
        text = text.replace(secret, "…")
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def _secrets_in(options: Any) -> Iterator[str]:
    """All texts among options that an error must not show."""
    if isinstance(options, Mapping):
        for key, value in options.items():
            if key not in ("endpoint_url", "region_name", "protocol", "host"):
                yield from _secrets_in(value)
    elif isinstance(options, (list, tuple)):
        for value in options:
            yield from _secrets_in(value)
    elif isinstance(options, str) and len(options) > 3:
        yield options
