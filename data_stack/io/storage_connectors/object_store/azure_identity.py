"""Identities of Microsoft Entra that log in to Azure: users, services and machines.

They are found by azure-identity, as adlfs finds them.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any, Final

from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.io.redaction import hide, printable
from data_stack.io.storage_connectors.object_store.refused_requests import CredentialsError
from data_stack.util.forks import fork_lock

_SCOPE: Final = "https://storage.azure.com/.default"
#: A token is renewed when it is valid for less than this, as obstore renews it.
_MIN_TOKEN_SECONDS: Final = 300.0
#: The options of a service with a secret, and their variables, as adlfs knows them.
SERVICE_VARIABLES: Final = {
    "client_id": "AZURE_STORAGE_CLIENT_ID",
    "client_secret": "AZURE_STORAGE_CLIENT_SECRET",
    "tenant_id": "AZURE_STORAGE_TENANT_ID",
}
#: Names another server of logins than that of the public cloud.
_AUTHORITY_VARIABLE: Final = "AZURE_AUTHORITY_HOST"
#: The variables of azure-identity that hold secrets.
_SECRET_VARIABLES: Final = (
    "AZURE_CLIENT_SECRET",
    "AZURE_STORAGE_CLIENT_SECRET",
    "AZURE_CLIENT_CERTIFICATE_PASSWORD",
    "AZURE_PASSWORD",
    "IDENTITY_HEADER",
)
#: What may be a token or a key in the answer of a server.
_LONG_WORD: Final = re.compile(r"\S{40,}")
_MAX_REASON_LENGTH: Final = 250


class AzureIdentity:
    """An identity and its current token. Threads may share an identity.

    Args:
        options: arguments of ``adlfs.AzureBlobFileSystem``.
        timeout_seconds: the limit of a single request for a token.

    Raises:
        ConfigError: the variables of azure-identity are malformed, or a service has no tenant or
            secret.
        MissingDependencyError: azure-identity is not installed.
    """

    #: The credential of azure-identity.
    _credential: Any
    #: The texts that no message may show.
    _secrets: list[str]
    #: The current token, and when it expires; None before the first request.
    _token: dict[str, Any] | None
    #: Held by the thread that requests a token.
    _renewing: threading.Lock

    def __init__(self, options: Mapping[str, Any], timeout_seconds: float) -> None:
        service = {
            name: options.get(name) or os.environ.get(variable)
            for name, variable in SERVICE_VARIABLES.items()
        }
        self._credential = _make_credential(service, timeout_seconds)
        self._secrets = list(_find_secrets(service))
        self._token = None
        self._renewing = fork_lock()

    def secrets(self) -> list[str]:
        """Return the texts that a server receives and nobody else may see."""
        token = self._token
        return [] if token is None else [token["token"]]

    def current_token(self) -> dict[str, Any]:
        """Return the token, as obstore wants it of a credential provider.

        Raises:
            CredentialsError: no identity is found, or it is refused.
            ConnectionError: the server of the login is away.
        """
        token = self._token
        if token is not None and _lasts(token):
            return token
        with self._renewing:
            # Another thread may have renewed it meanwhile.
            token = self._token
            if token is None or not _lasts(token):
                token = self._request_token()
                self._token = token
        return token

    def _request_token(self) -> dict[str, Any]:
        from azure.core.exceptions import AzureError, ServiceRequestError, ServiceResponseError

        try:
            token = self._credential.get_token(_SCOPE)
        except (ServiceRequestError, ServiceResponseError):
            raise ConnectionError("the server of the login did not answer") from None
        except (AzureError, ValueError) as error:
            reason = self._reason_of(error)
            raise CredentialsError(f"no identity of Azure logs in: {reason}") from None
        expires_at = datetime.fromtimestamp(token.expires_on, timezone.utc)
        return {"token": token.token, "expires_at": expires_at}

    def _reason_of(self, error: Exception) -> str:
        """Return why no identity logs in, without what may be a token or a key."""
        reason = printable(str(error))
        for secret in self._secrets:
            reason = hide(reason, secret, "…")
        return _LONG_WORD.sub("…", " ".join(reason.split()))[:_MAX_REASON_LENGTH]


def _make_credential(service: Mapping[str, str | None], timeout_seconds: float) -> Any:
    """Return the credential of azure-identity for a service, or else for the environment."""
    try:
        from azure.identity import ClientSecretCredential, DefaultAzureCredential
    except ImportError as error:
        raise MissingDependencyError("an identity of Azure", "azure-identity", "azure") from error

    arguments: dict[str, Any] = {
        "connection_timeout": timeout_seconds,
        "read_timeout": timeout_seconds,
    }
    if os.environ.get(_AUTHORITY_VARIABLE):
        # Otherwise Microsoft's public cloud is asked about the server, which it may not know.
        arguments["disable_instance_discovery"] = True
    try:
        if service["client_id"]:
            return ClientSecretCredential(
                tenant_id=service["tenant_id"] or "",
                client_id=service["client_id"],
                client_secret=service["client_secret"] or "",
                **arguments,
            )
        return DefaultAzureCredential(**arguments)
    except ValueError:
        # Its message may show a value.
        raise ConfigError(
            "azure-identity does not take the variables and options of the identity: a service "
            "needs a tenant, a client id and a secret, and AZURE_AUTHORITY_HOST is an https:// URL"
        ) from None


def _find_secrets(service: Mapping[str, str | None]) -> Iterator[str]:
    """Yield the secrets in options and environment."""
    if service["client_secret"]:
        yield service["client_secret"]
    for variable in _SECRET_VARIABLES:
        secret = os.environ.get(variable)
        if secret:
            yield secret


def _lasts(token: Mapping[str, Any]) -> bool:
    """Return whether a token does not expire soon."""
    remaining = token["expires_at"] - datetime.now(timezone.utc)
    return bool(remaining.total_seconds() > _MIN_TOKEN_SECONDS)
