"""Builds and checks the packages of data_stack and its plugins, and tries them (`make dist-check`).

python tools/build_packages.py [--only-build]

The environment of this program needs build, setuptools, twine and check-wheel-contents. Nothing is
uploaded.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

import package_version

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"

#: The folders of the projects by the names of their packages.
PROJECTS = {"data_stack": ROOT} | {
    package.name: package.parent
    for package in sorted(ROOT.glob("plugins/*/data_stack_*"))
    if package.is_dir()
}

#: Files of each project that its packages need, as far as it has them.
COPIED_FILES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "llms.txt")

#: Where the files of the project can be read, such as ``"https://…/blob/main"``; without it, links
#: to them become text.
FILES_URL = ""
RELATIVE_LINK = re.compile(r"(!?)\[([^][]*)\]\((?!\w+:|#)([^)\s]+)\)")

#: A wheel holds code and texts alone. A larger one has most likely taken data along.
MAX_BYTES = 4 << 20
FORBIDDEN = {"benchmarks", "docs", "fixtures", "getting_started", "test", "tests"}


def copy_projects(folder: Path) -> list[Path]:
    """Copy what belongs into the packages, with the license: not the tests, and nothing that a
    former build left.
    """
    copies = []
    for package, project in PROJECTS.items():
        copy = folder / project.relative_to(ROOT)
        shutil.copytree(
            project / package, copy / package, ignore=shutil.ignore_patterns("__pycache__")
        )
        for file in (
            ROOT / "LICENSE",
            *(project / name for name in COPIED_FILES),
        ):
            if file.exists():
                shutil.copy(file, copy)
        for page in (copy / "README.md", copy / "llms.txt"):
            if page.exists():
                text = page.read_text(encoding="utf-8")
                page.write_text(replace_links(text, project.relative_to(ROOT)), encoding="utf-8")
        copies.append(copy)
    return copies


def replace_links(text: str, folder: Path) -> str:
    """A README of ``folder`` for a package index, where relative links lead nowhere: they lead to
    FILES_URL, or become text.
    """

    def replace(link: re.Match[str]) -> str:
        image, words, target = link.groups()
        if FILES_URL:
            return f"{image}[{words}]({FILES_URL}/{os.path.normpath(folder / target)}{'?raw=true' * bool(image)})"
        return "" if image else words

    return RELATIVE_LINK.sub(replace, text)


STARTED = time.monotonic()


def tell(text: str) -> None:
    """Print what is done, and after how many seconds."""
    print(f"{time.monotonic() - STARTED:4.0f} s: {text}", flush=True)


def run(*command: str | Path, folder: Path = ROOT, **environment: str) -> str:
    """Run a command and return what it printed; end this program with its output if it fails."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(
            f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}\nexit status {done.returncode}"
        )
    return done.stdout


def build(folder: Path) -> list[Path]:
    """Build an sdist of each project, and of that a wheel, into dist/."""
    shutil.rmtree(DIST, ignore_errors=True)

    def build_project(project: Path) -> None:
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", DIST, project)

    with ThreadPoolExecutor(os.cpu_count()) as executor:
        list(executor.map(build_project, copy_projects(folder)))
    return sorted(DIST.iterdir())


def contents(path: Path) -> dict[str, bytes]:
    """The files of a wheel or sdist."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist()}
    with tarfile.open(path) as sdist:
        files = {
            member.name.partition("/")[2]: sdist.extractfile(member)
            for member in sdist
            if member.isfile()
        }
        return {name: file.read() for name, file in files.items() if file is not None}


def find_faults(path: Path, version: str) -> Iterator[str]:
    """What is wrong with a wheel or sdist."""
    files = contents(path)
    names = [PurePosixPath(name) for name in files]
    if path.stat().st_size > MAX_BYTES:
        yield f"it has {path.stat().st_size:,} bytes, more than {MAX_BYTES:,}"
    for name in names:
        if FORBIDDEN.intersection(name.parts) or name.suffix in (".ipynb", ".pyc", ".so"):
            yield f"{name} does not belong into a package"
    for wanted in ("LICENSE", "py.typed"):
        if wanted not in {name.name for name in names}:
            yield f"it has no {wanted}"
    is_our_sdist = path.name.startswith("lazy_data_stack-") and path.suffix == ".gz"
    if is_our_sdist and "llms.txt" not in files:
        yield "it has no llms.txt"
    metadata = next(
        text.decode() for name, text in files.items() if name.endswith(("METADATA", "PKG-INFO"))
    )
    for wanted in (
        f"Version: {version}",
        "License(-Expression)?: MIT",
        "License-File: LICENSE",
        r"Name: lazy-data-stack[\w-]*",
    ):
        if not re.search(f"^{wanted}$", metadata, re.MULTILINE):
            yield f"its metadata have no line {wanted!r}"
    yield from (
        f"its README has the relative link {link[0]}" for link in RELATIVE_LINK.finditer(metadata)
    )


def check(paths: list[Path]) -> None:
    """Check the packages as the index does, and by rules of our own."""
    (version,) = set(package_version.versions().values())
    faults = [f"{path.name}: {fault}" for path in paths for fault in find_faults(path, version)]
    if len(paths) != 2 * len(PROJECTS):
        faults.append(f"expected {2 * len(PROJECTS)} packages, found {len(paths)}")
    if faults:
        sys.exit("\n".join(faults))
    run(sys.executable, "-m", "twine", "check", "--strict", *paths)
    run(Path(sys.executable).with_name("check-wheel-contents"), *DIST.glob("*.whl"))


def install(python: Path, *requirements: str) -> None:
    """Install requirements by pip; ours must come from dist/."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        options = (
            "--quiet",
            "--no-compile",
            "--disable-pip-version-check",
            "--find-links",
            str(DIST),
            "--report",
            report.name,
        )
        run(python, "-m", "pip", "install", *options, *requirements, folder=DIST)
        installed = json.loads(Path(report.name).read_text(encoding="utf-8"))["install"]
    for each in installed:
        name, url = each["metadata"]["name"], each["download_info"]["url"]
        if name.startswith("lazy-data-stack") and not url.startswith(DIST.as_uri()):
            sys.exit(f"pip installed {name} from {url}, not from {DIST}")


def try_out(folder: Path) -> None:
    """Install by README's line into a fresh environment, run the quickstart there, then a check of
    each extra and plugin.
    """
    line = re.search(
        r'pip install --find-links dist "([^"]+\[([^"]+)\])"',
        (ROOT / "README.md").read_text(encoding="utf-8"),
    )
    torch = re.search(
        r"^torch==[\d.]+", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    if line is None or torch is None:
        sys.exit(
            "README.md has no line of pip that installs from dist/, or constraints.txt no torch"
        )
    run(sys.executable, "-m", "venv", folder / "environment")
    python = folder / "environment" / "bin" / "python"
    (folder / "few").mkdir()
    (folder / "all").mkdir()
    for program in ("getting_started/quickstart.py", "tools/smoke.py"):
        shutil.copy(ROOT / program, folder)
    install(python, torch[0], line[1])
    run(python, folder / "quickstart.py", folder=folder)
    tell("the quickstart runs")
    environment = {"DATA_STACK_HOME": str(folder / "store"), "DATA_STACK_STRICT_PLUGINS": "1"}
    # Here, packages are missing that other extras bring.
    install(python, "lazy-data-stack[petastorm]")
    smoke = (python, "-W", "ignore", folder / "smoke.py")
    run(*smoke, *line[2].split(","), "petastorm", folder=folder / "few", **environment)
    tell("the extras of the README and Petastorm work without the others")
    install(python, torch[0], "lazy-data-stack[all,ray,spark,testing]")
    tell("installed all extras")
    print(run(*smoke, folder=folder / "all", **environment), end="")


def main() -> None:
    """Build, check and try the packages."""
    with tempfile.TemporaryDirectory(prefix="data-stack-") as temporary:
        paths = build(Path(temporary, "clone"))
        tell(f"built {len(paths)} packages")
        check(paths)
        tell("checked them")
        if "--only-build" not in sys.argv:
            try_out(Path(temporary))
            tell("each extra and plugin works from dist/")


if __name__ == "__main__":
    main()
