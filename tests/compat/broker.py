"""A Tidelog broker as its users run it, for one block.

**Invariant:** a broker that does not stop with 0 on SIGTERM fails the test that asked it to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tidelog.testing.process import BrokerProcess


@contextmanager
def running_broker(log_dir: Path, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """Serves `log_dir` on a free port; yields the bootstrap address; stops it cleanly."""
    folder = log_dir.with_name(f"{log_dir.name}.process")
    broker = BrokerProcess(folder, {"log.dirs": str(log_dir)} | dict(settings or {}))
    with broker:
        try:
            yield broker.bootstrap_servers
        except BaseException as failure:
            failure.add_note(f"the broker said: {broker.stderr()[-2000:] or 'nothing'}")
            raise
        status = broker.stop()
        assert status == 0, f"tidelog serve ended with {status}: {broker.stderr()[-2000:]}"
