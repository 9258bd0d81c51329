"""Identifies the login that environment variables name."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

#: What the names of the variables of logins and endpoints begin with, by scheme.
_PREFIXES: Final[Mapping[str, tuple[str, ...]]] = {
    "s3": ("AWS_",),
    "s3a": ("AWS_",),
    "gs": ("GOOGLE_", "GCLOUD_", "CLOUDSDK_", "GCE_METADATA_"),
    "gcs": ("GOOGLE_", "GCLOUD_", "CLOUDSDK_", "GCE_METADATA_"),
    "az": ("AZURE_", "IDENTITY_", "MSI_", "IMDS_"),
    "abfs": ("AZURE_", "IDENTITY_", "MSI_", "IMDS_"),
    "abfss": ("AZURE_", "IDENTITY_", "MSI_", "IMDS_"),
}


def login_digest(protocol: str, environment: Mapping[str, str]) -> str:
    """Return a digest that is equal while the variables of a login are equal.

    Without it, a notebook in which a wrong key was corrected would go on with the connection of the
    wrong one.

    Args:
        protocol: the scheme of the store; the logins of other schemes have no variables.
        environment: the variables.

    Returns:
        A SHA-256 in hexadecimal digits, which shows no secret.
    """
    prefixes = _PREFIXES.get(protocol, ())
    digest = hashlib.sha256()
    for name in sorted(environment):
        if name.startswith(prefixes):
            # No variable holds a zero byte.
            digest.update(f"{name}\0{environment[name]}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()
