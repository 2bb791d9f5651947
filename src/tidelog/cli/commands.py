"""The table of commands, and the one place where a failure becomes a line and an exit code.

**Invariant:** whatever goes wrong in a command, a person sees one line; Ctrl-C and a closed pipe are
not even that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer
from confluent_kafka import KafkaException

from tidelog.cli import broker, config, demo, log, topic
from tidelog.cli.consume import consume
from tidelog.cli.failure import BadWord, Failure, report
from tidelog.cli.produce import produce
from tidelog.cli.serve import SUMMARY as SERVE_SUMMARY
from tidelog.cli.serve import serve as serve_broker

INTERRUPTED = 130  # 128 + SIGINT, as shells count

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="tidelog",
    help="A commit log that speaks the Apache Kafka protocol.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(topic.app, name="topic")
app.add_typer(config.app, name="config")
app.add_typer(broker.app, name="broker")
app.command()(produce)
app.command()(consume)
app.add_typer(log.app, name="log")
app.command()(demo.demo)


@app.command(
    help=SERVE_SUMMARY,
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def serve(context: typer.Context) -> int:
    """Here for `tidelog --help`; `main` sends `serve` elsewhere before this module is imported."""
    return serve_broker(context.args)


def run(words: Sequence[str]) -> int:
    """Run the command that `words` name; the exit code of the process."""
    try:
        exit_code = app(list(words), prog_name="tidelog", standalone_mode=False)
        sys.stdout.flush()
        return exit_code if isinstance(exit_code, int) else 0
    except Failure as failure:
        return report(failure)
    except _UsageError as error:
        return report(BadWord(_one_line(error)))
    except KafkaException as error:
        return report(Failure(error.args[0].str()))
    except (BrokenPipeError, SystemExit):  # typer leaves by SystemExit for one reason only: a broken pipe
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


def _discard_output() -> None:
    """The reader has gone: let the interpreter's last flush go nowhere instead of complaining."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
