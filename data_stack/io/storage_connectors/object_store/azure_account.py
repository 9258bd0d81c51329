"""Finds the account of Azure in which a store is kept, from options, environment and URL.

obstore and adlfs look for it in different ways. Both get what is found here. The rules are those of
adlfs, with two more: an endpoint can be named, and a store that is anonymous or has a login of its
own takes none from the environment.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit

from data_stack.exception import ConfigError

AZURE_PROTOCOLS: Final = ("az", "abfs", "abfss")

#: The options that log in, and their variables. Each precedes those behind it.
_LOGIN_VARIABLES: Final = {
    "connection_string": "AZURE_STORAGE_CONNECTION_STRING",
    "account_key": "AZURE_STORAGE_ACCOUNT_KEY",
    "sas_token": "AZURE_STORAGE_SAS_TOKEN",
    "client_id": "AZURE_STORAGE_CLIENT_ID",
}
_ENDPOINT_VARIABLES: Final = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
_FALSE_TEXTS: Final = ("", "0", "f", "false")
_PUBLIC_DOMAIN: Final = "core.windows.net"
_NAME: Final = re.compile(r"[A-Za-z0-9-]+", re.ASCII)
#: The host in ``abfss://container@HOST/folder``.
_HOST: Final = re.compile(
    r"(?P<account>[a-z0-9-]+)\.(dfs|blob)\.(?P<domain>[a-z0-9.-]+)", re.ASCII | re.IGNORECASE
)
#: What a connection string may hold as the URL of an account.
_ENDPOINT: Final = re.compile(r"https?://[^\s/;?#@]+(/[^\s;?#@]*)?", re.ASCII | re.IGNORECASE)
#: The account of the emulator Azurite, whose key is public:
#: https://learn.microsoft.com/en-us/azure/storage/common/storage-connect-azurite
_EMULATOR_ACCOUNT: Final = "devstoreaccount1"
_EMULATOR_ENDPOINT: Final = f"http://127.0.0.1:10000/{_EMULATOR_ACCOUNT}"
_EMULATOR_KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@dataclass(frozen=True, slots=True, repr=False)
class AzureAccount:
    """A storage account, and how to log in. Its repr shows nothing.

    Attributes:
        name: the name of the account.
        endpoint: the URL of its blobs.
        key: a key of the account; empty if the login is another one.
        sas_token: a shared access signature, without a question mark; empty if the login is another
            one.
        is_anonymous: whether there is no login. Otherwise, without key and token, an identity logs
            in.
    """

    name: str
    endpoint: str
    key: str = ""
    sas_token: str = ""
    is_anonymous: bool = False

    def connection_string(self) -> str:
        """Return the account as a connection string. It has no login by an identity."""
        login = ""
        if self.key:
            login = f"AccountName={self.name};AccountKey={self.key};"
        elif self.sas_token:
            login = f"SharedAccessSignature={self.sas_token};"
        return f"{login}BlobEndpoint={self.endpoint}"


def find_account(options: Mapping[str, Any], environment: Mapping[str, str]) -> AzureAccount:
    """Return the account that options or environment name. No error shows a value of them.

    Args:
        options: arguments of ``adlfs.AzureBlobFileSystem``, and ``endpoint_url``.
        environment: the variables, such as ``AZURE_STORAGE_ACCOUNT_NAME``.

    Raises:
        ConfigError: no account is named, or something is malformed.
    """
    login = _login_of(options, environment)
    connection_string = login.get("connection_string")
    if connection_string:
        account = _parse_connection_string(str(connection_string))
        endpoint = options.get("endpoint_url")
        return replace(account, endpoint=_checked_endpoint(endpoint)) if endpoint else account

    name = str(options.get("account_name") or environment.get("AZURE_STORAGE_ACCOUNT_NAME") or "")
    endpoint = _find_endpoint(name, options, environment)
    account = AzureAccount(name or _first_label(endpoint), endpoint)
    if options.get("credential"):
        return account
    if login.get("account_key"):
        return _with_key(account, str(login["account_key"]))
    if login.get("sas_token"):
        return replace(account, sas_token=str(login["sas_token"]).lstrip("?"))
    return replace(account, is_anonymous=not needs_identity(options, environment))


def needs_identity(options: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    """Return whether an identity of Microsoft Entra must log in: a user, a service or the machine.

    Args:
        options: arguments of ``adlfs.AzureBlobFileSystem``, and ``endpoint_url``.
        environment: the variables.
    """
    if options.get("credential"):
        return True
    login = _login_of(options, environment)
    for name in _LOGIN_VARIABLES:
        if login.get(name):
            return name == "client_id"
    anonymous = options.get("anon")
    if anonymous is None:
        return environment.get("AZURE_STORAGE_ANON", "").lower() in _FALSE_TEXTS
    return not anonymous


def adlfs_options(options: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of ``adlfs.AzureBlobFileSystem`` for the account that is found.

    Args:
        options: its arguments as the user gave them, and ``endpoint_url``.
        environment: the variables.

    Raises:
        ConfigError: no account is named, or something is malformed.
    """
    account = find_account(options, environment)
    arguments = {name: value for name, value in options.items() if name != "endpoint_url"}
    if account.key or account.sas_token or account.is_anonymous:
        for name in ("account_key", "sas_token", "anon", "account_host"):
            arguments.pop(name, None)
        return {**arguments, "connection_string": account.connection_string()}

    if not account.endpoint.startswith("https://"):
        raise ConfigError("an identity of Azure logs in by https:// only: give a key or SAS token")
    arguments["account_name"] = account.name
    arguments["account_host"] = account.endpoint.removeprefix("https://")
    return arguments


def account_of_host(host: str) -> dict[str, str]:
    """Return the options that the host of a URL gives; none if it is the name of a container."""
    match = _HOST.fullmatch(host)
    if match is None:
        return {}
    account_name = match["account"]
    if match["domain"].lower() == _PUBLIC_DOMAIN:
        return {"account_name": account_name}
    return {"account_name": account_name, "account_host": f"{account_name}.blob.{match['domain']}"}


def _login_of(options: Mapping[str, Any], environment: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the options that log in, or what the environment has in their place."""
    has_login = any(options.get(name) for name in (*_LOGIN_VARIABLES, "credential"))
    if has_login or options.get("anon") is True:
        return options
    return {name: environment.get(variable) for name, variable in _LOGIN_VARIABLES.items()}


def _find_endpoint(
    account_name: str, options: Mapping[str, Any], environment: Mapping[str, str]
) -> str:
    """Return the URL of the blobs of an account.

    Raises:
        ConfigError: it is malformed, or no account is named.
    """
    if options.get("endpoint_url"):
        return _checked_endpoint(options["endpoint_url"])
    if options.get("account_host"):
        return _checked_endpoint(f"https://{options['account_host']}")
    for variable in _ENDPOINT_VARIABLES:
        if environment.get(variable):
            return _checked_endpoint(environment[variable])
    if not account_name:
        raise ConfigError(
            "the account of Azure has no name: give it in the URL (?account=…), as account_name=, "
            "or in the variable AZURE_STORAGE_ACCOUNT_NAME"
        )
    if _NAME.fullmatch(account_name) is None:
        raise ConfigError("the name of an account of Azure has only letters, digits and '-'")
    return _checked_endpoint(f"https://{account_name}.blob.{_PUBLIC_DOMAIN}")


def _checked_endpoint(endpoint: Any) -> str:
    """Return the URL of an account.

    Raises:
        ConfigError: it is not one.
    """
    if not isinstance(endpoint, str) or _ENDPOINT.fullmatch(endpoint) is None:
        raise ConfigError("the endpoint of Azure must be a URL such as http://127.0.0.1:10000/name")
    return endpoint.rstrip("/")


def _first_label(endpoint: str) -> str:
    """Return the name of the account in a URL such as ``https://account.blob.core.windows.net``."""
    return (urlsplit(endpoint).hostname or "").partition(".")[0]


def _with_key(account: AzureAccount, key: str) -> AzureAccount:
    """Return an account with a key.

    Raises:
        ConfigError: the key is malformed.
    """
    try:
        base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError("the key of the account of Azure is not base64") from None
    return replace(account, key=key)


def _parse_connection_string(text: str) -> AzureAccount:
    """Return the account of a connection string.

    https://learn.microsoft.com/en-us/azure/storage/common/storage-configure-connection-string

    Raises:
        ConfigError: it is malformed.
    """
    settings = {}
    for setting in text.strip().rstrip(";").split(";"):
        name, equals_sign, value = setting.partition("=")
        if not equals_sign:
            raise ConfigError("the connection string of Azure is not NAME=VALUE;NAME=VALUE")
        settings[name.strip().lower()] = value

    if settings.get("usedevelopmentstorage", "").lower() == "true":
        return AzureAccount(_EMULATOR_ACCOUNT, _EMULATOR_ENDPOINT, key=_EMULATOR_KEY)
    name = settings.get("accountname", "")
    endpoint = settings.get("blobendpoint")
    if endpoint is None:
        if not name:
            raise ConfigError(
                "the connection string of Azure has neither AccountName nor BlobEndpoint"
            )
        scheme = settings.get("defaultendpointsprotocol", "https")
        endpoint = f"{scheme}://{name}.blob.{settings.get('endpointsuffix', _PUBLIC_DOMAIN)}"
    endpoint = _checked_endpoint(endpoint)
    account = AzureAccount(name or _first_label(endpoint), endpoint)
    if settings.get("accountkey"):
        return _with_key(account, settings["accountkey"])
    sas_token = settings.get("sharedaccesssignature", "").lstrip("?")
    return replace(account, sas_token=sas_token, is_anonymous=not sas_token)
