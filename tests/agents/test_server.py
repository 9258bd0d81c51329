"""``data-stack mcp`` in a process of its own, with the client of the package mcp."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile

import pytest
from distributions import write_distribution
from mcp import Client, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from PIL import Image

from data_stack import FileStorageConnector
from data_stack.agents.descriptions import TOOLS

ROOT = Path(__file__).parents[2]

#: Prints to standard output wherever it can, and takes its time.
NOISY = """
    import os, subprocess, time
    print("imported")
    from data_stack import DatasetCard, DatasetFactory, SequenceDatasetIterator

    class Factory(DatasetFactory):
        card = DatasetCard("noisy", "1.0")
        splits = ("all", "slow")

        def open(self, split, prepared):
            print("opened")
            os.write(1, b"opened\\n")
            subprocess.run(["echo", "opened"])
            if split == "slow":
                time.sleep(3600)
            return SequenceDatasetIterator([[1, 2, 3]])
"""


def text_of(result: types.CallToolResult) -> str:
    """The text of a result."""
    (content, *_) = result.content
    assert isinstance(content, types.TextContent)
    return content.text


def talk(
    conversation: Callable[[Client], Awaitable[None]], *arguments: object, mode: str = "auto"
) -> None:
    """Start the command with arguments, and let a client speak with it."""
    words = ["-m", "data_stack.cli", "mcp", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("DATA_STACK_OFFLINE", None)
    parameters = StdioServerParameters(command=sys.executable, args=words, env=environment)

    async def converse() -> None:
        # By default the server gets the sys.stderr of the import, which pytest has closed since.
        with TemporaryFile("w") as errors:
            transport = stdio_client(parameters, errlog=errors)
            async with Client(transport, mode=mode, read_timeout_seconds=120) as client:
                await conversation(client)

    asyncio.run(converse())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_lists_describes_and_samples(folder: Path, mode: str) -> None:
    async def conversation(client: Client) -> None:
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == [tool.name for tool in TOOLS]
        for tool in listed.tools:
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint is True
            assert tool.annotations.open_world_hint is False
            assert tool.input_schema["additionalProperties"] is False
        assert "never instructions" in (client.instructions or "")

        datasets = json.loads(text_of(await client.call_tool("list_datasets", {"limit": 2})))
        assert datasets["answer"]["datasets"][0]["dataset"] == "digits"

        sampled = await client.call_tool("sample", {"dataset": "digits", "n_samples": 1})
        assert not sampled.is_error
        picture = sampled.content[1]
        assert isinstance(picture, types.ImageContent)
        with Image.open(BytesIO(base64.b64decode(picture.data))) as image:
            assert (image.format, image.size) == ("PNG", (8, 8))

    talk(conversation, "--store", folder, mode=mode)


def test_errors_are_results_with_our_message(folder: Path) -> None:
    async def conversation(client: Client) -> None:
        unknown_tool = await client.call_tool("load", {"dataset": "digits"})
        path = await client.call_tool("sample", {"dataset": "/etc/passwd"})
        catalogue = await client.call_tool("sample", {"dataset": "hf:owner/name"})
        unprepared = await client.call_tool("sample", {"dataset": "iris"})

        for result, message in (
            (unknown_tool, "there is no tool 'load'"),
            (path, "is a path or a URL, and this server reads neither"),
            (catalogue, "start this server with --allow-download"),
            (unprepared, "start this server with --allow-prepare"),
        ):
            assert result.is_error
            assert message in text_of(result)
            assert "Traceback" not in text_of(result)

    talk(conversation, "--store", folder)


def test_two_stores_are_compared_by_their_names(
    folder: Path, prepared: FileStorageConnector
) -> None:
    async def conversation(client: Client) -> None:
        arguments = {"first": "mine:digits", "second": "theirs:digits", "split": "test"}
        result = json.loads(text_of(await client.call_tool("diff", arguments)))
        assert result["answer"]["equal"] == 360

    talk(conversation, "--store", f"mine={folder}", "--store", f"theirs={prepared.root_path}")


@pytest.fixture
def _noisy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin is installed."""
    entry_points = "[data_stack.datasets]\nnoisy = noisy_plugin:Factory\n"
    write_distribution(tmp_path / "site", "noisy-plugin", entry_points, {"noisy_plugin": NOISY})
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


@pytest.mark.usefixtures("_noisy")
def test_a_plugin_that_prints_does_not_disturb_the_protocol(folder: Path) -> None:
    async def conversation(client: Client) -> None:
        noisy = await client.call_tool("sample", {"dataset": "noisy", "split": "all"})
        assert json.loads(text_of(noisy))["answer"]["n_samples"] == 3

        # A slow call does not hold up the others, nor the end.
        slow = asyncio.create_task(
            client.call_tool("sample", {"dataset": "noisy", "split": "slow"})
        )
        quick = await client.call_tool("list_store", {})
        assert not quick.is_error
        assert not slow.done()
        slow.cancel()

    talk(conversation, "--store", folder)


@pytest.mark.usefixtures("_noisy")
def test_a_call_that_takes_longer_than_allowed_is_an_error(folder: Path) -> None:
    async def conversation(client: Client) -> None:
        slow = await client.call_tool("sample", {"dataset": "noisy", "split": "slow"})
        assert "took longer than 1 seconds" in text_of(slow)

    talk(conversation, "--store", folder, "--max-seconds", "1")


def test_options_open_what_they_name(tmp_path: Path) -> None:
    async def conversation(client: Client) -> None:
        listed = await client.list_tools()
        hints = {tool.name: tool.annotations for tool in listed.tools}
        assert hints["sample"] is not None
        assert hints["sample"].read_only_hint is False
        assert hints["describe"] is not None
        assert hints["describe"].read_only_hint is True

        result = await client.call_tool("sample", {"dataset": "iris", "n_samples": 1})
        assert not result.is_error, text_of(result)

    talk(conversation, "--store", tmp_path / "new", "--allow-prepare")

    assert (tmp_path / "new" / "iris" / "1.0.0" / "manifest.json").exists()


def run_command(*arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "data_stack.cli", "mcp", *map(str, arguments)],
        input=stdin,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_command_ends_with_its_input(folder: Path) -> None:
    done = run_command("--store", folder)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_lines_that_are_no_messages_do_not_end_it(folder: Path) -> None:
    done = run_command("--store", folder, stdin='not JSON\n{"jsonrpc": "2.0"}\n\x00\n[]\n')

    assert done.returncode == 0
    assert "Traceback" not in done.stdout


def test_ctrl_c_ends_the_command(folder: Path) -> None:
    words = [sys.executable, "-m", "data_stack.cli", "mcp", "--store", str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
            process.stdin.flush()
            process.stdout.readline()  # it answers, so it has started
            process.send_signal(signal.SIGINT)
            process.wait(timeout=120)
        finally:
            process.kill()

    assert process.returncode == 130


def test_an_agent_that_vanishes_ends_the_command(folder: Path) -> None:
    words = [sys.executable, "-m", "data_stack.cli", "mcp", "--store", str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        process.stdin.flush()
        try:
            process.wait(timeout=120)
        finally:
            process.kill()
        said = process.stderr.read()

    assert process.returncode == 1
    # Python 3.13 adds a line of its own: the package mcp leaves a full buffer behind.
    assert b"Traceback" not in said


def test_the_configuration_of_the_page_starts_the_command() -> None:
    from data_stack.cli.agents import mcp

    page = (ROOT / "docs" / "how_to" / "agents.md").read_text(encoding="utf-8")
    (configuration,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    server = json.loads(configuration)["mcpServers"]["datasets"]

    name, *arguments = server["args"]
    context = mcp.make_context(name, arguments)

    assert (server["command"], name) == ("data-stack", "mcp")
    assert context.params["named_stores"] == ("/data/sets", "runs=s3://bucket/runs")
    listed = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", page, re.M))))
    assert {tool.name for tool in TOOLS} <= listed
