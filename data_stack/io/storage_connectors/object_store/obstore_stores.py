"""Makes the stores of obstore, from the options and the environment that fsspec's clients know."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from obstore.store import AzureStore, GCSStore, S3Store

from data_stack.exception import ConfigError
from data_stack.io.storage_connectors.object_store.s3_place import S3Place

if TYPE_CHECKING:
    from data_stack.io.storage_connectors.object_store.azure_login import AzureLogin
    from data_stack.io.storage_connectors.object_store.google_login import GoogleLogin

#: The limit of connecting to a server.
_MAX_CONNECT_SECONDS: Final = 10.0
#: obstore asks for credentials again five minutes before they expire. So it asks botocore, which
#: renews them itself, every minute.
_CREDENTIAL_SECONDS: Final = 360.0

#: What ends the URL of the JSON API, which gcsfs uses; obstore uses the XML API.
_GOOGLE_JSON_PATH: Final = "/storage/v1/"

#: A proxy that refuses every connection: nothing listens at the first port.
REFUSING_PROXY: Final = "127.0.0.1:1"


def make_s3_store(place: S3Place, timeout_seconds: float) -> Any | None:
    """Make the store of a bucket of S3; None if a proxy leads to the bucket.

    Redirects to another host are not followed; see :func:`_refuse_other_hosts`.

    Args:
        place: the bucket.
        timeout_seconds: the limit of a request.

    Raises:
        ConfigError: the bundle of certificates cannot be read.
    """
    if place.is_proxied:
        return None
    client_arguments = _client_options(place.endpoint, timeout_seconds, place.ca_bundle)
    _refuse_other_hosts(client_arguments, place.endpoint)

    find_credentials = place.find_credentials
    config: Any = {
        # Not "endpoint": the variable AWS_ENDPOINT_URL_S3 would take precedence over that.
        "aws_endpoint_url_s3": place.endpoint,
        "region": place.region,
        "virtual_hosted_style_request": place.has_virtual_host,
        "skip_signature": find_credentials is None,
        # Not every server takes many deletions at once, and one at a time is asked for here.
        "disable_bulk_delete": True,
    }
    return S3Store(
        place.bucket,
        config=config,
        credential_provider=None if find_credentials is None else _provider_of(find_credentials),
        client_options=client_arguments,
        retry_config=_NO_RETRIES,
    )


def make_gs_store(
    bucket: str, file_system: Any, login: GoogleLogin, timeout_seconds: float
) -> Any | None:
    """Make the store of a bucket of Google Cloud Storage; None if a proxy leads to it.

    Redirects to another host are not followed; see :func:`_refuse_other_hosts`.

    Args:
        bucket: the bucket.
        file_system: a ``gcsfs.GCSFileSystem``, which knows the URL of the service.
        login: its login.
        timeout_seconds: the limit of a request.
    """
    endpoint = file_system.base.removesuffix(_GOOGLE_JSON_PATH)
    if _has_proxy(endpoint):
        return None
    # What is named here takes precedence over variables such as GOOGLE_BASE_URL.
    config: Any = {"base_url": endpoint, "skip_signature": login.is_anonymous}
    client_options = _client_options(endpoint, timeout_seconds, None)
    _refuse_other_hosts(client_options, endpoint)
    # Of an object with Content-Encoding: gzip, Google then sends the stored bytes. Otherwise it
    # unpacks them, and ranges are those of the unpacked ones.
    headers = {"Accept-Encoding": "gzip"}
    if login.billed_project is not None:
        headers["x-goog-user-project"] = login.billed_project
    client_options["default_headers"] = headers
    # Also without a login, for which it is not called. Otherwise obstore would read the file that
    # GOOGLE_APPLICATION_CREDENTIALS names. obstore has no name for its type at run time.
    provider: Any = login.current_token
    return GCSStore(
        bucket,
        config=config,
        credential_provider=provider,
        client_options=client_options,
        retry_config=_NO_RETRIES,
    )


def make_az_store(container: str, login: AzureLogin, timeout_seconds: float) -> Any | None:
    """Make the store of a container of Azure; None if a proxy leads to it.

    Redirects to another host are not followed; see :func:`_refuse_other_hosts`.

    Args:
        container: the container.
        login: the login to its account.
        timeout_seconds: the limit of a request.
    """
    account = login.account
    if _has_proxy(account.endpoint):
        return None
    client_arguments = _client_options(account.endpoint, timeout_seconds, None)
    _refuse_other_hosts(client_arguments, account.endpoint)
    config: Any = {
        "account_name": account.name,
        "endpoint": account.endpoint,
        "skip_signature": account.is_anonymous,
        # The variable AZURE_STORAGE_USE_EMULATOR would take precedence over the endpoint.
        "use_emulator": False,
    }
    # obstore has no name for its type at run time.
    provider: Any = login.provider()
    return AzureStore(
        container,
        config=config,
        credential_provider=provider,
        client_options=client_arguments,
        retry_config=_NO_RETRIES,
    )


#: :meth:`.RemoteFileSystem.retry` retries, so obstore does not.
_NO_RETRIES: Final[Any] = {"max_retries": 0}


def _client_options(endpoint: str | None, timeout_seconds: float, ca_bundle: str | None) -> Any:
    """Return how to speak HTTP.

    Args:
        endpoint: the URL of the server; None: that of the provider, by HTTPS.
        timeout_seconds: the limit of a request.
        ca_bundle: a file of certificates to trust besides those of the system.

    Raises:
        ConfigError: the file cannot be read.
    """
    options: dict[str, Any] = {
        "timeout": timedelta(seconds=timeout_seconds),
        "connect_timeout": timedelta(seconds=min(_MAX_CONNECT_SECONDS, timeout_seconds)),
        "allow_http": endpoint is not None and endpoint.startswith("http://"),
    }
    if ca_bundle:
        try:
            options["root_certificate"] = Path(ca_bundle).read_bytes()
        except OSError as error:
            raise ConfigError(f"the bundle of certificates cannot be read: {error}") from None
    return options


def _refuse_other_hosts(client_options: dict[str, Any], endpoint: str) -> None:
    """Let no request leave for another host than that of an endpoint.

    obstore follows redirects, also to another host, and sends the session token of S3 there. This
    cannot be switched off. So all other hosts get a proxy that refuses connections. Where the
    requests need a real proxy, that would pass them on to any host.

    Other ports and subdomains of the host cannot be told apart from it: a redirect to them is
    followed.
    """
    client_options["proxy_url"] = f"http://{REFUSING_PROXY}"
    client_options["proxy_excludes"] = urlsplit(endpoint).hostname


def _has_proxy(endpoint: str) -> bool:
    """Return whether the environment sets a proxy to an endpoint."""
    parts = urlsplit(endpoint)
    proxies = getproxies()
    is_proxied = parts.scheme in proxies or "all" in proxies
    return is_proxied and not proxy_bypass(parts.hostname or "")


def _provider_of(find_credentials: Callable[[], Any]) -> Any:
    """Return a function that returns the current credentials of botocore, for obstore."""

    def current_credentials() -> dict[str, Any]:
        credentials = find_credentials()
        expires_at = datetime.now(timezone.utc) + timedelta(seconds=_CREDENTIAL_SECONDS)
        return {
            "access_key_id": credentials.access_key,
            "secret_access_key": credentials.secret_key,
            "token": credentials.token,
            "expires_at": expires_at,
        }

    return current_credentials
