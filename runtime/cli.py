"""The `perdure` command.

Every command imports what it needs when it runs, so that `perdure --help` answers at once.
"""

from pathlib import Path

import click

DATA_DIR_DEFAULT = Path(".perdure")
LOG_FILE = "log.db"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="perdure", message="%(prog)s %(version)s")
def main() -> None:
    """Perdure: an event-sourced actor runtime for long-running agent work."""


@main.command()
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=DATA_DIR_DEFAULT,
    envvar="PERDURE_DATA_DIR",
    show_default=True,
    show_envvar=True,
    help="Where the log lives; created if missing.",
)
def serve(data_dir: Path) -> None:
    """Open the log and say what is in it."""
    from eventlog.env import RealEnv
    from eventlog.errors import LogLocked, LogUnsupported
    from eventlog.sqlite import SqliteStore

    path = _log_path(data_dir)
    try:
        store = SqliteStore.open(path, env=RealEnv())
    except LogLocked as locked:
        raise click.ClickException(f"{locked}.\nTo use another log, pass --data-dir.") from locked
    except LogUnsupported as unsupported:
        raise click.ClickException(str(unsupported)) from unsupported
    try:
        click.echo(_banner(path, generation=store.generation, records=store.head().position))
    finally:
        store.close()


def _log_path(data_dir: Path) -> Path:
    """The log inside data_dir, which only its owner may enter if we are the one to create it."""
    try:
        data_dir.parent.mkdir(parents=True, exist_ok=True)
        data_dir.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"cannot create the data directory: {error}") from error
    return (data_dir / LOG_FILE).resolve()


def _banner(path: Path, *, generation: str, records: int) -> str:
    from importlib.metadata import version

    rows = {
        "version": version("perdure"),
        "log": str(path),
        "generation": generation,
        "records": f"{records:,}",
    }
    width = max(map(len, rows))
    return "\n".join(
        (
            "Perdure, an event-sourced actor runtime for long-running agent work.",
            "",
            *(f"  {name:<{width}}  {value}" for name, value in rows.items()),
            "",
            "The log is open; there is nothing to serve over the network yet.",
        )
    )
