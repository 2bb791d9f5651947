"""stub"""

import typer

app = typer.Typer()


@app.command()
def dump(x: str) -> None: ...
