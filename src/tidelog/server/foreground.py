"""One broker as a process: signals, the line on stdout that says it serves, the exit code.

**Invariant:** after the ready line nothing is written to stdout; what the operator should know goes to
stderr, by the report.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
from collections.abc import Mapping

from tidelog.base.config import BROKER_SETTINGS
from tidelog.base.events import error
from tidelog.base.setting import InvalidSetting, UnknownSetting, similar_name
from tidelog.server.locks import StartFailed
from tidelog.server.selector import EagerLoop
from tidelog.server.serve import Server
from tidelog.server.signals import ending_signals


def run(properties: Mapping[str, str]) -> int:
    """Serve in the foreground until SIGTERM or SIGINT; the exit code."""
    try:
        with asyncio.Runner(loop_factory=EagerLoop) as runner:
            return runner.run(_run(properties))
    except UnknownSetting as problem:
        hint = "" if "; " in str(problem) else similar_name(problem.key, BROKER_SETTINGS)
        print(f"tidelog: {problem}{hint}", file=sys.stderr)
        return 2
    except (InvalidSetting, StartFailed) as problem:
        print(f"tidelog: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0


async def _run(properties: Mapping[str, str]) -> int:
    _raise_descriptor_limit()
    _calm_collector()
    server = Server(properties, write=_write_line, has_cleaner_process=True)
    stopped = asyncio.Event()
    for number in ending_signals():
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    starting = asyncio.ensure_future(server.start())
    told = asyncio.ensure_future(stopped.wait())
    await asyncio.wait([starting, told], return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        return 0
    told.cancel()
    await starting
    host, port = server.address
    print(f"tidelog ready: broker {server.node_id} at {host}:{port}", flush=True)
    life = server.life
    waits = [asyncio.ensure_future(stopped.wait()), asyncio.ensure_future(life.failed.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    if life.failed.is_set():
        server.report.tell(error("broker failed", reason=life.failure))
        await server.abort()
        return 1
    await server.stop()
    return 0


def _write_line(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _calm_collector() -> None:
    """What is loaded by now stays; requests leave no cycles behind, so look for some less often."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _raise_descriptor_limit() -> None:
    """A log keeps many files open; take what the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
