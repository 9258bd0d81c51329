"""Lists and describes objects of Google Cloud Storage by requests of our web client.

gcsfs takes any answer without objects for an empty listing. obstore lists by the XML API, as
inexactly as it lists S3, and names versions by other ETags than the JSON API.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote, urlencode

from data_stack.io.storage_connectors.object_store.google_answers import (
    DESCRIPTION_FIELDS,
    page_parameters,
    parse_description,
    parse_page,
)
from data_stack.io.storage_connectors.object_store.google_login import GoogleLogin
from data_stack.io.storage_connectors.object_store.object_client import ListingPage
from data_stack.io.storage_connectors.object_store.refused_requests import (
    RefusedRequestError,
    refusal_in_json,
)
from data_stack.io.storage_connectors.object_store.remote_file import RemoteFile
from data_stack.io.storage_connectors.object_store.s3 import (
    MISSING_BUCKET,
    WrongAnswerError,
    describe_404,
    refusal_of,
)
from data_stack.io.storage_connectors.object_store.web_requests import SignedRequest, get
from data_stack.util.untrusted_text import MAX_BYTES

#: The code for an object or bucket that does not exist.
_MISSING_CODE: Final = "notFound"


class GoogleLister:
    """Requests pages of the list of a bucket, and descriptions. Threads may share a lister.

    Args:
        base_url: the URL of the JSON API, which ends with a slash.
        bucket: the name of the bucket.
        login: the login.
        timeout_seconds: the limit of a request.
    """

    _bucket_url: str
    _login: GoogleLogin
    _timeout_seconds: float

    def __init__(
        self, base_url: str, bucket: str, login: GoogleLogin, timeout_seconds: float
    ) -> None:
        self._bucket_url = f"{base_url}b/{quote(bucket, safe='')}/o"
        self._login = login
        self._timeout_seconds = timeout_seconds

    def list_page(self, prefix: str, delimiter: str, token: str | None) -> ListingPage:
        """Request a page; see :meth:`.ObjectClient.list_page`."""
        parameters = page_parameters(prefix, delimiter, token)
        query = urlencode(parameters, quote_via=quote, safe="-_.~")
        try:
            return parse_page(self._request(f"{self._bucket_url}?{query}"))
        except RefusedRequestError as error:
            if refusal_of(error).code != _MISSING_CODE:
                raise
        raise WrongAnswerError(MISSING_BUCKET)

    def describe(self, path: str, key: str) -> RemoteFile:
        """Return the description of an object.

        Args:
            path: the path of the file.
            key: the key of the object.

        Raises:
            FileNotFoundError: the object, or its bucket, does not exist.
        """
        url = f"{self._bucket_url}/{quote(key, safe='')}?fields={DESCRIPTION_FIELDS}"
        try:
            body = self._request(url)
        except RefusedRequestError as error:
            if refusal_of(error).code != _MISSING_CODE:
                raise
            raise FileNotFoundError("there is no such object") from None
        return parse_description(body, path)

    def _request(self, url: str) -> bytes:
        """Return the body of the answer to a GET request.

        Raises:
            RefusedRequestError: the server refused it.
            WrongAnswerError: the answer is not one of Google.
            ConnectionError: the server, or that of the login, did not answer.
            CredentialsError: the login is refused.
        """
        headers = self._login.headers()
        return get(
            SignedRequest(url, headers, self._login.secrets()),
            timeout_seconds=self._timeout_seconds,
            max_bytes=MAX_BYTES,
            read_refusal=_read_refusal,
        )


def _read_refusal(status: int, body: str, secrets: Sequence[str]) -> RefusedRequestError:
    """Return the exception for an answer that is an error.

    Args:
        status: the status of HTTP.
        body: the body of the answer.
        secrets: the texts that were sent, and that the exception must not show.

    Raises:
        WrongAnswerError: it comes from a gateway, not from Google.
    """
    refusal = refusal_in_json(status, body, secrets)
    if status == 404 and refusal_of(refusal).code != _MISSING_CODE:
        raise WrongAnswerError(describe_404(refusal_of(refusal)))
    return refusal
