"""The sandbox as the settings have it, with a log in the folder of the plugin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.cli.terminal import Shell
from tests.runtime.process.test_escapes import enforced

SPY = """
read -r start <&3
cat data/log.db >/dev/null 2>&1 && seen=seen || seen=hidden
echo '{"say": "export", "id": 1, "type": "text", "content": "'"$seen"'"}' >&4
read -r answer <&3
echo '{"say": "return"}' >&4
"""


@enforced
@pytest.mark.parametrize(
    ("mode", "seen"), [("auto", "hidden"), ("required", "hidden"), ("off", "seen")]
)
def test_a_plugin_sees_its_own_log_only_without_a_sandbox(
    tmp_path: Path, mode: str, seen: str
) -> None:
    """It lies in the folder of the plugin, which is shown."""
    shell = Shell(tmp_path)
    (tmp_path / "spy.sh").write_text(SPY)
    (tmp_path / "plugin.toml").write_text(
        'id = "spy"\nversion = "1"\n[entries.look]\ncommand = ["sh", "spy.sh"]\n'
    )
    settings = {"PERDURE_PLUGINS": str(tmp_path), "PERDURE_SANDBOX": mode}
    ran = shell.call("run", "spy.look", **settings)
    assert ran.exit_code == 0, ran.output
    (run,) = shell.runs()
    assert seen in shell.call("export", run["run_id"]).output


def test_a_sandbox_has_three_settings(tmp_path: Path) -> None:
    """Another is refused, with those that there are."""
    refused = Shell(tmp_path).call("runs", PERDURE_SANDBOX="sometimes")
    assert refused.exit_code != 0
    assert "sandbox" in refused.output
