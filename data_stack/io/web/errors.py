"""The error of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from data_stack.exception import DataStackError
from data_stack.io.web.ranges import ByteRange as ByteRange

if TYPE_CHECKING:
    pass


class WebError(DataStackError):
    """A web server did not answer, or answered wrongly.

    Attributes:
        reason: what it did, without credentials.
        transient: whether a retry may help.
        retry_after: seconds that the server asked to wait, or None.
        status: of HTTP, or None.
    """

    def __init__(
        self,
        reason: str,
        transient: bool = False,
        retry_after: float | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(reason, transient, retry_after, status)
        self.reason = reason
        self.transient = transient
        self.retry_after = retry_after
        self.status = status

    def __str__(self) -> str:
        return self.reason
