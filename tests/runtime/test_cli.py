import os
import stat
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

import perdure
from eventlog.env import RealEnv
from eventlog.sqlite import SqliteStore
from runtime.cli import main

COMMAND = Path(sys.executable).with_name("perdure")


def test_version_is_that_of_the_distribution() -> None:
    """The command and the package name the same version."""
    result = CliRunner().invoke(main, ["--version"], prog_name="perdure")
    assert result.output == f"perdure {perdure.__version__}\n"


def test_help_loads_nothing_heavy() -> None:
    """Asking for help starts no event loop and opens no database: neither is even imported."""
    probe = (
        "import sys; from runtime.cli import main\n"
        "try: main(['serve', '--help'])\n"
        "finally: assert not {'trio', 'sqlite3', 'eventlog'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_serve_creates_the_log_and_describes_it(tmp_path: Path) -> None:
    """On a fresh machine serve makes a private directory with an empty log, and says so."""
    home = tmp_path / "deep" / "data"
    result = CliRunner().invoke(main, ["serve", "--data-dir", str(home)])
    assert result.exit_code == 0, result.output
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    rows = dict(line.split() for line in result.output.splitlines() if line.startswith("  "))
    assert rows.keys() == {"version", "log", "generation", "records"}
    assert (rows["log"], rows["records"]) == (str(home / "log.db"), "0")
    assert result.output.splitlines()[-1].startswith("The log is open;")


def test_serve_finds_the_same_log_again(tmp_path: Path) -> None:
    """A second start opens the log of the first: the environment names the directory."""
    runner = CliRunner(env={"PERDURE_DATA_DIR": str(tmp_path)})
    assert runner.invoke(main, ["serve"]).output == runner.invoke(main, ["serve"]).output


def test_serve_refuses_a_log_that_somebody_writes(tmp_path: Path) -> None:
    """While another process holds the log, serve names it, says what to do, and fails."""
    store = SqliteStore.open(tmp_path / "log.db", env=RealEnv())
    try:
        command = [str(COMMAND), "serve", "--data-dir", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        store.close()
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"process {os.getpid()};" in done.stderr
    assert "--data-dir" in done.stderr
    assert "Traceback" not in done.stderr
