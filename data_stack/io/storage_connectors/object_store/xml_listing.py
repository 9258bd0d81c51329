"""Parses listings in XML, which come from strangers."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from typing import Final

from data_stack.io.storage_connectors.object_store.refused_requests import (
    RefusedRequestError,
    refusal_in_xml,
)
from data_stack.io.storage_connectors.object_store.s3 import (
    NO_LISTING,
    WrongAnswerError,
    describe_404,
    refusal_of,
)

#: A page has at most 2,000 keys of 1,024 characters, each of which may be written as ``%00``, and
#: 150,000 tags. Other servers send larger pages.
MAX_PAGE_BYTES: Final = 32 << 20
_MAX_TAGS: Final = 400_000
#: An attribute takes 28 times its size in memory. There are few, but keys have equals signs, too.
_MAX_EQUALS_SIGNS: Final = 400_000
#: What no listing holds: a definition of entities, which may expand to any size.
_DOCUMENT_TYPE: Final = re.compile(rb"<!\s*DOCTYPE", re.IGNORECASE)


def parse_xml(body: bytes, root_name: str) -> ElementTree.Element:
    """Return the root of a listing.

    Args:
        body: the body of an answer.
        root_name: the name that the root must have, without its namespace.

    Raises:
        WrongAnswerError: it is no listing, or may be an attack.
    """
    # A text with NUL is UTF-16, in which the search finds nothing.
    is_hostile = b"\0" in body or _DOCUMENT_TYPE.search(body) is not None
    is_large = body.count(b"<") > _MAX_TAGS or body.count(b"=") > _MAX_EQUALS_SIGNS
    if is_hostile or is_large:
        raise WrongAnswerError(NO_LISTING)
    # Otherwise the text names its encoding, which may be any that Python knows.
    parser = ElementTree.XMLParser(encoding="utf-8")  # noqa: S314  # no entities, and small
    try:
        root = ElementTree.fromstring(body, parser)  # noqa: S314  # as above
    except ElementTree.ParseError:
        raise WrongAnswerError(NO_LISTING) from None
    if name_of(root) != root_name:
        raise WrongAnswerError(NO_LISTING)
    return root


def child_of(element: ElementTree.Element, name: str) -> ElementTree.Element | None:
    """Return the first child with a name; None if there is none."""
    for child in element:
        if name_of(child) == name:
            return child
    return None


def text_in(element: ElementTree.Element, name: str) -> str | None:
    """Return the text of the first child with a name; None if there is none.

    Raises:
        WrongAnswerError: the child has children of its own, behind which the text goes on.
    """
    child = child_of(element, name)
    return None if child is None else text_of(child)


def text_of(element: ElementTree.Element) -> str:
    """Return the text of an element.

    Raises:
        WrongAnswerError: it has children.
    """
    if len(element):
        raise WrongAnswerError(NO_LISTING)
    return element.text or ""


def name_of(element: ElementTree.Element) -> str:
    """Return the name of an element without its namespace, which not every server writes."""
    return element.tag.rpartition("}")[2]


def read_refusal(status: int, body: str, secrets: Sequence[str]) -> RefusedRequestError:
    """Return the exception for an answer that is an error.

    Args:
        status: the status of HTTP.
        body: the body of the answer.
        secrets: the texts that were sent, and that the exception must not show.

    Raises:
        WrongAnswerError: the bucket or container does not exist, or the answer is not one of an
            object store.
    """
    refusal = refusal_in_xml(status, body, secrets)
    if status == 404:
        raise WrongAnswerError(describe_404(refusal_of(refusal)))
    return refusal
