"""The login to an account of Azure: signs requests of our web client, and logs obstore in.

https://learn.microsoft.com/en-us/rest/api/storageservices/authorize-requests-to-azure-storage
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Callable, Mapping
from email.utils import formatdate
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlsplit

from data_stack.exception import ConfigError
from data_stack.io.storage_connectors.object_store.azure_account import (
    AzureAccount,
    find_account,
)
from data_stack.io.storage_connectors.object_store.azure_identity import AzureIdentity
from data_stack.io.storage_connectors.object_store.login_files import keeps_token_secret
from data_stack.io.storage_connectors.object_store.web_requests import SignedRequest

#: The version of the service, which has percent-encoded names in listings.
_VERSION: Final = "2021-12-02"
#: The headers in a signature that a GET request does not have: Content-Encoding,
#: Content-Language, Content-Length, Content-MD5, Content-Type, Date, If-Modified-Since, If-Match,
#: If-None-Match, If-Unmodified-Since and Range.
_N_ABSENT_HEADERS: Final = 11


class AzureLogin:
    """A key, a shared access signature, an identity, or nothing. Threads may share a login.

    Args:
        options: arguments of ``adlfs.AzureBlobFileSystem``; see ``OBSTORE_OPTIONS`` for which.
        timeout_seconds: the limit of a request for the token of an identity.

    Raises:
        ConfigError: no account is named, something is malformed, or the token of an identity would
            be sent without encryption.
        MissingDependencyError: an identity must log in, and azure-identity is not installed.

    Attributes:
        account: the account.
    """

    account: AzureAccount
    #: The identity that logs in; None if another login does, or none.
    _identity: AzureIdentity | None

    def __init__(self, options: Mapping[str, Any], timeout_seconds: float) -> None:
        self.account = find_account(options, os.environ)
        self._identity = None
        has_identity = not (self.account.key or self.account.sas_token or self.account.is_anonymous)
        if has_identity:
            if not keeps_token_secret(self.account.endpoint):
                raise ConfigError(
                    "an identity of Azure logs in by https:// only: give a key or SAS token"
                )
            self._identity = AzureIdentity(options, timeout_seconds)

    def renew_in_time(self) -> None:
        """Request a new token of the identity if there is none, or if it expires soon.

        Raises:
            CredentialsError: no identity is found, or it is refused.
            ConnectionError: the server of the login is away.
        """
        if self._identity is not None:
            self._identity.current_token()

    def provider(self) -> Callable[[], Any] | None:
        """Return a function that returns the current credentials for obstore.

        Returns:
            None if there is no login.
        """
        if self._identity is not None:
            return self._identity.current_token
        credentials: dict[str, Any]
        if self.account.key:
            credentials = {"access_key": self.account.key, "expires_at": None}
        elif self.account.sas_token:
            credentials = {"sas_token": self.account.sas_token, "expires_at": None}
        else:
            return None
        return lambda: credentials

    def secrets(self) -> list[str]:
        """Return the texts that the server receives and nobody else may see.

        The key of the account is not sent: it signs requests.
        """
        if self._identity is not None:
            return self._identity.secrets()
        if self.account.sas_token:
            return _secrets_in(self.account.sas_token)
        return []

    def sign(self, url: str) -> SignedRequest:
        """Return a GET request that is logged in.

        Args:
            url: its URL, with a query.

        Raises:
            CredentialsError: no identity is found, or it is refused.
            ConnectionError: the server of the login is away.
        """
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION}
        if self._identity is not None:
            token = self._identity.current_token()["token"]
            headers["Authorization"] = f"Bearer {token}"
        elif self.account.sas_token:
            url = f"{url}&{self.account.sas_token}"
        elif self.account.key:
            headers["Authorization"] = shared_key_authorization(self.account, url, headers)
        return SignedRequest(url, headers, self.secrets())


def shared_key_authorization(account: AzureAccount, url: str, headers: Mapping[str, str]) -> str:
    """Return the header that signs a GET request with the key of an account.

    https://learn.microsoft.com/en-us/rest/api/storageservices/authorize-with-shared-key

    Args:
        account: the account.
        url: the URL of the request.
        headers: those of its headers whose names begin with ``x-ms-``.
    """
    parts = urlsplit(url)
    lines = ["GET", *[""] * _N_ABSENT_HEADERS]
    for name in sorted(headers):
        lines.append(f"{name}:{headers[name]}")
    lines.append(f"/{account.name}{parts.path}")
    for name, value in sorted(parse_qsl(parts.query, keep_blank_values=True)):
        lines.append(f"{name}:{value}")
    key = base64.b64decode(account.key)
    digest = hmac.new(key, "\n".join(lines).encode(), hashlib.sha256).digest()
    return f"SharedKey {account.name}:{base64.b64encode(digest).decode()}"


def _secrets_in(sas_token: str) -> list[str]:
    """Return the texts of a shared access signature that nobody else may see."""
    secrets = [sas_token]
    for name, value in parse_qsl(sas_token):
        if name == "sig":
            secrets += [value, quote(value, safe="")]
    return secrets
