"""How to install an optional part of Tidelog.

The command names the packages one by one: `pip install 'tidelog[spark]'` finds nothing where Tidelog was
installed from a checkout or from a wheel on disk.
"""

from __future__ import annotations

import shlex


def install_command(extra: str) -> str:
    """The command that installs the packages of an extra, however Tidelog was installed."""
    from importlib.metadata import PackageNotFoundError, requires  # a slow import, needed only for messages

    try:
        rows = requires("tidelog") or []
    except PackageNotFoundError:  # run from a source tree that is not installed
        rows = []
    marker = f'extra == "{extra}"'
    packages = [
        row.partition(";")[0].strip() for row in rows if row.replace("'", '"').strip().endswith(marker)
    ]
    if not packages:
        return f"pip install '.[{extra}]' in a checkout of Tidelog"
    return "pip install " + " ".join(map(shlex.quote, packages))
