"""Logins of S3 that variables and URLs name wrongly, by obstore and by s3fs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from object_server import Answer, Request
from scripted_s3 import LOGIN, ScriptedS3, refusal

from data_stack.exception import ConfigError, DataStackError, ResourceNotFoundError, StorageError
from data_stack.io.storage_connectors.object_store import FsspecStorageConnector
from data_stack.testing.storage_connector import content

CLIENTS = ["obstore", "fsspec"]


@pytest.fixture
def s3() -> Iterator[ScriptedS3]:
    with ScriptedS3() as server:
        server.put("f/plain", b"content")
        yield server


@pytest.fixture(autouse=True)
def no_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment without variables and files of AWS."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.fspath(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def check_refused(s3: ScriptedS3, store: FsspecStorageConnector, *texts: str) -> None:
    """Check that each request is an error with these texts, and that none is sent."""
    for ask in (store.get_resource, store.has_resource, store.stat):
        with pytest.raises(DataStackError) as caught:
            ask("plain")
        assert isinstance(caught.value, (ConfigError, StorageError))
        assert not isinstance(caught.value, ResourceNotFoundError)
        assert [text for text in texts if text not in str(caught.value)] == []
    with pytest.raises(DataStackError):
        store.list_resources()
    assert s3.requests == []


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("by", ["AWS_PROFILE", "URL"])
def test_a_profile_that_does_not_exist_is_an_error(
    s3: ScriptedS3, client: str, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"{s3.place()}&client={client}"
    if by == "URL":
        place += "&profile=nobody"
    else:
        monkeypatch.setenv(by, "nobody")

    check_refused(s3, FsspecStorageConnector.from_url(place), "nobody")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_missing_token_of_a_role_is_an_error(
    s3: ScriptedS3, client: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = os.fspath(tmp_path / "token")
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/reader")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", path)
    store = FsspecStorageConnector.from_url(f"{s3.place()}&client={client}")

    check_refused(s3, store, "AWS_WEB_IDENTITY_TOKEN_FILE", path)


@pytest.mark.parametrize("client", CLIENTS)
def test_keys_are_used_although_a_token_is_missing(
    s3: ScriptedS3, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/reader")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/nowhere/token")
    for name, value in LOGIN.items():
        monkeypatch.setenv(name, value)

    assert content(FsspecStorageConnector.from_url(f"{s3.place()}&client={client}"), "plain")


@pytest.mark.parametrize("client", CLIENTS)
def test_without_a_login_a_missing_credentials_file_is_named(
    s3: ScriptedS3, client: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = os.fspath(tmp_path / "credentials")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", path)
    store = FsspecStorageConnector.from_url(f"{s3.place()}&client={client}")

    check_refused(s3, store, "AWS_SHARED_CREDENTIALS_FILE", path)


@pytest.mark.parametrize("client", CLIENTS)
def test_keys_are_used_although_a_file_of_credentials_is_missing(
    s3: ScriptedS3, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere/credentials")
    for name, value in LOGIN.items():
        monkeypatch.setenv(name, value)
    assert content(FsspecStorageConnector.from_url(f"{s3.place()}&client={client}"), "plain")


@pytest.mark.parametrize("client", CLIENTS)
def test_an_error_without_a_login_says_how_to_read_a_public_bucket(
    s3: ScriptedS3, client: str, tmp_path: Path
) -> None:
    (tmp_path / "config").touch()
    place = f"{s3.place()}&client={client}"

    check_refused(s3, FsspecStorageConnector.from_url(place), "anonymous=true")


def test_a_host_that_cannot_be_found_is_named_as_the_reason() -> None:
    place = "s3://data/f?endpointUrl=http://nowhere.invalid&region=eu-1&anonymous=true"
    store = FsspecStorageConnector.from_url(f"{place}&timeoutSeconds=5")

    with pytest.raises(StorageError, match=r"s3://data/f: .*the host cannot be found"):
        store.list_resources()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_corrected_environment_logs_in(
    s3: ScriptedS3, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rule(request: Request) -> Answer | None:
        if "Credential=right/" in request.headers["authorization"]:
            return None
        return refusal(403, "InvalidAccessKeyId", "There is no such key")

    s3.rule = rule
    place = f"{s3.place()}&client={client}"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", LOGIN["AWS_SECRET_ACCESS_KEY"])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "wrong")
    refused_store = FsspecStorageConnector.from_url(place)
    with pytest.raises(StorageError, match="InvalidAccessKeyId"):
        refused_store.get_resource("plain")

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "right")

    assert content(FsspecStorageConnector.from_url(place), "plain") == b"content"
    assert FsspecStorageConnector.from_url(place).list_resources() == ["plain"]
