import json
import os
import subprocess
import sys
from pathlib import Path

from tests.repository.tree import FOLDERS, ROOT, name, python_files


def test_coverage_counts_each_file_once_where_it_lies(tmp_path: Path) -> None:
    """Files are reached through links, and reported as people know them; unused ones are too."""
    env = os.environ | {"COVERAGE_FILE": str(tmp_path / "data")}
    coverage = (sys.executable, "-m", "coverage")
    report = tmp_path / "report.json"
    for command in (
        ("run", "-m", "perdure.runtime.cli", "--version"),
        ("json", "--quiet", "-o", str(report)),
    ):
        subprocess.run((*coverage, *command), cwd=ROOT, env=env, check=True, capture_output=True)
    ours = {name(path) for path in python_files() if path.relative_to(ROOT).parts[0] in FOLDERS}
    files = json.loads(report.read_text("utf-8"))["files"]
    assert set(files) == ours
    assert files["runtime/cli/program.py"]["executed_lines"]
