"""Which plugins are installed, what they bring: those of others, our own, those of the
documentation.
"""

from __future__ import annotations

import ast
import inspect
import pickle
import re
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributions import write_distribution
from process_harness import run_python
from writing import append_all

import data_stack
from data_stack import CatalogueName
from data_stack.cli.preparing import engine_of_options
from data_stack.codecs import IntCodec, codec_of
from data_stack.dataset.encoders import encoder_from_state
from data_stack.exception import (
    AmbiguousDatasetError,
    ConfigError,
    DatasetNotFoundError,
    PluginError,
)
from data_stack.formats import convert
from data_stack.formats.records import RecordReader, RecordWriter
from data_stack.formats.registry import all_formats, detect_format
from data_stack.io.location import location_of
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.plugins import PluginManager, default_manager, hookspecs
from data_stack.repository import encoders, storage_connector_from_url

Site = Any  # the class in conftest.py, which cannot be imported from here


def test_listing_fifty_datasets_imports_none_of_them(site: Site, manager: PluginManager) -> None:
    names = [f"set{i:02}" for i in range(50)]
    for name in names:
        site.install_dataset(name, "raise SystemExit('imported')")

    assert [name for name in manager.dataset_names() if name in names] == names
    assert {record.state for record in site.records(manager.records()).values()} == {"listed"}
    assert not [module for module in sys.modules if module.startswith(tuple(names))]


@pytest.mark.parametrize("name", ["bad name", "../up", "a/b", "a:b"])
def test_a_malformed_name_is_broken_and_its_neighbour_is_listed(
    site: Site, manager: PluginManager, name: str
) -> None:
    site.install("odd", f"[data_stack.datasets]\n{name} = module:Factory\ngood = module:Factory\n")

    records = site.records(manager.records())

    assert records.pop("good").state == "listed"
    (broken,) = records.values()
    assert (broken.state, "name cannot be used" in str(broken.error)) == ("broken", True)
    assert "good" in manager.dataset_names()
    assert broken.name not in manager.dataset_names()


# ---------------------------------------------------------------------- one name twice


def test_a_name_in_two_distributions_is_ambiguous_without_the_distribution(
    site: Site, manager: PluginManager
) -> None:
    site.install_dataset("numbers", distribution="first-One")
    site.install_dataset("numbers", distribution="second")
    site.install_dataset("other")

    with pytest.raises(AmbiguousDatasetError, match=r"'first-One:numbers' or 'second:numbers'"):
        manager.load_dataset("numbers")
    states = {
        record.distribution: record.state
        for record in manager.records()
        if record.distribution in site.distributions
    }
    assert states == {"first-One": "shadowed", "second": "shadowed", "other-plugin": "listed"}
    names = [name for name in manager.dataset_names() if name.endswith(":numbers")]
    assert names == ["first-One:numbers", "second:numbers"]
    modules = [
        manager.load_dataset(name).__module__ for name in (*names, "First_one:numbers", "other")
    ]
    assert modules == [
        "first_One_numbers",
        "second_numbers",
        "first_One_numbers",
        "other_plugin_other",
    ]
    with pytest.raises(DatasetNotFoundError):
        manager.load_dataset("third:numbers")


# ---------------------------------------------------------------------- one distribution twice

FACTORY_MODULE = """
from data_stack.dataset.factory import BaseDatasetFactory
class Factory(BaseDatasetFactory):
    def get_dataset_iterator(self, config):
        raise KeyError(config)
"""


def test_metadata_left_of_an_older_version_hide_nothing(site: Site, manager: PluginManager) -> None:
    for version, dataset in (("9.0", "gone"), ("10.0", "here"), ("2.0", "gone_too")):
        write_distribution(
            site.folder,
            "wine",
            f"[data_stack.datasets]\n{dataset} = wine_here:Factory\n",
            {"wine_here": FACTORY_MODULE},
            version=version,
        )

    records = {record.name: record for record in manager.doctor() if record.distribution == "wine"}

    assert manager.load_dataset("here").__name__ == "Factory"
    assert {name: (record.state, record.version) for name, record in records.items()} == {
        "gone": ("shadowed", "9.0"),
        "gone_too": ("shadowed", "2.0"),
        "here": ("ok", "10.0"),
    }
    assert f"wine is installed twice: 10.0 in {site.folder} is used, 9.0" in str(
        records["gone"].error
    )
    assert "gone" not in manager.dataset_names()


def test_the_first_folder_of_the_path_counts(
    site: Site, manager: PluginManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry_points = "[data_stack.datasets]\nwine = wine_module:Factory\n"
    modules = {"wine_module": FACTORY_MODULE}
    write_distribution(site.folder, "wine", entry_points, modules, version="1.0")
    write_distribution(tmp_path / "other", "wine", entry_points, version="2.0")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "other")])

    states = {r.version: r.state for r in manager.doctor() if r.distribution == "wine"}

    assert states == {"1.0": "ok", "2.0": "shadowed"}


def test_equal_copies_of_a_distribution_are_no_problem(
    site: Site, manager: PluginManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry_points = "[data_stack.datasets]\nwine = wine_module:Factory\n"
    write_distribution(site.folder, "wine", entry_points, {"wine_module": FACTORY_MODULE})
    write_distribution(tmp_path / "source", "wine", entry_points)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "source")])

    assert [r.state for r in manager.doctor() if r.distribution == "wine"] == ["ok"]


# ---------------------------------------------------------------------- switches


@pytest.mark.parametrize(
    ("value", "usable"),
    [("1", []), ("", ["a", "b"]), ("a", ["b"]), (" B_Plugin , c", ["a"]), ("b-plugin:b", ["a"])],
)
def test_a_variable_disables_plugins(
    site: Site,
    manager: PluginManager,
    monkeypatch: pytest.MonkeyPatch,
    value: str,
    usable: list[str],
) -> None:
    site.install_dataset("a")
    site.install_dataset("b")

    monkeypatch.setenv("DATA_STACK_DISABLE_PLUGINS", value)

    records = site.records(manager.records())
    assert [name for name in manager.dataset_names() if name in "ab"] == usable
    assert {name: record.state for name, record in records.items()} == {
        name: "listed" if name in usable else "blocked" for name in "ab"
    }


BROKEN = {
    "exits": ("import sys; sys.exit('bye')", SystemExit),
    "stops": ("raise GeneratorExit", GeneratorExit),
    "no_python": ("def Factory(:", SyntaxError),
    "lacks_class": ("factory = 1", AttributeError),
    "cannot_be_shown": (
        "class E(Exception):\n    def __str__(self): return 1 / 0\nraise E",
        Exception,
    ),
    "number": ("Factory = 7", ConfigError),
    "other_class": ("class Factory: pass", ConfigError),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_dataset_raises_its_error_and_disturbs_no_other(
    site: Site, manager: PluginManager, kind: str
) -> None:
    source, error = BROKEN[kind]
    site.install_dataset("broken", source)
    site.install_dataset("whole")

    with pytest.raises(PluginError, match=r"dataset 'broken' of broken-plugin 1\.0") as caught:
        manager.load_dataset("broken")

    assert isinstance(caught.value.__cause__, error)
    assert manager.load_dataset("whole").__name__ == "Factory"
    records = site.records(manager.records())
    assert (records["broken"].state, records["whole"].state) == ("broken", "ok")
    assert type(caught.value.__cause__).__name__ in str(records["broken"].error)
    assert {"broken", "whole"} <= set(manager.dataset_names())


def test_ctrl_c_while_a_plugin_is_imported_reaches_the_user(
    site: Site, manager: PluginManager
) -> None:
    site.install_dataset("numbers", "raise KeyboardInterrupt")

    with pytest.raises(KeyboardInterrupt):
        manager.load_dataset("numbers")

    assert site.records(manager.records())["numbers"].state == "listed"


PLUGINS = Path(__file__).parents[2] / "plugins"
PACKAGES = sorted(PLUGINS.glob("*/data_stack_*/"))
#: Of named tuples, and of pyspark for access to the JVM.
KNOWN = {"_asdict", "_fields", "_make", "_replace", "_active_spark_context", "_jsc", "_jvm"}


def _private_attributes_used(nodes: list[ast.AST]) -> set[str]:
    used: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Attribute) and re.match(r"_[^_]", node.attr):
            used.add(node.attr)
    return used


def _names_defined(nodes: list[ast.AST]) -> set[str]:
    defined: set[str] = set()
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            defined.add(node.target.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            defined.add(node.attr)
    return defined


def test_plugins_use_no_private_attributes_of_others() -> None:
    found = []
    for package in PACKAGES:
        nodes: list[ast.AST] = []
        for module in package.rglob("*.py"):
            nodes += ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        foreign = _private_attributes_used(nodes) - _names_defined(nodes) - KNOWN
        found += [f"{package.name}: {name}" for name in sorted(foreign)]

    assert found == []


def test_a_program_of_records_alone_knows_a_plugins_column_type(site: Site, tmp_path: Path) -> None:
    site.install_hooks(
        "shout",
        """
        from data_stack.codecs import IntCodec
        from data_stack.plugins import hookimpl
        @hookimpl
        def data_stack_codecs():
            return {"loud": IntCodec()}
        """,
    )
    program = f"""
import sys
sys.path.insert(0, {str(site.folder)!r})
from data_stack.formats.records import RecordReader, RecordWriter
from data_stack.formats.registry import all_formats, detect_format
from data_stack.io.location import location_of
with RecordWriter({str(tmp_path / "numbers")!r}, {{"x": "loud"}}) as writer:
    writer.append({{"x": 7}})
print(RecordReader({str(tmp_path / "numbers")!r})[0])
"""

    assert run_python("-c", program)[0] == "{'x': 7}\n"


def test_a_program_of_parquet_alone_knows_a_plugins_scheme(site: Site, tmp_path: Path) -> None:
    site.install_hooks(
        "shelf",
        f"""
        from data_stack.io.storage_connectors.file import FileStorageConnector
        from data_stack.plugins import hookimpl
        @hookimpl
        def data_stack_storage_connectors():
            return {{"shelf": lambda url: FileStorageConnector({str(tmp_path)!r})}}
        """,
    )
    program = f"""
import sys
sys.path.insert(0, {str(site.folder)!r})
import pyarrow as pa, pyarrow.parquet as pq
from data_stack.formats.parquet import ParquetDataset
from data_stack.io.folder import folder_of
pq.write_table(pa.table({{"x": [7]}}), {str(tmp_path / "rows.parquet")!r})
print(folder_of("shelf://any").list_names()[-1], int(ParquetDataset("shelf://any/rows.parquet")[0]["x"]))
"""

    assert run_python("-c", program)[0].endswith(" 7\n")


@pytest.mark.parametrize(
    "call", ["data_stack.load({folder!r})[0]", "default_manager().provided('catalogues')['hf']"]
)
def test_heavy_packages_are_not_imported_until_a_catalogue_is_used(
    tmp_path: Path, call: str
) -> None:
    append_all(RecordWriter(tmp_path, {"n": "i64"}), [{"n": 1}])
    program = f"""
import sys
import data_stack
from data_stack.plugins import default_manager
{call.format(folder=str(tmp_path))}
print([each for each in ("pyarrow", "pandas", "huggingface_hub", "sklearn", "arff") if each in sys.modules])
"""

    assert run_python("-c", program)[0] == "[]\n"


DOCS = Path(data_stack.__file__).parents[1] / "docs"
PAGE = (DOCS / "plugins.md").read_text(encoding="utf-8")
PAGE_OF_LAYERS = (DOCS / "how_to" / "layer.md").read_text(encoding="utf-8")
#: The examples by the names of their suites, without "Contract".
EXAMPLES = {
    match[2]: match[1]
    for match in re.finditer(
        r"```python\n((?:(?!```).)*?\((\w+)Contract\):.*?)```", PAGE + PAGE_OF_LAYERS, re.DOTALL
    )
}


def test_there_is_an_example_of_each_kind() -> None:
    assert set(EXAMPLES) == {"StorageConnector", "Retriever", "Engine", "Encoder", "Codec", "Layer"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.full) if name != "Codec" else name
        for name in sorted(EXAMPLES)
    ],
)
def test_an_example_keeps_its_contract(tmp_path: Path, name: str) -> None:
    (tmp_path / "test_example.py").write_text(EXAMPLES[name], encoding="utf-8")

    arguments = ["-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null"]
    said, _ = run_python(*arguments, tmp_path / "test_example.py", timeout_seconds=280)

    assert " passed" in said


#: The examples that are plugins, by the hook that each defines.
EXAMPLES_OF_HOOKS = {
    match[2]: match[1]
    for match in re.finditer(
        r"```python\n((?:(?!```).)*?@hookimpl\ndef data_stack_(\w+)\(.*?)```", PAGE, re.DOTALL
    )
}


def test_there_is_an_example_of_each_hook() -> None:
    hooks = {name.removeprefix("data_stack_") for name in vars(hookspecs) if "data_stack_" in name}

    assert set(EXAMPLES_OF_HOOKS) == hooks


def test_each_hook_has_a_section_that_begins_as_its_docstring() -> None:
    sections = re.findall(r"^### `(data_stack_\w+)`\n\n(.*)$", PAGE, re.MULTILINE)
    first_lines = {
        name: (inspect.getdoc(hook) or "").partition("\n")[0].replace("``", "`")
        for name, hook in vars(hookspecs).items()
        if name.startswith("data_stack_")
    }

    assert dict(sections) == first_lines
    assert len(sections) == len(first_lines)


@pytest.mark.parametrize("name", sorted(EXAMPLES_OF_HOOKS))
def test_the_hook_of_an_example_is_accepted(site: Site, manager: PluginManager, name: str) -> None:
    site.install_hooks("example", EXAMPLES_OF_HOOKS[name])

    (record,) = site.records(manager.doctor()).values()

    assert (record.state, record.error) == ("ok", None)


def test_the_catalogue_of_the_page_is_searched_and_loaded(
    site: Site, manager: PluginManager
) -> None:
    site.install_hooks("example", EXAMPLES_OF_HOOKS["catalogues"])
    catalogue = manager.provided("catalogues")["series"]

    [entry] = catalogue.search("cub")
    name = CatalogueName.parse(entry.name)
    assert name is not None
    samples = catalogue.find(name).get_dataset_iterator({"split": "all"})[0]

    assert samples[3] == (27,)


STORAGE = """
    from data_stack.io.storage_connectors import InMemoryStorageConnector
    from data_stack.plugins import hookimpl

    def connect(url):
        connector = InMemoryStorageConnector()
        connector.url = url
        return connector

    @hookimpl
    def data_stack_storage_connectors():
        return {"SCHEME": connect}
"""


def hook(kind: str, body: str, parameters: str = "") -> str:
    return f"from data_stack.plugins import hookimpl\n@hookimpl\ndef data_stack_{kind}({parameters}):\n    {body}"


BROKEN_HOOKS = {
    "unknown_hook": (hook("storage_conectors", "return {}"), "data_stack_storage_conectors"),
    "wrong_signature": (
        hook("storage_connectors", "return {}", "url"),
        "data_stack_storage_connectors",
    ),
    "unmarked": ("def data_stack_storage_connectors(): return {}", "no hook marked"),
    "exits": (hook("storage_connectors", "raise SystemExit(5)"), "SystemExit: 5"),
    "generator": (hook("storage_connectors", "yield {}"), "returned generator"),
    "not_callable": (hook("storage_connectors", "return {'remote': 1}"), "'remote': 1"),
    "no_scheme": (hook("storage_connectors", "return {'Remote://': print}"), "'Remote://'"),
    "built_in": (
        hook("storage_connectors", "return {'remote': print, 'file': print}"),
        "'file' of data_stack_storage_",
    ),
    "taken": (
        hook("storage_connectors", "return {'remote': print, 'able': print}"),
        "'able' of data_stack_storage_",
    ),
    "engine": (
        hook("engines", "return {'processes': print}"),
        "'processes' of data_stack_engines is taken",
    ),
    "encoder": (hook("encoders", "return {'times': dict}"), "'times'"),
    "codec": (hook("codecs", "return {'turned': print}"), "'turned'"),
    "catalogue": (
        hook("catalogues", "from data_stack import Catalogue\n    return {'calc': Catalogue}"),
        "'calc'",
    ),
}


@pytest.mark.parametrize("kind", BROKEN_HOOKS)
def test_hooks_that_break_the_contract_are_taken_back_whole(
    site: Site, manager: PluginManager, kind: str
) -> None:
    source, reason = BROKEN_HOOKS[kind]
    site.install_hooks("broken", source)
    site.install_hooks("able", STORAGE.replace("SCHEME", "able"))

    schemes = manager.provided("storage_connectors")

    assert set(schemes) == {"able"}
    assert isinstance(schemes["able"]("able://x"), InMemoryStorageConnector)
    records = site.records(manager.doctor())
    assert (records["broken"].state, records["able"].state) == ("broken", "ok")
    assert reason in str(records["broken"].error)


def test_a_folder_that_hides_a_plugin_is_named(site: Site, manager: PluginManager) -> None:
    site.install("hidden-plugin", "[data_stack.datasets]\nhidden = hidden_plugin:Factory\n")
    (site.folder / "hidden_plugin").mkdir()

    with pytest.raises(PluginError, match=r"the folder \S+hidden_plugin hides the module"):
        manager.load_dataset("hidden")


def test_a_broken_plugin_is_tried_again_only_by_the_doctor(
    site: Site, manager: PluginManager
) -> None:
    site.install_hooks("remote", "raise ValueError")
    assert not manager.provided("storage_connectors")
    module = site.folder / "remote_plugin_hooks.py"
    module.write_text(
        "from data_stack.plugins import hookimpl\n@hookimpl\ndef data_stack_storage_connectors(): return {'remote': print}"
    )

    assert not manager.provided("storage_connectors")
    assert site.records(manager.doctor())["remote"].state == "ok"
    assert set(manager.provided("storage_connectors")) == {"remote"}


def test_a_plugin_may_use_a_scheme_while_being_imported(site: Site, manager: PluginManager) -> None:
    site.install_hooks(
        "asking", "import data_stack\ndata_stack.storage_connector_from_url('asking://x')"
    )
    site.install_hooks("whole", STORAGE.replace("SCHEME", "whole"))

    assert (
        vars(storage_connector_from_url("WHOLE://user:secret@host/x?y=1"))["url"]
        == "WHOLE://user:secret@host/x?y=1"
    )
    with pytest.raises(ConfigError, match="asking://"):
        storage_connector_from_url("asking://x")


def test_a_connector_that_cannot_be_made_hides_its_url(site: Site) -> None:
    source = STORAGE.replace("SCHEME", "remote").replace(
        "connector = ", "raise OSError('no route to ' + url)\n        "
    )
    site.install_hooks("remote", source)

    with pytest.raises(
        PluginError, match=r"plugin 'remote' of remote-plugin 1.0 .* \(OSError\)"
    ) as caught:
        storage_connector_from_url("remote://user:secret@host")

    assert "secret" not in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)


class Threaded(data_stack.DatasetFactory):
    """The name of the thread that prepares it."""

    card = data_stack.DatasetCard("threaded", "1.0.0")
    splits = ("all",)

    def preprocess(self, raw: Any, prepared: Any) -> None:
        with prepared.create("name") as file:
            file.write(threading.current_thread().name.encode())

    def open(self, split: str, prepared: Any) -> Any:
        return data_stack.SequenceDatasetIterator([[prepared["name"].read()]])


def test_an_engine_is_asked_for_by_its_name(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.install_hooks("several", EXAMPLES["Engine"])
    monkeypatch.setenv("DATA_STACK_DISABLE_PLUGINS", "lazy-data-stack-ray")
    factory = Threaded(InMemoryStorageConnector())

    engine: Any = engine_of_options("threads", master="3")
    factory.prepare(engine="threads")

    assert (engine.n_threads, engine.attempts) == (3, 3)
    assert factory.get_dataset_iterator()[0][0][0].startswith(b"ThreadPool")
    for name, advice in (("thrads", r" \(did you mean 'threads'\?\)"), ("ray", "")):
        with pytest.raises(
            ConfigError,
            match=f"'{name}'{advice}; known engines: processes, (.*, )?threads; ray needs pip install",
        ):
            factory.prepare(engine=name)
    with pytest.raises(ConfigError, match="ProcessEngine prepares in other processes"):
        factory.prepare(engine="processes", again=True)


def test_a_plugins_encoder_is_rebuilt_from_its_state(site: Site) -> None:
    site.install_hooks("log", EXAMPLES["Encoder"])

    encoder = encoders.encoder("log", offset=3.0)

    assert encoder.transform(np.array([1.0])).tolist() == [3.0]
    assert list(default_manager().provided("encoders")) == ["log"]
    assert encoders.encoder_from_state(encoder.state()) == encoder
    with pytest.raises(ConfigError, match=r"encoder 'log'.*data_stack.repository.encoders"):
        encoder_from_state(encoder.state())


FORMAT = """
    import numpy as np

    from data_stack import from_numpy
    from data_stack.formats.format import ALL_COLUMNS, Format
    from data_stack.plugins import hookimpl


    class LinesFormat(Format):
        name = "NAME"
        suffixes = {".lines": "text/plain"}

        def open(self, location, columns=ALL_COLUMNS, options=None):
            with location.open() as resource:
                numbers = [int(line) for line in resource.read().split()]
            return from_numpy({"n": np.array(numbers)})

        def recognize(self, folder, names):
            return "LINES" in names


    @hookimpl
    def data_stack_formats():
        return {"lines": LinesFormat}
"""


def test_a_plugins_format_is_known_to_load_and_convert(site: Site, tmp_path: Path) -> None:
    site.install_hooks("lines", FORMAT.replace("NAME", "lines"))
    folder = tmp_path / "numbers"
    folder.mkdir()
    (folder / "README.md").write_text("numbers")
    for split, numbers in {"train": "1 2", "test": "3"}.items():
        (folder / f"{split}.lines").write_text(numbers)

    splits = data_stack.load(str(folder))
    convert(folder / "train.lines", tmp_path / "train.npz")
    converted: Any = data_stack.load(str(tmp_path / "train.npz"))

    assert [sample["n"] for sample in splits["test"]] == [3]
    assert [sample["n"] for sample in converted] == [1, 2]
    assert "lines" in all_formats()
    with pytest.raises(ConfigError, match=r"unknown format 'line' \(did you mean 'lines'\?\)"):
        data_stack.load(str(folder / "train.lines"), format="line")


def test_a_plugins_format_recognizes_folders_that_no_other_does(site: Site, tmp_path: Path) -> None:
    site.install_hooks("lines", FORMAT.replace("NAME", "lines"))
    folder = tmp_path / "numbers"
    folder.mkdir()
    (folder / "LINES").touch()

    assert detect_format(location_of(folder)).name == "lines"


def test_a_plugins_format_of_another_name_is_refused(site: Site) -> None:
    site.install_hooks("lines", FORMAT.replace("NAME", "rows"))

    assert "lines" not in all_formats()
    assert site.records(default_manager().records())["lines"].state == "broken"


CODEC = """
    from dataclasses import dataclass

    from data_stack.codecs import Codec
    from data_stack.plugins import hookimpl

    @dataclass(frozen=True)
    class Reversed(Codec):
        def encode(self, value):
            return value[::-1]

        def decode(self, record):
            return record[::-1]

    @hookimpl
    def data_stack_codecs():
        return {"TYPE": Reversed()}
"""


def test_a_plugins_type_is_known_like_a_built_in_one(site: Site) -> None:
    site.install_hooks("turned", CODEC.replace("TYPE", "turned"))

    assert codec_of("turned").encode(b"abc") == b"cba"
    assert codec_of("zstd(turned)[]").decode(codec_of("zstd(turned)").encode(b"abc")) == b"abc"
    assert list(default_manager().provided("codecs")) == ["turned"]
    assert codec_of("turned", {"turned": IntCodec()}) == IntCodec()
    with pytest.raises(ConfigError, match=r"column type 'turnd' \(did you mean 'turned'\?\)"):
        codec_of("turnd")


def test_a_spawned_process_without_plugins_reads_a_plugins_type(site: Site, tmp_path: Path) -> None:
    site.install_hooks("turned", CODEC.replace("TYPE", "turned"))
    append_all(RecordWriter(tmp_path / "records", {"text": "zstd(turned)"}), [{"text": b"abc"}])
    program = "import pickle, sys; print(pickle.loads(bytes.fromhex(sys.argv[1]))[0])"

    with RecordReader(tmp_path / "records") as reader:
        said, _ = run_python(
            "-c", program, pickle.dumps(reader).hex(), DATA_STACK_DISABLE_PLUGINS="1"
        )

    assert said == "{'text': b'abc'}\n"


KEPT = """
from data_stack import FileStorageConnector
from data_stack.plugins import hookimpl

@hookimpl
def data_stack_storage_connectors():
    return {"kept": lambda url: FileStorageConnector(url.removeprefix("kept://"))}
"""

READ_KEPT = """
import sys
from data_stack.formats.parquet import ParquetDataset
from data_stack.io.folder import folder_of
print(folder_of(f"kept://{sys.argv[1]}", "rows").list_files())
print(len(ParquetDataset(f"kept://{sys.argv[1]}", prefix="rows")))
"""


def test_folders_and_formats_know_the_stores_of_plugins(site: Site, tmp_path: Path) -> None:
    site.install_hooks("kept", KEPT)
    rows = data_stack.SequenceDatasetIterator([list(np.arange(5))]).as_dict("x")
    convert(rows, tmp_path / "store" / "rows", target_format="parquet", progress=False)
    names = sorted(path.name for path in (tmp_path / "store" / "rows").iterdir())

    said, _ = run_python("-c", READ_KEPT, str(tmp_path / "store"))

    listing, n_rows = said.splitlines()
    assert ast.literal_eval(listing) == names
    assert n_rows == "5"
