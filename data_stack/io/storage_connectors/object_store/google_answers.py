"""Parses what the JSON API of Google Cloud Storage answers to requests for objects."""

from __future__ import annotations

from typing import Any, Final

from data_stack.io.storage_connectors.object_store.listed_object import (
    checked_name,
    listed_object,
    parse_iso_time,
)
from data_stack.io.storage_connectors.object_store.object_client import ListingPage
from data_stack.io.storage_connectors.object_store.remote_file import RemoteFile
from data_stack.io.storage_connectors.object_store.s3 import NO_LISTING, WrongAnswerError
from data_stack.io.web.json_shape import check_shape
from data_stack.util.untrusted_text import parse_json

#: The largest page that Google sends.
_PAGE_OBJECTS: Final = 5_000
_LISTING_KIND: Final = "storage#objects"
_OBJECT_KIND: Final = "storage#object"
_NO_DESCRIPTION: Final = (
    "the server answers a request for a description with something else, perhaps a page of a "
    "gateway"
)

_OBJECT_FIELDS: Final = "name,size,updated,etag,generation"
#: What a description is asked for.
DESCRIPTION_FIELDS: Final = f"kind,{_OBJECT_FIELDS}"
#: https://cloud.google.com/storage/docs/json_api/v1/objects#resource
_OBJECT_SHAPE: Final = {
    "name": str,
    "size": str,
    "updated?": str,
    "etag?": str,
    "generation?": str,
}
_PAGE_SHAPE: Final = {
    "items?": [_OBJECT_SHAPE],
    "prefixes?": [str],
    "nextPageToken?": str,
}


def page_parameters(prefix: str, delimiter: str, token: str | None) -> dict[str, str]:
    """Return the parameters that a page is requested with.

    https://cloud.google.com/storage/docs/json_api/v1/objects/list
    """
    parameters = {
        "prefix": prefix,
        "delimiter": delimiter,
        "maxResults": str(_PAGE_OBJECTS),
        "fields": f"kind,nextPageToken,prefixes,items({_OBJECT_FIELDS})",
    }
    if token is not None:
        parameters["pageToken"] = token
    return {name: value for name, value in parameters.items() if value}


def parse_page(body: bytes) -> ListingPage:
    """Return the page in the body of an answer.

    Raises:
        WrongAnswerError: it is no page of a listing.
    """
    page = _parse(body, _LISTING_KIND, _PAGE_SHAPE)
    if page is None:
        raise WrongAnswerError(NO_LISTING)
    objects = [_parse_object(item) for item in page.get("items") or ()]
    folders = [checked_name(prefix) for prefix in page.get("prefixes") or ()]
    return ListingPage(objects, folders, page.get("nextPageToken") or None)


def parse_description(body: bytes, path: str) -> RemoteFile:
    """Return the description of an object in the body of an answer.

    Args:
        body: the body.
        path: the path of the file.

    Raises:
        WrongAnswerError: it describes no object.
    """
    description = _parse(body, _OBJECT_KIND, _OBJECT_SHAPE)
    if description is None:
        raise WrongAnswerError(_NO_DESCRIPTION)
    listed = _parse_object(description)
    return RemoteFile.of(path, {**listed, "size": listed["Size"]})


def _parse(body: bytes, kind: str, shape: Any) -> dict[str, Any] | None:
    """Return the JSON document in an answer; None if it is not of this kind and shape.

    An empty page has nothing but its kind that tells it from the answer of a gateway.
    """
    try:
        document = parse_json(body)
        check_shape(document, {"kind": str, **shape})
    except ValueError:
        return None
    if document["kind"] != kind:
        return None
    checked_document: dict[str, Any] = document
    return checked_document


def _parse_object(item: dict[str, Any]) -> dict[str, Any]:
    """Return an object of a listing.

    Raises:
        WrongAnswerError: it has no key, or its size or time is malformed.
    """
    listed = listed_object(
        item["name"],
        size=item["size"],
        etag=item.get("etag"),
        modified=item.get("updated"),
        parse_time=parse_iso_time,
    )
    return {**listed, "generation": item.get("generation") or ""}
