"""Which account of Azure, which login and which client options and environment give."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from data_stack.exception import ConfigError
from data_stack.io.storage_connectors.object_store.azure_account import (
    AzureAccount,
    account_of_host,
    adlfs_options,
    find_account,
    needs_identity,
)
from data_stack.io.storage_connectors.object_store.client_choice import choose_client

KEY = base64.b64encode(b"key-canary").decode()
LAB = "https://lab.blob.core.windows.net"
NAME = {"AZURE_STORAGE_ACCOUNT_NAME": "lab"}
EMULATOR = "http://127.0.0.1:10000/devstoreaccount1"


@pytest.mark.parametrize(
    ("options", "environment", "account"),
    [
        ({"account_name": "lab", "account_key": KEY}, {}, AzureAccount("lab", LAB, key=KEY)),
        ({"account_key": KEY}, NAME, AzureAccount("lab", LAB, key=KEY)),
        ({}, {**NAME, "AZURE_STORAGE_ACCOUNT_KEY": KEY}, AzureAccount("lab", LAB, key=KEY)),
        (
            {},
            {**NAME, "AZURE_STORAGE_SAS_TOKEN": "?sv=1"},
            AzureAccount("lab", LAB, sas_token="sv=1"),
        ),
        (
            {"sas_token": "sv=1"},
            {**NAME, "AZURE_STORAGE_ACCOUNT_KEY": KEY},
            AzureAccount("lab", LAB, sas_token="sv=1"),
        ),
        (
            {"anon": True},
            {**NAME, "AZURE_STORAGE_ACCOUNT_KEY": KEY},
            AzureAccount("lab", LAB, is_anonymous=True),
        ),
        ({"anon": True, "account_key": KEY}, NAME, AzureAccount("lab", LAB, key=KEY)),
        ({}, {**NAME, "AZURE_STORAGE_ANON": "true"}, AzureAccount("lab", LAB, is_anonymous=True)),
        ({}, {**NAME, "AZURE_STORAGE_ANON": "false"}, AzureAccount("lab", LAB)),
        ({}, NAME, AzureAccount("lab", LAB)),
        ({"client_id": "c"}, {**NAME, "AZURE_STORAGE_ANON": "1"}, AzureAccount("lab", LAB)),
        (
            {"account_name": "lab", "endpoint_url": f"{EMULATOR}/", "account_key": KEY},
            {},
            AzureAccount("lab", EMULATOR, key=KEY),
        ),
        (
            {"endpoint_url": LAB, "anon": True},
            {},
            AzureAccount("lab", LAB, is_anonymous=True),
        ),
        (
            {"account_key": KEY},
            {**NAME, "AZURE_STORAGE_ENDPOINT": EMULATOR},
            AzureAccount("lab", EMULATOR, key=KEY),
        ),
        (
            {"account_name": "lab", "account_host": "lab.blob.core.chinacloudapi.cn", "anon": True},
            {},
            AzureAccount("lab", "https://lab.blob.core.chinacloudapi.cn", is_anonymous=True),
        ),
        (
            {
                "connection_string": f"AccountName=lab;AccountKey={KEY};EndpointSuffix=core.windows.net"
            },
            {"AZURE_STORAGE_ACCOUNT_NAME": "other"},
            AzureAccount("lab", LAB, key=KEY),
        ),
        (
            {},
            {
                "AZURE_STORAGE_CONNECTION_STRING": f"BlobEndpoint={LAB}/;SharedAccessSignature=sv=1&sig=a%3D"
            },
            AzureAccount("lab", LAB, sas_token="sv=1&sig=a%3D"),
        ),
    ],
)
def test_options_precede_the_environment(
    options: dict[str, Any], environment: dict[str, str], account: AzureAccount
) -> None:
    assert find_account(options, environment) == account
    is_identity = not (account.key or account.sas_token or account.is_anonymous)
    assert needs_identity(options, environment) == is_identity


def test_the_emulator_has_a_key_that_everyone_knows() -> None:
    account = find_account({"connection_string": "UseDevelopmentStorage=true"}, {})

    assert account.name == "devstoreaccount1"
    assert account.endpoint == EMULATOR
    assert account.key.startswith("Eby8vdM02xNOcqF")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"account_key": KEY},
        {"account_name": "lab", "account_key": "no base64: canary"},
        {"account_name": "lab", "endpoint_url": "ftp://canary"},
        {"account_name": "lab", "endpoint_url": "https://user:canary@host"},
        {"account_name": "lab", "endpoint_url": "https://host?sig=canary"},
        {"account_name": "lab", "endpoint_url": "https://host;AccountKey=canary"},
        {"account_name": "lab/../canary", "anon": True},
        {"connection_string": "canary"},
        {"connection_string": "AccountKey=canary"},
        {"connection_string": "AccountName=lab;AccountKey=no base64: canary"},
    ],
)
def test_a_malformed_account_is_refused_and_not_shown(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        find_account(options, {})

    assert "canary" not in str(caught.value)


def test_an_account_shows_nothing() -> None:
    account = AzureAccount("lab", LAB, key=KEY, sas_token="sig-canary")

    assert KEY not in repr(account)
    assert "canary" not in repr(account)


def test_adlfs_gets_the_account_that_was_found() -> None:
    options = {"account_name": "lab", "account_key": KEY, "endpoint_url": EMULATOR, "blocksize": 1}

    assert adlfs_options(options, {}) == {
        "account_name": "lab",
        "blocksize": 1,
        "connection_string": f"AccountName=lab;AccountKey={KEY};BlobEndpoint={EMULATOR}",
    }
    assert adlfs_options({"client_id": "c"}, NAME) == {
        "client_id": "c",
        "account_name": "lab",
        "account_host": "lab.blob.core.windows.net",
    }


def test_an_identity_logs_in_by_https_only() -> None:
    with pytest.raises(ConfigError, match="https://"):
        adlfs_options({"account_name": "lab", "endpoint_url": EMULATOR}, {})


@pytest.mark.parametrize(
    ("host", "options"),
    [
        ("lab.dfs.core.windows.net", {"account_name": "lab"}),
        ("lab.blob.core.windows.net", {"account_name": "lab"}),
        (
            "lab.dfs.core.chinacloudapi.cn",
            {"account_name": "lab", "account_host": "lab.blob.core.chinacloudapi.cn"},
        ),
        ("container", {}),
        ("$web", {}),
    ],
)
def test_a_host_names_its_account(host: str, options: dict[str, str]) -> None:
    assert account_of_host(host) == options


@pytest.mark.parametrize(
    ("options", "client"),
    [
        ({"account_key": KEY}, "obstore"),
        ({"anon": True}, "obstore"),
        ({}, "obstore"),
        ({"credential": object()}, "fsspec"),
        ({"account_key": KEY, "version_aware": True}, "fsspec"),
    ],
)
def test_adlfs_serves_what_obstore_has_no_option_for(options: dict[str, Any], client: str) -> None:
    assert choose_client(None, "abfss", "data", options, is_installed=True) == client
