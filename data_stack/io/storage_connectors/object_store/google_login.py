"""The login to Google Cloud Storage that gcsfs has found, for obstore."""

from __future__ import annotations

import functools
import re
from datetime import datetime, timedelta, timezone
from typing import Any, Final

import google.auth.exceptions
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import Request

from data_stack.io.redaction import printable
from data_stack.io.storage_connectors.object_store.refused_requests import CredentialsError

#: A token is renewed when it is valid for less than this, as gcsfs renews it.
_MIN_TOKEN_SECONDS: Final = 300.0
#: obstore asks for the token again five minutes before it expires. So it asks every minute.
_ASKED_AGAIN_SECONDS: Final = 360.0
#: What may be a token or a key in the answer of a server.
_LONG_WORD: Final = re.compile(r"\S{40,}")
_MAX_REASON_LENGTH: Final = 200


class GoogleLogin:
    """The credentials of a file system of gcsfs.

    gcsfs looks for credentials in many places: ``GOOGLE_APPLICATION_CREDENTIALS``, the files of
    ``gcloud``, the metadata server of the machine, and its argument ``token``. obstore knows fewer
    of them. As both clients send requests to one bucket, both use the credentials that gcsfs found.
    Threads may share a login.

    Args:
        file_system: a ``gcsfs.GCSFileSystem``.
        timeout_seconds: the limit of a request for a new token.

    Attributes:
        needs_certificate: whether a client certificate must be shown, which obstore cannot do.
    """

    needs_certificate: bool
    #: The credentials and their lock, as gcsfs keeps them.
    _login: Any
    #: The credentials of google-auth; None without a login.
    _credentials: Any
    _timeout_seconds: float

    def __init__(self, file_system: Any, timeout_seconds: float) -> None:
        self._login = file_system.credentials
        self._credentials = self._login.credentials
        self._timeout_seconds = timeout_seconds
        # gcsfs 2026.10 shows the certificate that google-auth is set up to use.
        self.needs_certificate = getattr(file_system, "_use_client_cert", False)

    @property
    def is_anonymous(self) -> bool:
        """Whether requests are sent without a login."""
        return self._credentials is None or isinstance(self._credentials, AnonymousCredentials)

    @property
    def billed_project(self) -> str | None:
        """The project that pays for requests; None: that of the bucket."""
        return getattr(self._credentials, "quota_project_id", None)

    def renew_in_time(self) -> None:
        """Request a new token if there is none, or if it expires soon.

        Raises:
            CredentialsError: the credentials are not valid any more.
            ConnectionError: the server of the login is away.
            TimeoutError: another thread waits for that server.
        """
        if self.is_anonymous or self._lasts():
            return
        # gcsfs renews the token under the same lock.
        if not self._login.lock.acquire(timeout=self._timeout_seconds):
            raise TimeoutError("the server of the login did not answer in time")
        try:
            # Another thread may have renewed it meanwhile.
            if not self._lasts():
                self._renew()
        finally:
            self._login.lock.release()

    def headers(self) -> dict[str, str]:
        """Return the headers that log a request in; none without a login.

        Raises:
            CredentialsError: the credentials are not valid any more.
            ConnectionError: the server of the login is away.
            TimeoutError: another thread waits for that server.
        """
        headers = dict[str, str]()
        self.renew_in_time()
        if not self.is_anonymous:
            # With the project that pays.
            self._credentials.apply(headers)
        return headers

    def secrets(self) -> list[str]:
        """Return the texts that the server receives and nobody else may see."""
        if self.is_anonymous or not self._credentials.token:
            return []
        return [self._credentials.token]

    def current_token(self) -> dict[str, Any]:
        """Return the token, as obstore wants it of a credential provider."""
        self.renew_in_time()
        asked_again_at = datetime.now(timezone.utc) + timedelta(seconds=_ASKED_AGAIN_SECONDS)
        expires_at = self._expires_at()
        if expires_at is None or expires_at > asked_again_at:
            expires_at = asked_again_at
        return {"token": self._credentials.token, "expires_at": expires_at}

    def _lasts(self) -> bool:
        """Return whether there is a token that does not expire soon."""
        if not self._credentials.valid:
            return False
        expires_at = self._expires_at()
        if expires_at is None:
            return True
        remaining = expires_at - datetime.now(timezone.utc)
        return remaining.total_seconds() > _MIN_TOKEN_SECONDS

    def _expires_at(self) -> datetime | None:
        """Return when the token expires; None: never, or nobody knows."""
        expiry: datetime | None = self._credentials.expiry
        # google-auth means UTC.
        return None if expiry is None else expiry.replace(tzinfo=timezone.utc)

    def _renew(self) -> None:
        transport = Request()
        request = functools.partial(transport, timeout=self._timeout_seconds)
        try:
            self._credentials.refresh(request)
        except google.auth.exceptions.TransportError:
            raise ConnectionError("the server of the login did not answer") from None
        except google.auth.exceptions.GoogleAuthError as error:
            if error.retryable:
                raise ConnectionError("the server of the login is overloaded") from None
            raise CredentialsError(f"the login is refused: {_reason_of(error)}") from None
        finally:
            transport.session.close()


def _reason_of(error: google.auth.exceptions.GoogleAuthError) -> str:
    """Return why a login is refused, without what may be a token or a key.

    The further arguments of the exception are the whole answer of the server.
    """
    reason = str(error.args[0]) if error.args else type(error).__name__
    return _LONG_WORD.sub("…", printable(reason))[:_MAX_REASON_LENGTH]
