"""Runs the ``data-stack`` command."""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Sequence

import click

from data_stack.cli import authors, commands, datasets, files, stores  # noqa: F401  # each adds its commands
from data_stack.cli.common import OFFLINE, Settings, cli, echo
from data_stack.exception import (
    ConfigError,
    DatasetNotFoundError,
    DataStackError,
    MalformedIdentifierError,
)
from data_stack.show.markup import printable

_OK, _FAILED, _USAGE, _INTERRUPTED = 0, 1, 2, 130

#: Wrong usage; other errors of data_stack are failures of the data or the operation.
_USAGE_ERRORS = (DatasetNotFoundError, ConfigError, MalformedIdentifierError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with ``arguments`` (None: the arguments of the process) and return its exit code."""
    _prepare_streams()
    settings = Settings()
    handler = logging.StreamHandler()  # stderr
    handler.setFormatter(PrintableFormatter("%(levelname)s: %(message)s"))
    logger = logging.getLogger("data_stack")
    level, offline = logger.level, os.environ.get(OFFLINE)
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: logger.warning(
                "%s", message
            )  # without our line of code
            code = cli.main(
                args=arguments, prog_name="data-stack", standalone_mode=False, obj=settings
            )
        sys.stdout.flush()  # raises here, not after main, if the disk is full or the pipe is closed
        return code if isinstance(code, int) else _OK
    except click.Abort:
        return _fail("interrupted", _INTERRUPTED)
    except click.ClickException as error:
        error.show()
        return error.exit_code if isinstance(error, click.UsageError) else _FAILED
    except (DataStackError, OSError) as error:
        if settings.debug:
            echo(traceback.format_exc().rstrip("\n"), err=True)
        if not isinstance(error, DataStackError) and error.errno in (
            errno.EPIPE,
            errno.ENOSPC,
            errno.EIO,
        ):
            with open(os.devnull, "wb") as nothing:
                os.dup2(
                    nothing.fileno(), 1
                )  # flushing the buffer when Python exits must not fail again
        if isinstance(error, BrokenPipeError):
            return _FAILED
        return _fail(str(error), _USAGE if isinstance(error, _USAGE_ERRORS) else _FAILED)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        os.environ.pop(OFFLINE, None)
        if offline is not None:
            os.environ[OFFLINE] = offline


class PrintableFormatter(logging.Formatter):
    """Escapes control characters in log messages."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), keep="\n\t")


def _prepare_streams() -> None:
    """Let streams print any text in any locale, and replace closed streams, so that no file reuses their descriptors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(
                sys, name, open(os.devnull, mode, encoding="utf-8")
            )  # open until the process ends
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _fail(message: str, code: int) -> int:
    with contextlib.suppress(OSError):  # stderr may be closed, too
        echo(f"data-stack: {message}", err=True)
    return code
