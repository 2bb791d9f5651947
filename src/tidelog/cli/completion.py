"""`tidelog completion`: a script for the shell, which calls `tidelog` with `_TIDELOG_COMPLETE` set.

typer answers these calls from the table of commands, and `names` with names from a broker.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import completion_init, get_completion_script  # type: ignore[attr-defined]

PROGRAM = "tidelog"
COMPLETE_VARIABLE = "_TIDELOG_COMPLETE"


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(help="The shell in which to complete commands.")],
) -> None:
    """Print a script that lets the Tab key complete commands, options and names of topics."""
    print(get_completion_script(prog_name=PROGRAM, complete_var=COMPLETE_VARIABLE, shell=shell.value))


def init_completion() -> None:
    """Use typer's own implementation of completion."""
    completion_init()
