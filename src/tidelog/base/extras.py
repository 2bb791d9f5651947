"""What to install for a part of Tidelog that not everybody needs.

Packages are named one by one: `pip install 'tidelog[spark]'` finds nothing where Tidelog came from a checkout
or from a wheel on disk.
"""

from __future__ import annotations

import shlex


def install_command(extra: str) -> str:
    """The command that installs what an extra of ours asks for, however Tidelog was installed."""
    from importlib.metadata import PackageNotFoundError, requires  # takes a while, and is for messages only

    try:
        rows = requires("tidelog") or []
    except PackageNotFoundError:  # run from a source tree that was never installed
        rows = []
    marker = f'extra == "{extra}"'
    packages = [
        row.partition(";")[0].strip() for row in rows if row.replace("'", '"').strip().endswith(marker)
    ]
    if not packages:
        return f"pip install '.[{extra}]' in a checkout of Tidelog"
    return "pip install " + " ".join(map(shlex.quote, packages))
