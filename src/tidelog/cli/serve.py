"""`tidelog serve`: one broker in the foreground.

Plain argparse, because a broker that starts in a tenth of a second cannot wait for typer and rich.

**Invariant:** imports neither typer, rich nor confluent_kafka.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from tidelog.cli.failure import BadWord, Failure, report
from tidelog.cli.properties import parse_setting, read_properties

SUMMARY = "Start one broker in the foreground; SIGTERM or Ctrl-C stops it cleanly."

PORT_MAX = 65_535  # of two bytes
_EPILOGUE = """\
Settings have Kafka's names: node.id, listeners, advertised.listeners, log.dirs, num.partitions, …
Port 0 picks a free one. Once it serves, it prints: tidelog ready: broker <id> at <host>:<port>

  tidelog serve --port 9092 -o log.dirs=./data
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadWord(f"{message}; see 'tidelog serve --help'")


def serve(words: Sequence[str]) -> int:
    """Run a broker until a signal stops it; the exit code of the process."""
    try:
        properties = collect_properties(words)
    except Failure as failure:
        return report(failure)
    # kio imports hypothesis, if installed, for its own tests: a fifth of a second at every start.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    from tidelog.server.foreground import run

    return run(properties)


def collect_properties(words: Sequence[str]) -> dict[str, str]:
    """The settings of the file, overridden by those of the command line."""
    parsed = _parser().parse_args(words)
    properties = read_properties(parsed.config) if parsed.config else {}
    own = dict(parse_setting(word) for word in parsed.settings)
    if parsed.port is not None:
        if "listeners" in own:
            raise BadWord(f"--port {parsed.port}: -o listeners has a port as well; leave one of the two out")
        own["listeners"] = f"PLAINTEXT://127.0.0.1:{parsed.port}"
    return properties | own


def _port(word: str) -> int:
    if not word.isascii() or not word.isdigit() or int(word) > PORT_MAX:
        raise argparse.ArgumentTypeError(f"{word} is not a port; write a number from 0 to {PORT_MAX}")
    return int(word)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="tidelog serve",
        description=SUMMARY,
        epilog=_EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config", metavar="FILE", help="a Java .properties file, such as Kafka's server.properties"
    )
    parser.add_argument(
        "--port",
        metavar="PORT",
        type=_port,
        help="serve clients on this port of 127.0.0.1, short for -o listeners=PLAINTEXT://127.0.0.1:PORT",
    )
    parser.add_argument(
        "-o",
        dest="settings",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting; overrides the file",
    )
    return parser
