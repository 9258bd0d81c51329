"""Lists a bucket of S3 by requests that botocore signs and our web client sends.

s3fs lists by a client that takes 0.3 s of processor time to import and to make, before the first
batch. obstore does not list exactly: it takes the page of a gateway for an empty listing and a
listing without an end for a whole one, lists ``a/`` as ``a``, and fails if there is any key such as
``a//b``.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any, Final
from urllib.parse import quote, unquote_plus, urlencode

from data_stack.io.storage_connectors.object_store.listed_object import (
    checked_name,
    decoded_name,
    listed_object,
    parse_iso_time,
)
from data_stack.io.storage_connectors.object_store.object_client import ListingPage
from data_stack.io.storage_connectors.object_store.refused_requests import (
    refused_request,
)
from data_stack.io.storage_connectors.object_store.s3 import (
    REGION_HEADER,
    next_token_of,
)
from data_stack.io.storage_connectors.object_store.s3_place import S3Place
from data_stack.io.storage_connectors.object_store.web_requests import (
    RedirectedError,
    SignedRequest,
    get,
)
from data_stack.io.storage_connectors.object_store.xml_listing import (
    MAX_PAGE_BYTES,
    name_of,
    parse_xml,
    read_refusal,
    text_in,
)

_ROOT: Final = "ListBucketResult"


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
        try:
            return get(
                self._sign(url),
                timeout_seconds=self._timeout_seconds,
                max_bytes=MAX_PAGE_BYTES,
                read_refusal=read_refusal,
            )
        except RedirectedError as error:
            if REGION_HEADER not in error.headers:
                raise
        raise refused_request(301, "PermanentRedirect", "the bucket is elsewhere")

    def _sign(self, url: str) -> SignedRequest:
        """Return a request that is signed, unless it is anonymous."""
        if self._place.find_credentials is None:
            return SignedRequest(url, {})
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest

        request = AWSRequest(method="GET", url=url)
        credentials = self._place.find_credentials()
        S3SigV4Auth(credentials, "s3", self._place.region).add_auth(request)
        headers = {name: str(value) for name, value in request.headers.items()}
        return SignedRequest(url, headers, secrets=self._place.secrets())


def parse_page(body: bytes) -> ListingPage:
    """Return the page in the body of an answer.

    Raises:
        WrongAnswerError: it is no page of a listing.
    """
    root = parse_xml(body, _ROOT)
    is_encoded = text_in(root, "EncodingType") == "url"
    objects = []
    folders = []
    for element in root:
        name = name_of(element)
        if name == "Contents":
            objects.append(_parse_object(element, is_encoded=is_encoded))
        elif name == "CommonPrefixes":
            prefix = _decode(text_in(element, "Prefix"), is_encoded=is_encoded)
            folders.append(checked_name(prefix))
    truncation = text_in(root, "IsTruncated")
    is_truncated = None if truncation is None else truncation.lower() == "true"
    token = next_token_of(is_truncated, text_in(root, "NextContinuationToken"))
    return ListingPage(objects, folders, token)


def _parse_object(element: ElementTree.Element, *, is_encoded: bool) -> dict[str, Any]:
    """Return an object of a listing.

    Raises:
        WrongAnswerError: it has no key, or its size or time is malformed.
    """
    return listed_object(
        _decode(text_in(element, "Key"), is_encoded=is_encoded),
        size=text_in(element, "Size"),
        etag=text_in(element, "ETag"),
        modified=text_in(element, "LastModified"),
        parse_time=parse_iso_time,
    )


def _decode(text: str | None, *, is_encoded: bool) -> str | None:
    """Return a key or the beginning of keys; None if there is none."""
    if text is None or not is_encoded:
        return text
    return decoded_name(text, unquote_plus)
