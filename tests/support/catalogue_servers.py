"""What servers of OpenML and Zenodo answer, as their APIs document it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from web_server import Answer, ScriptedServer


def describe(
    server: ScriptedServer,
    number: int,
    text: str | bytes,
    features: list[dict[str, Any]],
    **changes: Any,
) -> None:
    data = text.encode() if isinstance(text, str) else text
    url = server.serve(f"/data/{number}.arff", data)
    description = {
        "id": str(number),
        "name": "flowers",
        "version": "2",
        "description": "Flowers.",
        "format": "ARFF",
        "licence": "CC0-1.0",
        "url": url,
        "md5_checksum": hashlib.md5(data).hexdigest(),
        "default_target_attribute": "class",
        "row_id_attribute": "id",
        **changes,
    }
    server.serve(f"/json/data/{number}", json.dumps({"data_set_description": description}).encode())
    server.serve(
        f"/json/data/features/{number}",
        json.dumps({"data_features": {"feature": features}}).encode(),
    )


def feature(name: str, *nominal: str, data_type: str = "numeric") -> dict[str, Any]:
    return {
        "name": name,
        "data_type": "nominal" if nominal else data_type,
        **({"nominal_value": list(nominal)} if nominal else {}),
    }


def lead(server: ScriptedServer, doi: str, page: str) -> None:
    server.url(f"/{doi}", Answer(status=302, headers={"Location": f"{server.origin}{page}"}))
    server.serve(page.partition("?")[0], b"<html>")


def zenodo(server: ScriptedServer, number: int, files: dict[str, bytes], **changes: Any) -> str:
    doi = f"10.5281/zenodo.{number}"
    lead(server, doi, f"/records/{number}")
    listed = [
        {
            "key": name,
            "size": len(data),
            "checksum": f"md5:{hashlib.md5(data).hexdigest()}",
            "links": {"self": server.serve(f"/api/records/{number}/files/{name}/content", data)},
            **changes,
        }
        for name, data in files.items()
    ]
    answer = {"metadata": {"title": "Tiny", "license": {"id": "cc-by-4.0"}}, "files": listed}
    server.serve(f"/api/records/{number}", json.dumps(answer).encode())
    return doi
