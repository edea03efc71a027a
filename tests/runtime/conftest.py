from pathlib import Path

import pytest

from tests.runtime.terminal import Shell


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """The command line in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path)
