"""fsspec's file system for SFTP servers, with checked host keys and pipelined requests.

fsspec's own class trusts any host key, and waits for each 32 KiB before it requests the next.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import threading
from typing import Any
from urllib.parse import unquote

import paramiko
from fsspec.implementations.sftp import SFTPFileSystem

from data_stack.exception import ConfigError, StorageError

# Our errors say the same; without a handler Python would print a traceback for each lost connection.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class VerifiedSFTPFileSystem(SFTPFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Files of an SFTP server whose host key is known.

    Durability is up to the server: SFTP version 3 has no request for syncing.

    Args:
        host: name or address.
        timeout_seconds: limit of connecting, login included, and of each request.
        known_hosts: a file of host keys, in the format of OpenSSH, besides the user's and the system's.
        ssh_kwargs: for ``paramiko.SSHClient.connect``.
    """

    def __init__(
        self,
        host: str,
        timeout_seconds: float,
        known_hosts: str | os.PathLike[str] | None = None,
        **ssh_kwargs: Any,
    ) -> None:
        self._timeout_seconds, self._known_hosts = timeout_seconds, known_hosts
        limits = dict.fromkeys(("timeout", "banner_timeout", "channel_timeout"), timeout_seconds)
        limits["auth_timeout"] = 2 * timeout_seconds  # else a timeout would look like a refusal
        super().__init__(host, **{**limits, **ssh_kwargs})

    @staticmethod
    def _get_kwargs_from_urls(url: str) -> dict[str, Any]:
        options = SFTPFileSystem._get_kwargs_from_urls(url)
        return {
            key: unquote(value) if key in ("username", "password") else value
            for key, value in options.items()
        }

    @property
    def is_connected(self) -> bool:
        """Whether the connection still holds."""
        transport = self.client.get_transport()
        return transport is not None and bool(transport.is_active())

    def disconnect(self) -> None:
        """Close the connection, and end its thread."""
        self.client.close()

    def _connect(self) -> None:
        self.client = paramiko.SSHClient()
        for file in ("/etc/ssh/ssh_known_hosts", os.path.expanduser("~/.ssh/known_hosts")):
            with contextlib.suppress(OSError):
                self.client.load_system_host_keys(file)
        if self._known_hosts is not None:
            try:
                self.client.load_system_host_keys(os.fspath(self._known_hosts))
            except OSError as error:
                raise ConfigError(
                    f"the file of known hosts cannot be read: {error.strerror}"
                ) from None
        self.client.set_missing_host_key_policy(_Refusal())
        # paramiko has steps without a time limit, such as asking for the subsystem.
        watch = threading.Timer(self._timeout_seconds, self.client.close)
        watch.daemon = True
        watch.start()
        try:
            self.client.connect(self.host, **self.ssh_kwargs)
            # Otherwise a request sent before the last answer would wait 40 ms for its acknowledgement.
            with contextlib.suppress(
                OSError, AttributeError
            ):  # it may be a command instead of a socket
                self.client.get_transport().sock.setsockopt(
                    socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
                )
            self.ftp = self.client.open_sftp()
            self.ftp.get_channel().settimeout(self._timeout_seconds)
        except BaseException:
            self.client.close()
            raise
        finally:
            watch.cancel()

    def info(self, path: str) -> dict[str, Any]:
        path = self._strip_protocol(path)
        return {**self._decode_stat(self.ftp.lstat(path)), "name": path}  # of a link itself

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        with self.ftp.open(self._strip_protocol(path), "rb") as file:
            size = file.stat().st_size or 0
            first, n_bytes = (
                start or 0,
                max(0, (size if end is None else min(end, size)) - (start or 0)),
            )
            # All pieces are requested before the first one arrives.
            return next(iter(file.readv([(first, n_bytes)]))) if n_bytes else b""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        with self.open(path, "xb" if mode == "create" else "wb") as file:
            file.set_pipelined(True)
            file.write(value[:-1])
            # The last write waits for the answers to all writes; closing would ignore their errors.
            file.set_pipelined(False)
            file.write(value[-1:])

    def _open(
        self, path: str, mode: str = "rb", block_size: int | None = None, **kwargs: Any
    ) -> Any:
        try:
            return super()._open(path, mode.replace("x", "wx"), block_size, **kwargs)
        except OSError:
            # Servers report an existing file as a general failure.
            if "x" in mode and self.exists(path):
                raise FileExistsError(errno.EEXIST, "the file exists", path) from None
            raise


class _Refusal(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]  # paramiko has no types
    """Refuses a server with an unknown host key."""

    def missing_host_key(
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        problem = f"the host key of the SFTP server {hostname} is not known ({key.get_name()} {key.fingerprint})"
        advice = "add it: `ssh-keyscan -p PORT HOST >> ~/.ssh/known_hosts`, or name a file that holds it (known_hosts=…)"
        raise StorageError(
            f"{problem}; no login was sent. If its operator confirms this key, {advice}."
        )
