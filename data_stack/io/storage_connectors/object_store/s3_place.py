"""Finds where a bucket of S3 is, and with which credentials it is read, by botocore.

So environment variables, profiles, configuration files and roles of instances mean what they mean
to s3fs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.io.storage_connectors.object_store.login_files import check_s3_files
from data_stack.io.storage_connectors.object_store.refused_requests import CredentialsError


@dataclass(frozen=True, slots=True, repr=False)
class S3Place:
    """A bucket of S3. Its repr shows nothing.

    Attributes:
        bucket: the name of the bucket.
        endpoint: the URL of the server. Its host is that of the bucket where
            ``has_virtual_host`` says so.
        has_virtual_host: whether the bucket has a host of its own. Otherwise its name is the
            beginning of the path.
        region: the region for which requests are signed.
        ca_bundle: a file of certificates to trust besides those of the system; None: no further
            ones.
        is_proxied: whether a proxy leads to the bucket.
        find_credentials: returns the current credentials of botocore; None: requests are anonymous.
    """

    bucket: str
    endpoint: str
    has_virtual_host: bool
    region: str
    ca_bundle: str | None
    is_proxied: bool
    find_credentials: Callable[[], Any] | None

    @property
    def url(self) -> str:
        """The URL of the bucket, which ends with a slash where the bucket has a host."""
        if self.has_virtual_host:
            return f"{self.endpoint}/"
        return f"{self.endpoint}/{quote(self.bucket)}"

    @property
    def suits_web_client(self) -> bool:
        """Whether our web client trusts the same certificates: those of ``REQUESTS_CA_BUNDLE``."""
        if not self.endpoint.startswith("https://"):
            return True
        return self.ca_bundle in (None, os.environ.get("REQUESTS_CA_BUNDLE"))

    def secrets(self) -> list[str]:
        """Return the texts that the server receives and nobody else may see.

        The secret key is not sent: it signs requests.
        """
        if self.find_credentials is None:
            return []
        from botocore.exceptions import BotoCoreError

        try:
            token = self.find_credentials().token
        except (BotoCoreError, OSError):
            # Without credentials, nothing was sent.
            return []
        return [token] if token else []


def find_s3_place(bucket: str, options: Mapping[str, Any]) -> S3Place:
    """Return where a bucket is. No request is sent.

    Args:
        bucket: the bucket.
        options: arguments of ``s3fs.S3FileSystem``; see ``OBSTORE_OPTIONS`` for which.

    Raises:
        ConfigError: the profile or a file of the login does not exist, or the endpoint is not a
            URL.
        MissingDependencyError: botocore is not installed.
    """
    try:
        import botocore.exceptions
        import botocore.session
        from botocore import UNSIGNED
        from botocore.config import Config
    except ImportError as error:
        raise MissingDependencyError("the store s3://", "botocore", "s3") from error

    check_s3_files(options, os.environ)
    client_options = dict(options.get("client_kwargs") or {})
    endpoint_url = client_options.get("endpoint_url") or options.get("endpoint_url")
    session = botocore.session.Session(profile=options.get("profile"))
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
    endpoint = str(client.meta.endpoint_url).rstrip("/")
    has_virtual_host = (urlsplit(bucket_url).hostname or "").startswith(f"{bucket.lower()}.")
    if has_virtual_host:
        endpoint = endpoint.replace("://", f"://{bucket}.", 1)
    return S3Place(
        bucket,
        endpoint,
        has_virtual_host,
        client.meta.region_name,
        ca_bundle,
        is_proxied=_find_proxy(endpoint) is not None,
        find_credentials=None if options.get("anon") else _credentials_of(session, options),
    )


def _find_proxy(endpoint: str) -> str | None:
    """Return the URL of the proxy to an endpoint that the environment sets; None if there is none.

    s3fs uses the same one.
    """
    from botocore.utils import get_environ_proxies

    proxies: dict[str, str] = get_environ_proxies(endpoint)
    return proxies.get(urlsplit(endpoint).scheme) or proxies.get("all")


def _credentials_of(session: Any, options: Mapping[str, Any]) -> Callable[[], Any]:
    """Return a function that returns the current credentials."""
    import botocore.exceptions

    key = options.get("key")
    secret = options.get("secret")
    if key and secret:
        session.set_credentials(key, secret, options.get("token"))

    def find_credentials() -> Any:
        try:
            credentials = session.get_credentials()
            if credentials is None:
                raise botocore.exceptions.NoCredentialsError
            return credentials.get_frozen_credentials()
        except FileNotFoundError as error:
            # It would be taken for a missing object.
            raise CredentialsError(f"{error.filename!r:.300} of the login is missing") from None

    return find_credentials
