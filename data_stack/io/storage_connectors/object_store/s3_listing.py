"""Lists a bucket of S3 by requests that botocore signs and our web client sends.

s3fs lists by a client that takes 0.3 s of processor time to import and to make, before the first
batch. obstore does not list exactly: it takes the page of a gateway for an empty listing and a
listing without an end for a whole one, lists ``a/`` as ``a``, and fails if there is any key such as
``a//b``.
"""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, unquote_plus, urlencode

from data_stack.io.storage_connectors.object_store.object_client import ListingPage
from data_stack.io.storage_connectors.object_store.refused_requests import (
    refusal_in_xml,
    refused_request,
)
from data_stack.io.storage_connectors.object_store.s3 import (
    NO_LISTING,
    REDIRECTED,
    REGION_HEADER,
    WrongAnswerError,
    describe_404,
    next_token_of,
    refusal_of,
)
from data_stack.io.storage_connectors.object_store.s3_place import S3Place
from data_stack.io.web import Exchange, WebError

#: A page of S3 has at most 1,000 keys of 1,024 bytes, each of which may be written as ``%00``, and
#: 20,000 tags. Other servers send larger pages.
_MAX_PAGE_BYTES: Final = 16 << 20
_MAX_TAGS: Final = 400_000
_MAX_REFUSAL_BYTES: Final = 64 << 10
_ROOT: Final = "ListBucketResult"
#: What no listing holds: a definition of entities, which may expand to any size.
_DOCUMENT_TYPE: Final = re.compile(rb"<!\s*DOCTYPE", re.IGNORECASE)


class S3Lister:
    """Requests pages of the list of a bucket. Threads may share a lister.

    Args:
        place: the bucket.
        timeout_seconds: the limit of a request.
    """

    _place: S3Place
    _timeout_seconds: float

    def __init__(self, place: S3Place, timeout_seconds: float) -> None:
        self._place = place
        self._timeout_seconds = timeout_seconds

    def list_page(self, prefix: str, delimiter: str, token: str | None) -> ListingPage:
        """Request a page; see :meth:`.ObjectClient.list_page`.

        https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html
        """
        # Names in order, as the signature wants them.
        parameters = {"delimiter": delimiter, "encoding-type": "url", "list-type": "2"}
        if token is not None:
            parameters["continuation-token"] = token
        parameters["prefix"] = prefix
        query = urlencode(sorted(parameters.items()), quote_via=quote, safe="-_.~")
        return parse_page(self._request(f"{self._place.url}?{query}"))

    def _request(self, url: str) -> bytes:
        """Return the body of the answer to a GET request.

        Raises:
            RefusedRequestError: the server refused it.
            WrongAnswerError: the bucket does not exist, or the answer is not one of S3.
            ConnectionError: the server did not answer.
        """
        exchange = Exchange(
            url,
            own_headers=self._sign(url),
            timeout_seconds=self._timeout_seconds,
            deadline=time.monotonic() + self._timeout_seconds,
            max_redirects=0,
        )
        try:
            with exchange:
                if exchange.status == 200:
                    return exchange.read(_MAX_PAGE_BYTES)
                body = exchange.read(_MAX_REFUSAL_BYTES).decode(errors="replace")
        except WebError as error:
            raise _translate(error, exchange.redirects) from None
        refusal = refusal_in_xml(exchange.status, body)
        if exchange.status == 404:
            raise WrongAnswerError(describe_404(refusal_of(refusal)))
        raise refusal

    def _sign(self, url: str) -> dict[str, str]:
        """Return the headers that sign a request; none if it is anonymous."""
        if self._place.find_credentials is None:
            return {}
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest

        request = AWSRequest(method="GET", url=url)
        credentials = self._place.find_credentials()
        S3SigV4Auth(credentials, "s3", self._place.region).add_auth(request)
        return {name: str(value) for name, value in request.headers.items()}


def parse_page(body: bytes) -> ListingPage:
    """Return the page in the body of an answer.

    Raises:
        WrongAnswerError: it is no page of a listing.
    """
    # A text with NUL is UTF-16, in which the search finds nothing.
    is_hostile = b"\0" in body or _DOCUMENT_TYPE.search(body) is not None
    if is_hostile or body.count(b"<") > _MAX_TAGS:
        raise WrongAnswerError(NO_LISTING)
    try:
        root = ElementTree.fromstring(body)  # noqa: S314  # it defines no entities, and is small
    except ElementTree.ParseError:
        raise WrongAnswerError(NO_LISTING) from None
    if _name_of(root) != _ROOT:
        raise WrongAnswerError(NO_LISTING)

    is_encoded = _text_in(root, "EncodingType") == "url"
    objects = []
    folders = []
    for element in root:
        name = _name_of(element)
        if name == "Contents":
            objects.append(_parse_object(element, is_encoded=is_encoded))
        elif name == "CommonPrefixes":
            folders.append(_parse_key(_text_in(element, "Prefix"), is_encoded=is_encoded))
    truncation = _text_in(root, "IsTruncated")
    is_truncated = None if truncation is None else truncation.lower() == "true"
    token = next_token_of(is_truncated, _text_in(root, "NextContinuationToken"))
    return ListingPage(objects, folders, token)


def _parse_object(element: ElementTree.Element, *, is_encoded: bool) -> dict[str, Any]:
    """Return an object of a listing.

    Raises:
        WrongAnswerError: its size or time is malformed.
    """
    key = _parse_key(_text_in(element, "Key"), is_encoded=is_encoded)
    modified = _text_in(element, "LastModified")
    listed: dict[str, Any] = {"Key": key, "ETag": _text_in(element, "ETag") or ""}
    try:
        listed["Size"] = int(_text_in(element, "Size") or "")
        if modified:
            listed["LastModified"] = datetime.fromisoformat(modified.replace("Z", "+00:00"))
    except ValueError:
        raise WrongAnswerError(
            f"the server lists {key!r:.200} without its size, or with a malformed time"
        ) from None
    return listed


def _parse_key(text: str | None, *, is_encoded: bool) -> str:
    """Return a key.

    Raises:
        WrongAnswerError: there is none.
    """
    if not text:
        raise WrongAnswerError("the server lists an object without a key")
    return unquote_plus(text) if is_encoded else text


def _text_in(element: ElementTree.Element, name: str) -> str | None:
    """Return the text of the first child with a name; None if there is none."""
    for child in element:
        if _name_of(child) == name:
            return child.text or ""
    return None


def _name_of(element: ElementTree.Element) -> str:
    """Return the name of an element without its namespace, which not every server writes."""
    return element.tag.rpartition("}")[2]


def _translate(error: WebError, redirects: Sequence[Mapping[str, str]]) -> Exception:
    """Return the exception to raise for one of our web client.

    Args:
        error: the exception.
        redirects: the headers of the redirect that was not followed, if it was one.
    """
    if redirects:
        if REGION_HEADER in redirects[0]:
            return refused_request(301, "PermanentRedirect", "the bucket is elsewhere")
        return WrongAnswerError(REDIRECTED)
    if error.status is not None and error.transient:
        return refused_request(
            error.status, "", f"the server {error.reason}", retry_after=error.retry_after
        )
    if error.transient:
        return ConnectionError(error.reason)
    return WrongAnswerError(f"the server {error.reason}")
