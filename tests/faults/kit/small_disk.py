"""Small and breakable disks: a tmpfs of a given size, an ext4 in a loop file. Both need root."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path


@functools.lru_cache(maxsize=1)
def why_no_mounts() -> str | None:
    """Why no disk can be mounted here; None if it can."""
    if os.geteuid() != 0:
        return "mounting needs root"
    with tempfile.TemporaryDirectory() as folder:
        try:
            disk = Ext4(Path(folder))
            disk.close()
        except (OSError, subprocess.CalledProcessError) as error:
            return f"a loop file with ext4 cannot be mounted here ({error})"
    return None


@contextlib.contextmanager
def tmpfs(folder: Path, size_bytes: int) -> Iterator[Path]:
    """A file system in memory with room for ``size_bytes``."""
    folder.mkdir(exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "none", str(folder))
    try:
        yield folder
    finally:
        _unmount(folder)


def remount_larger(folder: Path) -> None:
    """Give a tmpfs room for 64 MiB."""
    _run("mount", "-o", f"remount,size={64 << 20}", str(folder))


class Ext4:
    """A small ext4 that can lose its power; ``path`` is where it is mounted."""

    def __init__(self, folder: Path, n_bytes: int = 24 << 20) -> None:
        self.path, self._image = folder / "disk", folder / "image"
        self._n_bytes = n_bytes
        self.path.mkdir(exist_ok=True)
        self.make_new(mounted=False)

    def make_new(self, *, mounted: bool = True) -> None:
        """An empty file system."""
        if mounted:
            _unmount(self.path)
        self._image.unlink(missing_ok=True)
        with self._image.open("wb") as file:
            file.truncate(self._n_bytes)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
        self._mount()

    def plug_in_again(self) -> None:
        """After the power was lost: what had arrived on the disk, and nothing else."""
        _unmount(self.path)
        self._mount()

    def close(self) -> None:
        _unmount(self.path)

    def _mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.path))


def _unmount(folder: Path) -> None:
    for _ in range(100):
        if (
            subprocess.run(["umount", str(folder)], check=False, capture_output=True).returncode
            == 0
        ):
            return
        time.sleep(0.05)
    raise OSError(f"cannot unmount {folder}")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
