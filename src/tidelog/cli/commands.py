"""The table of commands, and the one place where failures become output lines and an exit code.

**Invariant:** a failed command prints one line for each failure, below its results; Ctrl-C and a closed pipe
print nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaException
from typer.core import TyperGroup

from tidelog.cli import broker, cluster, config, demo, group, log, pipeline, quota, topic, txn
from tidelog.cli.completion import COMPLETE_VARIABLE, PROGRAM, completion, init_completion
from tidelog.cli.consume import consume
from tidelog.cli.failure import BadWord, Failure, report
from tidelog.cli.options import examples
from tidelog.cli.produce import produce
from tidelog.cli.serve import SUMMARY as SERVE_SUMMARY
from tidelog.cli.zookeeper import zookeeper

INTERRUPTED = 130  # 128 + SIGINT, as shells count
_ORDER = (
    "serve",
    "topic",
    "produce",
    "consume",
    "group",
    "txn",
    "config",
    "quota",
    "broker",
    "cluster",
    "zookeeper",
    "log",
    "pipeline",
    "demo",
    "completion",
)

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class _InOrder(TyperGroup):
    """Lists the commands in help in the order in which new users need them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_ORDER)


app = typer.Typer(
    name=PROGRAM,
    cls=_InOrder,
    help="A commit log that speaks the Apache Kafka protocol.",
    epilog=examples(
        "tidelog serve",
        "tidelog topic create orders --partitions 3",
        "echo hello | tidelog produce orders",
        "tidelog consume orders --exit",
    )
    + "\n\n'tidelog COMMAND --help' has more; 'tidelog completion bash' lets the Tab key complete commands.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(topic.app, name="topic")
app.add_typer(group.app, name="group")
app.add_typer(txn.app, name="txn")
app.add_typer(config.app, name="config")
app.add_typer(quota.app, name="quota")
app.add_typer(broker.app, name="broker")
app.add_typer(cluster.app, name="cluster")
app.add_typer(log.app, name="log")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(demo.app, name="demo")
app.command(
    epilog=examples(
        "tidelog produce orders lines.txt",
        "tidelog produce orders --key-delimiter : --compression zstd < keyed.txt",
        "tidelog consume orders -e --format json | tidelog produce copy --format json",
    )
)(produce)
app.command(
    epilog=examples(
        "tidelog consume orders --from -10",
        "tidelog consume orders --from @2026-01-31T12:00:00 --exit",
        "tidelog consume orders --partition 0 --count 5 --format json",
    )
)(consume)
app.command(
    epilog=examples(
        "tidelog zookeeper --dir ./zookeeper",
        "tidelog serve -o node.id=1 -o zookeeper.connect=127.0.0.1:2181/tidelog",
    )
)(zookeeper)
app.command(
    epilog=examples(
        "source <(tidelog completion bash)",
        "tidelog completion bash > /etc/bash_completion.d/tidelog",
        "tidelog completion fish > ~/.config/fish/completions/tidelog.fish",
    )
)(completion)


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Only for help and completion; `main` handles --version."""


@app.command(help=SERVE_SUMMARY, add_help_option=False)
def serve(
    config_file: Annotated[str, typer.Option("--config")] = "",
    port: Annotated[int, typer.Option("--port")] = 9092,
    settings: Annotated[list[str] | None, typer.Option("-o")] = None,
) -> None:
    """Only for help and completion; `main` handles `serve` before this module is imported."""


def run(words: Sequence[str]) -> int:
    """Run the command that `words` name; the exit code of the process."""
    if COMPLETE_VARIABLE in os.environ:
        init_completion()
        app(prog_name=PROGRAM)  # answers the shell and exits
    try:
        exit_code = app(list(words), prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
        return exit_code if isinstance(exit_code, int) else 0
    except Failure as failure:
        _flush_output()
        return report(failure)
    except _UsageError as error:
        return report(BadWord(_one_line(error)))
    except KafkaException as error:
        return report(Failure(error.args[0].str()))
    except (BrokenPipeError, SystemExit):  # typer raises SystemExit for one reason only: a broken pipe
        _discard_output()
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except OSError as error:
        return report(Failure(f"{error.filename}: {error.strerror}" if error.filename else str(error)))


def _one_line(error: Exception) -> str:
    message = str(getattr(error, "format_message", error.__str__)()).rstrip(".")
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "tidelog"
    return f"{message}; see '{path} --help'"


def _flush_output() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()


def _discard_output() -> None:
    """Redirect stdout to nowhere, so that the interpreter's final flush into a closed pipe does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
