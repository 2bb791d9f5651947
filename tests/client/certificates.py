"""An authority, a broker and a client with certificates of their own, made by openssl for one test run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

KEY_PASSWORD = "of the key"
_EXTENSION = "subjectAltName=DNS:localhost,IP:127.0.0.1"


class Certificates(NamedTuple):
    authority: Path  # what a client trusts
    stranger: Path  # another authority
    broker: Path  # key and chain
    client: Path
    client_locked: Path  # its key needs KEY_PASSWORD


def make_certificates(folder: Path) -> Certificates:
    if shutil.which("openssl") is None:
        pytest.skip("certificates are made by openssl, and there is none")
    authority, stranger = _authority(folder, "authority"), _authority(folder, "stranger")
    broker, client = _signed(folder, "broker"), _signed(folder, "client")
    locked = folder / "locked.key"
    _openssl(
        folder,
        "pkcs8",
        "-topk8",
        "-in",
        "client.key",
        "-out",
        "locked.key",
        "-passout",
        f"pass:{KEY_PASSWORD}",
    )
    client_locked = folder / "client-locked.pem"
    client_locked.write_text(locked.read_text() + (folder / "client.crt").read_text())
    return Certificates(authority, stranger, broker, client, client_locked)


def _authority(folder: Path, name: str) -> Path:
    _openssl(
        folder,
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"),
        *("-keyout", f"{name}.key", "-out", f"{name}.crt"),
    )
    return folder / f"{name}.crt"


def _signed(folder: Path, name: str) -> Path:
    _openssl(
        folder,
        *("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"),
        *("-keyout", f"{name}.key", "-out", f"{name}.csr"),
    )
    (folder / "extension").write_text(_EXTENSION)
    _openssl(
        folder,
        *("x509", "-req", "-in", f"{name}.csr", "-CA", "authority.crt", "-CAkey", "authority.key"),
        *("-CAcreateserial", "-days", "2", "-extfile", "extension", "-out", f"{name}.crt"),
    )
    pem = folder / f"{name}.pem"
    pem.write_text((folder / f"{name}.key").read_text() + (folder / f"{name}.crt").read_text())
    return pem


def _openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
