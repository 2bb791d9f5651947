"""Single jars from Maven, without what they need themselves, fetched into a folder once.

**Invariant:** a folder has all of its jars or is not there, also if several processes ask at once.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.peers.process import PeerMissing

Artifact = tuple[str, str, str]
"""Its group, name and version."""

POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>tidelog.bench</groupId><artifactId>{name}</artifactId><version>1</version>
  <build><plugins><plugin>
    <groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId>
    <configuration><artifactItems>{items}</artifactItems></configuration>
  </plugin></plugins></build>
</project>
"""
ITEM = (
    "<artifactItem><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
    "<version>{version}</version></artifactItem>"
)


def fetch_artifacts(store: Path, name: str, artifacts: Sequence[Artifact]) -> list[Path]:
    """The jars in `store`, fetched if this is the first time. Raises `PeerMissing`."""
    store.mkdir(parents=True, exist_ok=True)
    with (store / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (store / "libs").exists():
            _fetch(store, name, artifacts)
    return sorted((store / "libs").glob("*.jar"))


def _fetch(store: Path, name: str, artifacts: Sequence[Artifact]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerMissing(f"{name} is fetched by Maven, and there is no `mvn`: install maven")
    items = [ITEM.format(group=group, artifact=what, version=version) for group, what, version in artifacts]
    (store / "pom.xml").write_text(POM.format(name=store.name, items="".join(items)))
    command = [maven, "-q", "-B", "dependency:copy", "-DoutputDirectory=libs.part"]
    answer = subprocess.run(command, cwd=store, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise PeerMissing(f"Maven could not fetch {name}:\n{answer.stdout}{answer.stderr}")
    os.replace(store / "libs.part", store / "libs")
