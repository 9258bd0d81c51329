"""The notebook on datasets by name, with servers that answer as the catalogues document."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import datasets
import nbformat
import numpy as np
import pyarrow.parquet as pq
import pytest
from hub_server import HubServer, Repo
from nbclient import NotebookClient
from web_server import Answer, ScriptedServer

NOTEBOOK = Path(__file__).parents[2] / "getting_started" / "08_any_dataset.ipynb"
FLOWERS = ["setosa", "virginica"]


def serve_hub(hub: HubServer) -> None:
    rng = np.random.default_rng(0)
    rows = {"image": [rng.integers(0, 256, (8, 8), np.uint8) for _ in range(12)], "label": [0, 1] * 6}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(num_classes=2)})
    file = io.BytesIO()
    pq.write_table(datasets.Dataset.from_dict(rows, features).data.table, file)
    hub.repos["ylecun/mnist"] = Repo()
    hub.repos["ylecun/mnist"].commit({"data/train-00000-of-00001.parquet": file.getvalue()})


def serve_openml(server: ScriptedServer) -> None:
    lines = ["@RELATION iris", "@ATTRIBUTE length REAL", f"@ATTRIBUTE class {{{','.join(FLOWERS)}}}", "@DATA"]
    arff = "\n".join(lines + [f"{number}.5,{FLOWERS[number % 2]}" for number in range(12)]).encode()
    url = server.serve("/iris.arff", arff)
    description = {
        "id": "61",
        "name": "iris",
        "version": "1",
        "format": "ARFF",
        "licence": "CC-BY-4.0",
        "url": url,
        "md5_checksum": hashlib.md5(arff).hexdigest(),
        "default_target_attribute": "class",
    }
    features = [
        {"name": "length", "data_type": "numeric"},
        {"name": "class", "data_type": "nominal", "nominal_value": FLOWERS},
    ]
    server.serve("/json/data/61", json.dumps({"data_set_description": description}).encode())
    server.serve("/json/data/features/61", json.dumps({"data_features": {"feature": features}}).encode())


def serve_zenodo(server: ScriptedServer) -> None:
    data = b"x,y\n" + b"1,a\n2,b\n" * 6
    url = server.serve("/tiny.csv", data)
    file = {"key": "tiny.csv", "size": len(data), "checksum": f"md5:{hashlib.md5(data).hexdigest()}", "links": {"self": url}}
    server.serve("/api/records/4924875", json.dumps({"metadata": {"title": "Tiny"}, "files": [file]}).encode())
    server.url("/10.5281/zenodo.4924875", Answer(status=302, headers={"Location": f"{server.origin}/records/4924875"}))
    server.serve("/records/4924875", b"<html>")


@pytest.mark.full
def test_the_notebook_on_datasets_by_name_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub, server = HubServer(), ScriptedServer()
    serve_hub(hub)
    serve_openml(server)
    serve_zenodo(server)
    monkeypatch.delenv("DATA_STACK_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    for name in ("OPENML_SERVER", "DOI_RESOLVER"):
        monkeypatch.setenv(name, server.origin)
    monkeypatch.setenv("DATA_STACK_HOME", str(tmp_path / "store"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    try:
        NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    finally:
        hub.close()
        server.close()

    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    printed = "".join(output["text"] for output in outputs if output.get("name") == "stdout")
    counts = [line.split(" ")[0] for line in printed.splitlines() if " samples: " in line]
    assert " ".join(counts) == "360 178 12 12 12 16 1437"
    assert "('setosa', 'virginica')" in printed
