"""The console script `tidelog`: looks at the first word and hands over.

**Invariant:** `tidelog serve` gets through here without importing typer, rich or confluent_kafka.
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
    if words == ["--version"]:
        print(f"tidelog {__version__}")
        return 0
    # kio imports hypothesis where it is installed, for tests of its own: a fifth of a second at every start.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    from tidelog.cli.commands import run

    return run(words or ["--help"])


if __name__ == "__main__":
    sys.exit(main())
