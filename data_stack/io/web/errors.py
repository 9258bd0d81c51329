"""The error of a request."""

from __future__ import annotations

from data_stack.exception import DataStackError


class WebError(DataStackError):
    """A web server did not answer, or answered wrongly.

    Attributes:
        reason: what the server did, without credentials and without a subject: ``"answers 404"``.
        transient: whether a retry may help.
        retry_after: how many seconds the server asked to wait; None if it did not.
        status: the status of HTTP; None if there was no answer.
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
