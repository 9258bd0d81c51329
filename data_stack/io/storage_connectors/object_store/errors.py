"""Our errors for the exceptions of file systems and their clients, with redacted messages."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from data_stack.exception import (
    DataStackError,
    StorageError,
    StorageFullError,
    StorageUnavailableError,
)
from data_stack.io.redaction import hide, printable
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


_LOG_IN_AGAIN: Final = "The credentials have expired or are not valid: log in again, or renew them."
_ASK_FOR_RIGHTS: Final = "Check the credentials and what they allow."
#: What to do, by the code of S3: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
_ADVICE: Final = {
    "ExpiredToken": _LOG_IN_AGAIN,
    "ExpiredTokenException": _LOG_IN_AGAIN,
    "InvalidToken": _LOG_IN_AGAIN,
    "TokenRefreshRequired": _LOG_IN_AGAIN,
    "InvalidAccessKeyId": _LOG_IN_AGAIN,
    "RequestTimeTooSkewed": "Set the clock of this machine: its time differs too much from that of the store.",
    "RequestExpired": "Set the clock of this machine: its time differs too much from that of the store.",
    "SignatureDoesNotMatch": "Check the secret key, and the region and URL of the store.",
    "PermanentRedirect": "The bucket is in another region: name it (region=… in the URL).",
    "AuthorizationHeaderMalformed": "The bucket is in another region: name it (region=… in the URL).",
}
_DENIED: Final = {"AccessDenied", "AllAccessDisabled", "403"}


class AccessRefusedError(StorageError):
    """The store does not let these credentials do that, or does not say whether there is anything."""


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
    code = code_of(error)
    reason = reason_of(error, options)
    if code and not code.isdigit() and not isinstance(error, DataStackError):
        # The name of a Python exception says less than the code of the store.
        reason = f"{code}: {reason.removeprefix(type(error).__name__).removeprefix(': ')}"
    problem = f"{problem}: {reason}"
    if number in FULL_ERRORS:
        return StorageFullError(
            f"{problem}. Nothing was published; make room and try again.", number
        )
    if seconds is not None:
        return StorageUnavailableError(
            f"{problem} (within {seconds:g} s). Check the network and the server, and try again.",
            number,
        )
    problem = problem.removesuffix(".")
    is_refused = isinstance(error, PermissionError)
    is_login = is_refused or re.search("Credential|Authentication", type(error).__name__)
    if is_login:
        number = number or errno.EACCES
    if code in _ADVICE:
        return StorageError(f"{problem}. {_ADVICE[code]}", number)
    if code in _DENIED or is_refused:
        return AccessRefusedError(f"{problem}. {_ASK_FOR_RIGHTS}", number)
    if is_login:
        return StorageError(f"{problem}. {_ASK_FOR_RIGHTS}", number)
    return StorageError(f"{problem}. The store is as it was.", number)


def code_of(error: BaseException) -> str:
    """The code of S3 in an exception, such as ``AccessDenied``; the status if the answer had no body; empty for other stores."""
    cause: BaseException | None = error
    while cause is not None:
        response = getattr(cause, "response", None)
        if isinstance(response, Mapping):
            return str((response.get("Error") or {}).get("Code", ""))
        cause = cause.__cause__
    return ""


def reason_of(error: BaseException, options: Mapping[str, Any]) -> str:
    """The message of an exception without secrets; ``options`` are those of the file system."""
    text = re.sub(r"//[^/@\s]*@", "//…@", printable(str(error).split("\n")[0]))
    text = re.sub(r"\?\S+", "?…", text)
    for secret in _secrets_in(options):
        text = hide(text, secret, "…")
    if isinstance(error, DataStackError):
        return text[:300]  # one of ours says all
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
