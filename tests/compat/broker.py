"""A Tidelog broker as its users run it: `tidelog serve` in a process of its own.

**Invariant:** a process started here is ended here; a broker that does not stop with 0 on SIGTERM fails the
test that asked it to.
"""

from __future__ import annotations

import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

READY = "tidelog ready: broker "
READY_SECONDS_MAX = 20.0
STOP_SECONDS_MAX = 20.0


@contextmanager
def running_broker(log_dir: Path, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """Serves `log_dir` on a free port; yields the bootstrap address; stops it cleanly."""
    options = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(log_dir)} | dict(settings or {})
    command = [str(Path(sys.executable).with_name("tidelog")), "serve"]
    for key, value in options.items():
        command += ["-o", f"{key}={value}"]
    log_dir.mkdir(parents=True, exist_ok=True)
    with (log_dir.parent / f"{log_dir.name}.stderr").open("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            yield _bootstrap(process, errors)
        except BaseException as failure:
            process.kill()
            failure.add_note(f"the broker said: {_said(errors) or 'nothing'}")
            raise
        else:
            process.send_signal(signal.SIGTERM)
            status = process.wait(STOP_SECONDS_MAX)
            assert status == 0, f"tidelog serve ended with {status}: {_said(errors)}"
        finally:
            process.kill()
            process.wait()


def _bootstrap(process: subprocess.Popen[str], errors: IO[str]) -> str:
    assert process.stdout is not None
    deadline = time.monotonic() + READY_SECONDS_MAX
    while process.poll() is None and (left := deadline - time.monotonic()) > 0:
        readable, _, _ = select.select([process.stdout], [], [], min(left, 0.2))
        if readable and (line := process.stdout.readline()).startswith(READY):
            return line.strip().rpartition(" at ")[2]
    raise AssertionError(f"tidelog serve did not become ready: {_said(errors)}")


def _said(errors: IO[str]) -> str:
    errors.seek(0)
    return errors.read()[-2000:]
