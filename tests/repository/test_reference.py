"""The reference pages against the code they describe."""

import inspect
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from perdure import eventlog
from perdure.eventlog import (
    FollowLimits,
    Record,
    TailLimits,
    WriterLimits,
    append,
    errors,
    ledger,
    snapshots,
)
from perdure.eventlog.sqlite import reserve, schema, store
from perdure.runtime.plugins.current_run import CurrentRun, ReportingRun
from perdure.runtime.secrets import redaction
from perdure.runtime.secrets import references as secret_source
from perdure.runtime.secrets import sealed_files as seals
from tests.repository.test_docs import PYTHON_BLOCK
from tests.repository.tree import ROOT
from tools.reference import PAGES

EVENTLOG = (ROOT / "docs" / "eventlog.md").read_text("utf-8")


def rows(heading: str) -> list[str]:
    """The rows of the table under a heading."""
    section = EVENTLOG.split(f"## {heading}\n")[1].split("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| ")][1:]


def test_the_first_look_works(tmp_path: Path) -> None:
    """The README's example runs and prints what it says."""
    blocks = PYTHON_BLOCK.findall((ROOT / "README.md").read_text("utf-8"))
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert "on disk: run/1 3" in done.stdout
    assert "Counted(number=2)" in done.stdout
    assert "at the second record: 2" in done.stdout


def test_every_error_is_documented() -> None:
    """The table of errors names every error that can be raised, and no other."""
    documented = {name for row in rows("Errors") for name in re.findall(r"^\| `(\w+)`", row)}
    families = {"EventLogError", "Conflict", "Unavailable"}
    existing = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.EventLogError)
    }
    assert documented | families == existing
    assert all(name in inspect.getdoc(errors) for name in existing)  # type: ignore[operator]


def test_every_part_of_a_record_is_documented() -> None:
    """The table of a record names every part of it."""
    documented = {name for row in rows("A record") for name in re.findall(r"`(\w+)`", row)}
    assert documented == set(Record._fields)


def test_the_limits_are_those_of_the_code() -> None:
    """Each documented number is the number in force."""
    numbers = {
        "appends that may wait": (WriterLimits().queued_appends, WriterLimits().queued_bytes),
        "appends in one commit": (WriterLimits().batch_appends, WriterLimits().batch_bytes),
        "events in one append": (append.MAX_APPEND_EVENTS, append.MAX_APPEND_BYTES),
        "records in memory": (TailLimits().records, TailLimits().bytes),
        "records in one batch": (FollowLimits().records, FollowLimits().bytes),
        "silence of a follower": (int(FollowLimits().heartbeat),),
        "streams and scopes whose": (ledger.CAPACITY,),
        "room on the disk kept": (reserve.RESERVE,),
        "room beside that": (reserve.ROOM,),
        "write-ahead log before": (store.WAL_LIMIT,),
        "snapshots kept": (snapshots.KEPT,),
    }
    documented = rows("Limits")
    assert len(documented) == len(numbers)
    for name, expected in numbers.items():
        (row,) = [row for row in documented if name in row]
        assert tuple(map(quantity, re.split(r", or ", row.split("|")[2].strip()))) == expected


def quantity(text: str) -> int:
    """Read '64 MiB', '65,536 each' or '15 s'."""
    found = re.match(r"([\d,]+)(?: (KiB|MiB))?", text.strip())
    assert found is not None, text
    unit = {None: 1, "KiB": 1 << 10, "MiB": 1 << 20}[found[2]]
    return int(found[1].replace(",", "")) * unit


def test_the_sizes_in_the_text_are_those_of_the_code() -> None:
    """The largest record, the longest name, the format of the file."""
    assert append.MAX_RECORD_BYTES == 1 << 20
    assert "at most 1 MiB" in EVENTLOG
    assert f"1 to {append.MAX_NAME_BYTES} bytes" in EVENTLOG
    assert f"format {schema.SCHEMA_VERSION}" in EVENTLOG


def test_every_limit_that_can_be_set_is_documented() -> None:
    """No settable limit is missing from the page."""
    settable = {cls.__name__ for cls in (WriterLimits, TailLimits, FollowLimits)}
    assert settable == {name for name in dir(eventlog) if name.endswith("Limits")}
    assert all(fields(getattr(eventlog, name)) and f"`{name}`" in EVENTLOG for name in settable)


def test_the_plugin_guide_works(tmp_path: Path) -> None:
    """The plugin of the guide runs, and so does its test."""
    blocks = PYTHON_BLOCK.findall((ROOT / "docs" / "plugins.md").read_text("utf-8"))
    probe = (
        "ran = run_entry(Reports, 'monthly', {'month': '2026-11'}, crash_after_every_step=True)\n"
        "assert ran.items[-1]['json'] == {'rows': 4500}, ran\n"
        "test_counting()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([*blocks, probe])],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_page_on_secrets_works(tmp_path: Path) -> None:
    """Its plugin runs, and so does its test."""
    blocks = PYTHON_BLOCK.findall((ROOT / "docs" / "secrets.md").read_text("utf-8"))
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([*blocks, "test_pulling()\n"])],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_page_on_secrets_says_what_is_so() -> None:
    """Names, lengths and keys are those of the code."""
    page = (ROOT / "docs" / "secrets.md").read_text("utf-8")
    assert f"at least {redaction.MIN_LENGTH} characters" in page
    assert f"`{redaction.REDACTED}`" in page
    named = page.split("under a telling key (")[1].split("...")[0]
    assert set(re.findall(r"`(\w+)`", named)) <= redaction.KEYS
    for name in (seals.KEY_FILE, f"{seals.SEALED_FOLDER}/", f"{secret_source.FOLDER}/git-hub"):
        assert f"`{name}`" in page
    assert f"`{secret_source.variable_of('git-hub')}`" in page


def test_the_plugin_guide_names_everything_that_ctx_run_offers() -> None:
    """No public name of the current run is missing from the guide."""
    guide = (ROOT / "docs" / "plugins.md").read_text("utf-8")
    table = guide.split("## What `ctx.run` offers")[1].split("\n## ")[0]
    named = set(re.findall(r"\w+", table))
    source = inspect.getsource(ReportingRun)
    offered = {name for name in dir(CurrentRun) if not name.startswith("_")}
    offered |= set(re.findall(r"self\.([a-z]\w*)\b[^=(\n]*=", source))
    assert offered - named == set()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_made_from_the_code_is_up_to_date(page: str) -> None:
    """`python -m tools.reference` would change nothing."""
    assert (ROOT / "docs" / page).read_text("utf-8") == PAGES[page](), (
        "run: python -m tools.reference"
    )
