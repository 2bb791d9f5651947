"""`tidelog zookeeper`: one real ZooKeeper server in the foreground, for the brokers of a cluster."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.failure import BadWord, Failure
from tidelog.cli.zookeeper_process import ZooKeeperMissing, ZooKeeperProcess
from tidelog.server.signals import ending_signals

LOOK_SECONDS = 0.2


def zookeeper(
    directory: Annotated[Path, typer.Option("--dir", help="Folder of the data and the log.")],
    port: Annotated[int, typer.Option(help="Port for brokers.", min=0, max=65_535)] = 2_181,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    number: Annotated[
        int, typer.Option("--id", help="Number of this server in an ensemble.", min=1, max=255)
    ] = 1,
    server: Annotated[
        list[str] | None,
        typer.Option(help="A member of the ensemble, including this one: ID=HOST:QUORUM-PORT:ELECTION-PORT."),
    ] = None,
) -> None:
    """Start a ZooKeeper server (3.9, from PySpark's jars) in the foreground; SIGTERM or Ctrl-C stops it."""
    stopped = threading.Event()
    for signal_number in ending_signals():
        signal.signal(signal_number, lambda *_: stopped.set())
    process = ZooKeeperProcess(directory, port, number, _members(server or [], number), host)
    try:
        process.spawn()
        is_ready = False
        while not stopped.wait(LOOK_SECONDS):
            # A member of an ensemble serves only when most members run
            if not is_ready and process.is_serving():
                is_ready = True
                print(f"tidelog zookeeper ready: {process.connect}", flush=True)
            if not process.is_running:
                code, last_words = process.exit_code, process.last_words()
                raise Failure(f"ZooKeeper at {process.connect} has ended, exit code {code}; {last_words}")
    except ZooKeeperMissing as problem:
        raise Failure(str(problem)) from None
    except OSError as problem:
        raise Failure(f"{directory}: {problem.strerror}") from None
    finally:
        process.stop()


def _members(servers: list[str], number: int) -> dict[int, str]:
    members = {}
    for word in servers:
        left, _, address = word.partition("=")
        if not left.isdigit() or len(address.split(":")) != 3:
            raise BadWord(f"--server {word}: not a member; write ID=HOST:QUORUM-PORT:ELECTION-PORT")
        members[int(left)] = address
    if members and number not in members:
        raise BadWord(f"--id {number}: no --server has that number; list all members, including this one")
    return members
