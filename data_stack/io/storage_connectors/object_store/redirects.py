"""Keeps s3fs and gcsfs from following redirects.

Both send by aiohttp, which follows a redirect to any host. There it sends all headers but
``Authorization``, so also the session token of S3, and what that host answers would be read.
"""

from __future__ import annotations

from typing import Any, Final

import aiohttp

from data_stack.io.storage_connectors.object_store.s3 import (
    REDIRECTED,
    REGION_HEADER,
    WrongAnswerError,
)
from data_stack.util.logger import logger

_REDIRECTS: Final = (301, 302, 303, 307, 308)


def direct_session_class() -> Any:
    """Return the class of sessions for aiobotocore that follow no redirects.

    Where an answer names the region of the bucket, botocore sends the request to the host of S3
    there, which the answer does not choose. Without the region, botocore would ask for it by
    requests that are redirected as well, and so on.
    """
    from aiobotocore.httpsession import AIOHTTPSession
    from botocore.exceptions import HTTPClientError

    if not hasattr(AIOHTTPSession, "_get_session"):
        logger.warning(
            "This version of aiobotocore follows redirects of S3 to any host, with the session "
            "token: install a newer one."
        )
        return AIOHTTPSession

    class DirectHTTPSession(AIOHTTPSession):  # type: ignore[misc]  # it has no types
        """Sends requests, and refuses redirects."""

        async def send(self, request: Any) -> Any:
            """Send a request."""
            try:
                return await super().send(request)
            except HTTPClientError as error:
                # It is raised in place of any exception, and would be taken for a server that is
                # away.
                if isinstance(error.__context__, WrongAnswerError):
                    raise error.__context__ from None
                raise

        async def _get_session(self, proxy_url: str | None) -> Any:
            return _DirectSession(await super()._get_session(proxy_url))

    return DirectHTTPSession


class _DirectSession:
    """The one method of a session of aiohttp that aiobotocore calls.

    Args:
        session: the session.
    """

    _session: aiohttp.ClientSession

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def request(self, method: str, **options: Any) -> aiohttp.ClientResponse:
        """Send a request.

        Raises:
            WrongAnswerError: the answer is a redirect, and not to the region of the bucket.
        """
        response = await self._session.request(method, allow_redirects=False, **options)
        if response.status in _REDIRECTS and REGION_HEADER not in response.headers:
            response.close()
            raise WrongAnswerError(REDIRECTED)
        return response


def refuse_redirects() -> aiohttp.TraceConfig:
    """Return the option of a session of aiohttp that makes redirects errors.

    gcsfs takes any answer below 400 for what it asked for, so it must not see one.
    """
    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(_refuse_redirect)
    return trace


async def _refuse_redirect(session: Any, context: Any, redirect: Any) -> None:
    headers = redirect.response.headers
    # Google answers 308 without a location while a resumable upload goes on.
    if "Location" in headers or "URI" in headers:
        redirect.response.close()
        raise WrongAnswerError(REDIRECTED)
