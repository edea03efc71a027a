"""What a program in any language says wrongly: it is told at the call, as Python is."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from perdure.runtime.plugins.contract import PluginError
from perdure.runtime.plugins.manifest import read_manifest
from perdure.runtime.process.message_parser import parse
from perdure.runtime.process.messages import Malformed
from tests.runtime.process.test_processes import lines, run
from tests.runtime.service import Service, real_service

SAYS = """
read -r start <&3
printf '%s\\n' '{line}' >&4
{then}
echo '{{"say": "return", "value": "went on"}}' >&4
"""


@asynccontextmanager
async def program(folder: Path, line: str, then: str) -> AsyncIterator[Service]:
    """Run a node with a plugin in plain shell that says one thing, and then does another."""
    (folder / "plugin.toml").write_text(
        'id = "plain"\nversion = "1"\n[entries.go]\ncommand = ["/bin/sh", "plain.sh"]\n'
    )
    (folder / "plain.sh").write_text(SAYS.format(line=line, then=then))
    plugin = read_manifest(folder)
    async with real_service({plugin.id: plugin}, cancel_grace=0.1) as s:
        s.plugin_id = plugin.id
        with trio.fail_after(60):
            yield s


@pytest.mark.parametrize(
    ("progress", "why"),
    [
        ("true", "Expected `float`, got `bool` - at `$.progress`"),
        ('"0.5"', "Expected `float`, got `str` - at `$.progress`"),
        ("null", "Expected `float`, got `null` - at `$.progress`"),
        ("NaN", "NaN is no JSON number"),
        ("-Infinity", "-Infinity is no JSON number"),
        ("1.1", "progress is a number from 0.0 to 1.0, not 1.1"),
    ],
)
async def test_a_report_that_is_wrong_fails_the_run_as_the_call_would(
    tmp_path: Path, progress: str, why: str
) -> None:
    """Nothing answers a report, so the run ends, and its record is unchanged (R17)."""
    line = f'{{"say": "progress", "progress": {progress}}}'
    async with program(tmp_path, line, "sleep 30") as s:
        end = await run(s, "go")
        assert (end["status"], end["progress"]) == ("failed", None)
        assert end["error"] is not None
        assert end["error"]["code"] == "VALIDATION_ERROR"
        assert end["error"]["message"].endswith(why)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (
            {"say": "export", "type": "movie", "content": "x"},
            "an export is one of text, url, binary_url, binary, json, id, not 'movie'",
        ),
        ({"say": "export", "type": 5, "content": "x"}, "Expected `str`, got `int` - at `$.type`"),
        ({"say": "export", "type": "text"}, "missing required field `content`"),
        ({"say": "export", "type": "json", "content": [float("nan")]}, "NaN is no JSON number"),
        ({"say": "sleep", "seconds": "long"}, "Expected `float`, got `str` - at `$.seconds`"),
        ({"say": "bytes", "metadata": 7}, "Expected `object | null`, got `int` - at `$.metadata`"),
        ({"say": "ask", "question": 1, "until": 2}, "Object contains unknown field `until`"),
    ],
    ids=lambda case: case["say"] if isinstance(case, dict) else "",
)
async def test_a_request_that_is_wrong_is_answered_and_the_run_goes_on(
    tmp_path: Path, request_: dict[str, object], why: str
) -> None:
    """The program hears VALIDATION_ERROR, and decides what becomes of it (R47)."""
    line = json.dumps({**request_, "id": 7})
    async with program(tmp_path, line, 'read -r answer <&3; echo "$answer"') as s:
        end = await run(s, "go")
        assert end["status"] == "succeeded", end["error"]
        ((_, heard),) = lines(s, end["run_id"])
        answer = json.loads(heard)
        assert (answer["re"], answer["error"]["code"]) == (7, "VALIDATION_ERROR")
        assert answer["error"]["message"].endswith(why)


@pytest.mark.parametrize(
    "line",
    [
        "rubbish",
        "NaN",
        "[NaN]",
        '{"say": ["progress"], "progress": NaN}',
        '{"say": "fly"}',
        '{"progress": true}',
        '{"say": "sleep", "seconds": "long"}',
        '{"say": "sleep", "seconds": "long", "id": true}',
        '{"say": "sleep", "seconds": "long", "id": "7"}',
        '{"say": "progress", "progress": true, "run_id": 7}',
        '{"say": "return", "value": NaN}',
        '{"say": "did", "id": "x"}',
        "[" * 100_000,
        '{"say": "progress", "progress": ' + "[" * 100_000,
    ],
)
def test_a_line_that_is_no_message_of_an_entry_breaks_the_protocol(line: str) -> None:
    """There is no call that it could be the error of."""
    with pytest.raises(Malformed):
        parse(line.encode())


def test_what_was_said_wrongly_is_not_repeated() -> None:
    """It may be a secret, which nothing has taken out yet."""
    said = parse(b'{"say": "export", "id": 1, "type": "text", "content": "x", "key": ["hidden"]}')
    with pytest.raises(PluginError) as refusal:
        said.checked()
    assert "hidden" not in refusal.value.message
