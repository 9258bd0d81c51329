"""Turns the exceptions of file systems and their clients into errors without secrets."""

from __future__ import annotations

import errno
import os
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
from data_stack.io.storage_connectors.object_store.login_files import describe_missing_files
from data_stack.io.storage_connectors.object_store.s3 import refusal_of
from data_stack.io.storage_errors import FULL_ERRORS
from data_stack.io.web.requested_pause import requested_pause_seconds

#: EREMOTEIO, which other systems than Linux do not name.
_REMOTE_IO_ERROR: Final = 121
#: The errors of a server that may answer later, besides those of ConnectionError and TimeoutError.
_BUSY_ERRORS: Final = {
    errno.EBUSY,
    errno.EAGAIN,
    _REMOTE_IO_ERROR,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.ENOTCONN,
}
#: The statuses of a server that received too many requests.
_BUSY_STATUSES: Final = (429, 503)
#: The exceptions of botocore, aiohttp, azure and paramiko for a server that did not answer.
_UNREACHABLE_NAMES: Final = {
    "HTTPClientError",
    "ClientError",
    "IncompleteRead",
    "ServiceRequestError",
    "ServiceResponseError",
    "SSHException",
    "EOFError",
    "ConnectionError",
    "TimeoutError",
    "TransferEncodingError",
    "HTTPException",
    "ProxyError",
    "NoValidConnectionsError",
    "gaierror",
}
#: Subclasses of those for a server that did answer (paramiko).
_REFUSED_NAMES: Final = {"AuthenticationException", "BadHostKeyException", "IncompatiblePeer"}

_LOG_IN_AGAIN: Final = "The credentials have expired or are not valid: log in again, or renew them."
_SET_THE_CLOCK: Final = (
    "Set the clock of this machine: its time differs too much from that of the store."
)
_NAME_THE_REGION: Final = "The bucket is in another region: name it (region=… in the URL)."
_ASK_FOR_RIGHTS: Final = "Check the credentials and what they allow."
#: What to do, by the code of S3:
#: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
_ADVICE: Final = {
    "ExpiredToken": _LOG_IN_AGAIN,
    "ExpiredTokenException": _LOG_IN_AGAIN,
    "InvalidToken": _LOG_IN_AGAIN,
    "TokenRefreshRequired": _LOG_IN_AGAIN,
    "InvalidAccessKeyId": _LOG_IN_AGAIN,
    "RequestTimeTooSkewed": _SET_THE_CLOCK,
    "RequestExpired": _SET_THE_CLOCK,
    "SignatureDoesNotMatch": "Check the secret key, and the region and URL of the store.",
    "PermanentRedirect": _NAME_THE_REGION,
    "AuthorizationHeaderMalformed": _NAME_THE_REGION,
}
#: What botocore, also within obstore, and our login to Azure say if no login is found.
_NO_LOGIN: Final = ("Unable to locate credentials", "no identity of Azure logs in")
_LOG_IN_OR_BE_ANONYMOUS: Final = (
    "Log in. What is public is read without: anonymous=true in the URL, anon=True in Python."
)
_DENIED_CODES: Final = {"AccessDenied", "AllAccessDisabled", "403"}

#: Options of file systems that are no secrets.
_PUBLIC_OPTIONS: Final = ("endpoint_url", "region_name", "profile", "protocol", "host")
#: The variables that hold what a client sends, or a server knows, and nobody else may see.
_SECRET_VARIABLES: Final = (
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_CLIENT_SECRET",
    "AZURE_STORAGE_CONNECTION_STRING",
    "AZURE_STORAGE_SAS_TOKEN",
)
_MIN_SECRET_LENGTH: Final = 4
_MAX_REASON_LENGTH: Final = 300


class AccessRefusedError(StorageError):
    """The store refuses these credentials, or does not say whether there is anything."""


def is_unreachable(error: BaseException) -> bool:
    """Return whether a retry may help.

    It may if the server did not answer, disconnected, or is overloaded.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in _BUSY_ERRORS:
            return True
        status = _status_of(cause)
        if status is not None:
            return status in (408, 429) or status >= 500
        names = {base.__name__ for base in type(cause).__mro__}
        if _REFUSED_NAMES & names:
            return False
        if _UNREACHABLE_NAMES & names:
            return True
        cause = cause.__cause__
    return False


def is_busy(error: BaseException) -> bool:
    """Return whether a server received too many requests."""
    cause: BaseException | None = error
    while cause is not None:
        if _status_of(cause) in _BUSY_STATUSES:
            return True
        cause = cause.__cause__
    return False


def requested_pause_of(error: BaseException) -> float | None:
    """Return how many seconds a server asked to wait; None if it did not, or nobody knows.

    obstore and gcsfs do not tell.
    """
    cause: BaseException | None = error
    while cause is not None:
        pause_seconds = getattr(cause, "retry_after", None)
        if isinstance(pause_seconds, float):
            return pause_seconds
        cause = cause.__cause__
    return requested_pause_seconds(refusal_of(error).headers)


def explain(
    problem: str, error: Exception, options: Mapping[str, Any], waited_seconds: float | None
) -> StorageError:
    """Return the error to raise for an exception of a client.

    Args:
        problem: what failed: ``"could not read 'a' in s3://bucket"``.
        error: the exception.
        options: the arguments of the file system, which may hold secrets.
        waited_seconds: the limit within which the store did not answer; None if it did.
    """
    number = error.errno if isinstance(error, OSError) else None
    code = refusal_of(error).code
    what_failed = f"{problem}: {_reason_with_code(error, code, options)}"
    if number in FULL_ERRORS:
        return StorageFullError(
            f"{what_failed}. Nothing was published; make room and try again.", number
        )
    if waited_seconds is not None:
        requested_seconds = requested_pause_of(error)
        if requested_seconds is not None and requested_seconds > waited_seconds:
            return StorageUnavailableError(
                f"{what_failed}; it asks to wait {requested_seconds:,.0f} s. Try again then, or "
                "set a longer limit (timeoutSeconds=…).",
                number,
            )
        return StorageUnavailableError(
            f"{what_failed} (within {waited_seconds:g} s). "
            "Check the network and the server, and try again.",
            number,
        )

    what_failed = what_failed.removesuffix(".")
    is_refused = isinstance(error, PermissionError) or _is_refused_by_gcsfs(error)
    is_login = re.search("Credential|Authentication", type(error).__name__) is not None
    if is_refused or is_login:
        number = number or errno.EACCES
    # The code of S3 is more exact than the class of the exception.
    if code in _ADVICE:
        return StorageError(f"{what_failed}. {_ADVICE[code]}", number)
    if is_refused or code in _DENIED_CODES:
        return AccessRefusedError(f"{what_failed}. {_ASK_FOR_RIGHTS}", number)
    if is_login:
        missing_files = describe_missing_files(os.environ)
        if missing_files:
            what_failed = f"{what_failed}; {missing_files}"
        elif any(text in what_failed for text in _NO_LOGIN):
            return StorageError(f"{what_failed}. {_LOG_IN_OR_BE_ANONYMOUS}", number)
        return StorageError(f"{what_failed}. {_ASK_FOR_RIGHTS}", number)
    return StorageError(f"{what_failed}. The store is as it was.", number)


def _is_refused_by_gcsfs(error: Exception) -> bool:
    """Return whether an exception is that of gcsfs for the status 401 or 403."""
    if type(error).__module__.startswith("gcsfs."):
        return _status_of(error) in (401, 403)
    return type(error) is OSError and str(error).startswith("Forbidden: ")


def reason_of(error: BaseException, options: Mapping[str, Any]) -> str:
    """Return the message of an exception without secrets.

    Args:
        error: the exception.
        options: the arguments of the file system, which may hold secrets.
    """
    first_line = printable(str(error).split("\n")[0])
    text = re.sub(r"//[^/@\s]*@", "//…@", first_line)
    text = re.sub(r"\?\S+", "?…", text)
    secrets_of_environment = [os.environ.get(variable) for variable in _SECRET_VARIABLES]
    for secret in _secrets_in([options, secrets_of_environment]):
        text = hide(text, secret, "…")
    text = text[:_MAX_REASON_LENGTH]
    if isinstance(error, DataStackError):
        # The message of an error of ours says all.
        return text
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def _reason_with_code(error: Exception, code: str, options: Mapping[str, Any]) -> str:
    """Return the message of an exception, with the code of S3 in place of the Python name."""
    reason = reason_of(error, options)
    is_name = code != "" and not code.isdigit()
    if not is_name or isinstance(error, DataStackError):
        return reason
    message = reason.removeprefix(type(error).__name__).removeprefix(": ")
    return f"{code}: {message}"


def _status_of(error: BaseException) -> int | None:
    """Return the HTTP status in an exception of a client; None if it has none."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        status = (
            getattr(error, "status", None)
            or getattr(error, "status_code", None)
            or getattr(error, "code", None)
        )
    return status if isinstance(status, int) else None


def _secrets_in(options: Any) -> Iterator[str]:
    """Yield all texts among options that an error must not show."""
    if isinstance(options, Mapping):
        for name, value in options.items():
            if name not in _PUBLIC_OPTIONS:
                yield from _secrets_in(value)
    elif isinstance(options, (list, tuple)):
        for value in options:
            yield from _secrets_in(value)
    elif isinstance(options, str) and len(options) >= _MIN_SECRET_LENGTH:
        yield options
