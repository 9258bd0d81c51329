"""What is hidden of errors: secrets, and no parts of ordinary words."""

from __future__ import annotations

import pytest

from data_stack.io.redaction import hide_credentials, redact, shorten
from data_stack.io.storage_connectors.object_store.errors import reason_of

LONG = "canary-secret-8f2"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no database", "no database"),
        ("no database of data", "no database of {}"),
        ("login data:data refused", "login {}:{} refused"),
        ("key='data'", "key='{}'"),
        (f"x{LONG}x", "x{}x"),
        (f"the header {LONG}", "the header {}"),
    ],
)
def test_a_secret_is_hidden_and_no_part_of_a_word(text: str, shown: str) -> None:
    options = {"secret": "data", "client_kwargs": {"token": LONG}}
    source = f"https://user:data@host/file?token={LONG}"

    assert reason_of(ValueError(text), options) == "ValueError: " + shown.replace("{}", "…")
    assert redact(text, source) == shown.replace("{}", "***")


def test_a_message_of_a_server_has_no_control_characters() -> None:
    assert reason_of(ValueError("a\x1b[31mb"), {}) == "ValueError: a [31mb"


def test_the_old_name_warns_and_hides_credentials() -> None:
    url = "https://user:secret@host/file?token=1234"

    with pytest.warns(DeprecationWarning, match=r"shorten\(\) is deprecated"):
        shown = shorten(url)

    assert shown == hide_credentials(url) == "https://***@host/file?token=***"
