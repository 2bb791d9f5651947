"""The console script `tidelog`: dispatches on the first word.

**Invariant:** `tidelog serve` starts without importing typer, rich or confluent_kafka.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tidelog import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code of the process."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["serve"]:
        from tidelog.cli.serve import serve

        return serve(words[1:])
    if words[:1] == ["--version"]:
        print(f"tidelog {__version__}")
        return 0
    # kio imports hypothesis, if installed, for its own tests: a fifth of a second at every start.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    from tidelog.cli.commands import run

    return run(words or ["--help"])


if __name__ == "__main__":
    sys.exit(main())
