"""Turns the exceptions of obstore into those that the other clients raise.

obstore puts the status and the body of an answer into the text of an exception, so they are read
from there. The text itself is not shown: it is long, and may hold what a stranger sent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import obstore.exceptions

from data_stack.io.storage_connectors.object_store.obstore_stores import REFUSING_PROXY
from data_stack.io.storage_connectors.object_store.refused_requests import (
    CredentialsError,
    RefusedRequestError,
    refusal_in_xml,
)
from data_stack.io.storage_connectors.object_store.s3 import (
    OtherVersionError,
    WrongAnswerError,
    describe_404,
    refusal_of,
)

#: What the message of an exception ends with.
_DEBUG_MARK: Final = "\n\nDebug source:\n"
_STATUS: Final = re.compile(r"Server returned non-2xx status code: (\d{3})\b")
#: What is wrong with a connection, in the innermost exception.
_CONNECTION_CAUSE: Final = re.compile(r'(?:message|error): "([^"]{1,200})"')
_CERTIFICATE_CAUSE: Final = re.compile(r"InvalidCertificate\(\s*(\w+)")
#: Codes of the stores for an object that does not exist.
_MISSING_OBJECT_CODES: Final = {"NoSuchKey", "NoSuchVersion", "BlobNotFound"}
#: Codes for a conflict because the object exists, or is written by another client at this moment.
_EXISTING_OBJECT_CODES: Final = {"BlobAlreadyExists", "ConditionalRequestConflict"}
_ODD_SERVER_ADVICE: Final = "if the server is right, read it by another client (client=fsspec)"


class WholeObjectError(Exception):
    """A server answered a request for a range with status 200."""


def translate(error: Exception, secrets: Sequence[str], *, has_body: bool = True) -> Exception:
    """Return the exception to raise for one of obstore.

    Args:
        error: the exception.
        secrets: the texts that were sent, and that the returned exception must not show.
        has_body: whether the answer could say why it is 404. An answer to HEAD cannot.
    """
    text, _, debug_text = str(error).partition(_DEBUG_MARK)
    status = _STATUS.search(text)
    is_conflict = status is not None and int(status[1]) == 409
    if isinstance(error, obstore.exceptions.AlreadyExistsError) and not is_conflict:
        return FileExistsError("the object exists")
    if isinstance(error, obstore.exceptions.PreconditionError):
        return OtherVersionError("another ETag")
    if status is not None:
        return _refusal(int(status[1]), text[status.end() :], secrets, has_body=has_body)
    if isinstance(error, FileNotFoundError):
        return error
    if isinstance(error, obstore.exceptions.UnauthenticatedError):
        return CredentialsError(text.rpartition("provider: ")[2])
    if "source: NotPartial" in debug_text:
        return WholeObjectError("the server does not support ranges")
    if "kind: Redirect" in debug_text and "BadScheme" in debug_text:
        return WrongAnswerError(
            "the server redirects to a URL that is not encrypted; that is not followed"
        )
    if _is_refused_redirect(text, debug_text):
        return WrongAnswerError("the server redirects to another host; that is not followed")
    if "BareRedirect" in debug_text:
        return RefusedRequestError(301, "PermanentRedirect", "the bucket is elsewhere")
    if "HTTP error" in text:
        return _connection_error(debug_text)
    reason = text.partition(" error: ")[2] or text
    return WrongAnswerError(f"the server answers something else ({reason}); {_ODD_SERVER_ADVICE}")


def _is_refused_redirect(text: str, debug_text: str) -> bool:
    """Return whether a request was redirected to the proxy that refuses all connections."""
    is_endpoint = f"//{REFUSING_PROXY}/" in text
    return f"{REFUSING_PROXY}," in debug_text and not is_endpoint


def _refusal(status: int, body: str, secrets: Sequence[str], *, has_body: bool) -> Exception:
    """Return the exception for an answer that is an error."""
    refusal = refusal_in_xml(status, body, secrets)
    code = refusal_of(refusal).code
    if status == 404:
        if not has_body or code in _MISSING_OBJECT_CODES:
            return FileNotFoundError("there is no such object")
        return WrongAnswerError(describe_404(refusal_of(refusal)))
    if status == 409 and code in _EXISTING_OBJECT_CODES:
        return FileExistsError("the object exists")
    return refusal


def _connection_error(debug_text: str) -> Exception:
    """Return the exception for a server that did not answer, or not to the end."""
    if "kind: Timeout" in debug_text:
        return TimeoutError("the server did not answer in time")
    certificate_cause = _CERTIFICATE_CAUSE.search(debug_text)
    if certificate_cause is not None:
        return ConnectionError(f"the certificate of the server is invalid: {certificate_cause[1]}")
    causes = _CONNECTION_CAUSE.findall(debug_text)
    if causes:
        return ConnectionError(causes[-1])
    if "IncompleteBody" in debug_text or "kind: Interrupted" in debug_text:
        return ConnectionError("the connection was cut before all bytes had arrived")
    return ConnectionError("the server did not answer as HTTP requires")
