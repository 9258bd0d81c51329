"""Makes the stores of obstore, from the options and the environment that fsspec's clients know."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from obstore.store import AzureStore, GCSStore, S3Store

from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.io.storage_connectors.object_store.azure_account import find_account

if TYPE_CHECKING:
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

#: Makes the store of a bucket; see :func:`make_s3_store` for the arguments.
StoreMaker = Callable[[str, Mapping[str, Any], float], Any]


def make_s3_store(bucket: str, options: Mapping[str, Any], timeout_seconds: float) -> Any | None:
    """Make the store of a bucket of S3; None if a proxy leads to the bucket.

    botocore says where the bucket is and what the credentials are. So environment variables,
    profiles, configuration files and roles of instances mean what they mean to s3fs.

    obstore follows redirects, also to another host, and sends the session token there. This cannot
    be switched off. So all hosts but that of the bucket get a proxy that refuses connections. Where
    the requests need a real proxy, it would pass them on to any host.

    Args:
        bucket: the bucket.
        options: arguments of ``s3fs.S3FileSystem``; see ``OBSTORE_OPTIONS`` for which.
        timeout_seconds: the limit of a request.

    Raises:
        ConfigError: the profile does not exist, or the endpoint is not a URL.
        MissingDependencyError: botocore is not installed.
    """
    try:
        import botocore.exceptions
        import botocore.session
        from botocore import UNSIGNED
        from botocore.config import Config
    except ImportError as error:
        raise MissingDependencyError("the store s3://", "botocore", "s3") from error

    client_options = dict(options.get("client_kwargs") or {})
    endpoint_url = client_options.get("endpoint_url") or options.get("endpoint_url")
    session = botocore.session.Session(profile=options.get("profile"))
    is_anonymous = bool(options.get("anon"))
    try:
        # This client sends nothing. It only knows where the bucket is.
        client = session.create_client(
            "s3",
            region_name=client_options.get("region_name"),
            endpoint_url=endpoint_url,
            config=Config(signature_version=UNSIGNED),
        )
        bucket_url = client.generate_presigned_url("head_bucket", Params={"Bucket": bucket})
        ca_bundle = session.get_config_variable("ca_bundle")
    except (botocore.exceptions.BotoCoreError, ValueError) as error:
        raise ConfigError(f"botocore cannot tell where the bucket is: {error}") from None
    endpoint = client.meta.endpoint_url
    has_virtual_host = (urlsplit(bucket_url).hostname or "").startswith(f"{bucket.lower()}.")
    if has_virtual_host:
        endpoint = endpoint.replace("://", f"://{bucket}.", 1)

    if _find_proxy(endpoint) is not None:
        return None
    client_arguments = _client_options(endpoint, timeout_seconds, ca_bundle)
    client_arguments["proxy_url"] = f"http://{REFUSING_PROXY}"
    client_arguments["proxy_excludes"] = urlsplit(endpoint).hostname

    config: Any = {
        # Not "endpoint": the variable AWS_ENDPOINT_URL_S3 would take precedence over that.
        "aws_endpoint_url_s3": endpoint,
        "region": client.meta.region_name,
        "virtual_hosted_style_request": has_virtual_host,
        "skip_signature": is_anonymous,
        # Not every server takes many deletions at once, and one at a time is asked for here.
        "disable_bulk_delete": True,
    }
    return S3Store(
        bucket,
        config=config,
        credential_provider=None if is_anonymous else _credentials_of(session, options),
        client_options=client_arguments,
        retry_config=_NO_RETRIES,
    )


def make_gs_store(bucket: str, file_system: Any, login: GoogleLogin, timeout_seconds: float) -> Any:
    """Make the store of a bucket of Google Cloud Storage.

    Args:
        bucket: the bucket.
        file_system: a ``gcsfs.GCSFileSystem``, which knows the URL of the service.
        login: its login.
        timeout_seconds: the limit of a request.
    """
    endpoint = file_system.base.removesuffix(_GOOGLE_JSON_PATH)
    # What is named here takes precedence over variables such as GOOGLE_BASE_URL.
    config: Any = {"base_url": endpoint, "skip_signature": login.is_anonymous}
    client_options = _client_options(endpoint, timeout_seconds, None)
    # Of an object with Content-Encoding: gzip, Google then sends the stored bytes. Otherwise it
    # unpacks them, and ranges are those of the unpacked ones.
    headers = {"Accept-Encoding": "gzip"}
    if login.billed_project is not None:
        headers["x-goog-user-project"] = login.billed_project
    # obstore has no name for its type at run time.
    provider: Any = None if login.is_anonymous else login.current_token
    client_options["default_headers"] = headers
    return GCSStore(
        bucket,
        config=config,
        credential_provider=provider,
        client_options=client_options,
        retry_config=_NO_RETRIES,
    )


def make_az_store(container: str, options: Mapping[str, Any], timeout_seconds: float) -> Any | None:
    """Make the store of a container of Azure; None if a proxy leads to it.

    As in :func:`make_s3_store`, redirects to another host are not followed. Where an identity logs
    in, they are, as the login is at another host. They do not get the token.

    Args:
        container: the container.
        options: arguments of ``adlfs.AzureBlobFileSystem``; see ``OBSTORE_OPTIONS`` for which. If
            neither they nor the environment have a key or a token, obstore looks for an identity.
        timeout_seconds: the limit of a request.

    Raises:
        ConfigError: no account is named, or something is malformed.
    """
    account = find_account(options, os.environ)
    endpoint = urlsplit(account.endpoint)
    has_proxy = endpoint.scheme in getproxies() and not proxy_bypass(endpoint.hostname or "")
    if has_proxy:
        return None
    client_arguments = _client_options(account.endpoint, timeout_seconds, None)
    if account.key or account.sas_token or account.is_anonymous:
        client_arguments["proxy_url"] = f"http://{REFUSING_PROXY}"
        client_arguments["proxy_excludes"] = endpoint.hostname
    config: Any = {
        "account_name": account.name,
        "endpoint": account.endpoint,
        "skip_signature": account.is_anonymous,
        # The variable AZURE_STORAGE_USE_EMULATOR would take precedence over the endpoint.
        "use_emulator": False,
    }
    credentials: dict[str, Any] | None = None
    if account.key:
        credentials = {"access_key": account.key, "expires_at": None}
    elif account.sas_token:
        credentials = {"sas_token": account.sas_token, "expires_at": None}

    def current_credentials() -> Any:
        return credentials

    return AzureStore(
        container,
        config=config,
        credential_provider=None if credentials is None else current_credentials,
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


def _find_proxy(endpoint: str) -> str | None:
    """Return the URL of the proxy to an endpoint that the environment sets; None if there is none.

    s3fs uses the same one.
    """
    from botocore.utils import get_environ_proxies

    proxies: dict[str, str] = get_environ_proxies(endpoint)
    return proxies.get(urlsplit(endpoint).scheme) or proxies.get("all")


def _credentials_of(session: Any, options: Mapping[str, Any]) -> Any:
    """Return a function that returns the current credentials, for obstore."""
    import botocore.exceptions

    key = options.get("key")
    secret = options.get("secret")
    if key and secret:
        session.set_credentials(key, secret, options.get("token"))

    def current_credentials() -> dict[str, Any]:
        credentials = session.get_credentials()
        if credentials is None:
            raise botocore.exceptions.NoCredentialsError
        frozen = credentials.get_frozen_credentials()
        expires_at = datetime.now(timezone.utc) + timedelta(seconds=_CREDENTIAL_SECONDS)
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": expires_at,
        }

    return current_credentials
