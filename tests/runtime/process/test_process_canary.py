"""A canary goes wherever a process can send it, and must be found nowhere."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from perdure.eventlog import MemoryStore, RealEnv, SqliteStore, open_log
from perdure.runtime.blobs.file_depot import FileDepot
from perdure.runtime.blobs.store import BlobStore
from perdure.runtime.kernel.data_directory import DataDir
from perdure.runtime.kernel.node import Node
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.manifest import read_manifest
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.runs.feature import open_run_node
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import AnswerRun, CancelRun
from perdure.runtime.secrets.redaction import REDACTED
from perdure.runtime.secrets.references import SecretSource
from perdure.runtime.secrets.sealed_files import MemorySeals
from perdure.runtime.secrets.secrets import open_secrets
from tests.programs import require
from tests.runtime.execution.test_current_run import items
from tests.runtime.process.caged_plugin import FAILURES, Caged, refused_calls
from tests.runtime.process.test_processes import NEEDS, lines, result, run, start, until_stage
from tests.runtime.secrets import canary
from tests.runtime.secrets.canary import CANARY
from tests.runtime.secrets.test_canary import WAYS, everything
from tests.runtime.service import Service, real_service, refused

PARTS = 6  # so many characters of it are telling
LONG = "".join(f"{number:05d}~" for number in range(4000))  # no message is that long, no id has ~
PEM = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqh\nkiG9w0BAQEFAASC\n-----END KEY-----\n"


@asynccontextmanager
async def caged(value: str = CANARY, **more: Any) -> AsyncIterator[Service]:
    """Run a node with entries that let secrets out."""
    source = SecretSource({"PERDURE_SECRET_BIRD": value})
    async with real_service({"caged": declared(Caged)}, source=source, **more) as s:
        s.plugin_id = "caged"
        with trio.fail_after(60):
            yield s


def parts_of(value: str, store: MemoryStore) -> list[str]:
    """Any piece of a secret that is in the log."""
    everything_there = repr([tuple(record) for record in store._records])
    pieces = {value[start : start + PARTS] for start in range(len(value) - PARTS + 1)}
    return [piece for piece in pieces if repr(piece)[1:-1] in everything_there]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("entry_id", ["everywhere", "async_everywhere"])
async def test_nothing_that_people_read_has_a_secret_in_it(
    caplog: pytest.LogCaptureFixture, way: Any, entry_id: str
) -> None:
    """Lines, printed or logged, wherever they are cut; messages, tracebacks, exports, results."""
    store, seals = MemoryStore(), MemorySeals()
    async with caged(store=store, seals=seals, progress_items=True) as s:
        end = await run(s, entry_id, token=way)
        assert end["status"] == "succeeded", end
        said = [text for _, text in lines(s, end["run_id"])]
        assert f"whole {REDACTED} {{'t': '{REDACTED}'}}" in said
        assert f"split {REDACTED}" in said
        assert REDACTED in said  # character by character
        assert f"no end {REDACTED}" in said
        assert f"logging {REDACTED} {{'token': '{REDACTED}'}}" in said
        put_out = await items(s, end["run_id"])
        assert sum(REDACTED in repr(item) for item in put_out) == len(put_out)
        assert put_out[-1]["json"]["right"] == len(CANARY)  # the entry itself had it
        assert canary.in_answers(*await everything(s, end["run_id"])) == []
        assert canary.in_listing(s.node.listings["runs"].tables) == []
    assert canary.in_log(store) == []
    assert parts_of(CANARY, store) == []
    assert canary.in_logging(caplog.records, caplog.text) == []
    assert seals.sealed == {}


@pytest.mark.parametrize("how", list(FAILURES))
async def test_no_error_tells_a_secret(caplog: pytest.LogCaptureFixture, how: str) -> None:
    """However a process fails or crashes; its traceback is there, without the secret."""
    store = MemoryStore()
    async with caged(store=store, cancel_grace=0.1) as s:
        end = await run(s, "fails", token=WAYS[len(how) % 2], how=how)
        assert end["status"] == "failed"
        if how in {"crash", "crash_in_thread"}:
            said = [text for _, text in lines(s, end["run_id"])]
            assert any(REDACTED in text and "ValueError" in text for text in said)
            assert "Traceback (most recent call last):" in " ".join(said)
        assert canary.in_answers(*await everything(s, end["run_id"])) == []
    assert canary.in_log(store) == []
    assert parts_of(CANARY, store) == []
    assert canary.in_logging(caplog.records, caplog.text) == []


@pytest.mark.parametrize("value", [LONG, PEM, 'it\'s \\ "quoted" & odd/\u00fc'])
@pytest.mark.parametrize("entry_id", ["everywhere", "fails"])
async def test_secrets_of_any_shape_are_found(entry_id: str, value: str) -> None:
    """Very long ones, which are cut; those of several lines, which are printed line by line."""
    store = MemoryStore()
    async with caged(value, store=store) as s:
        args = {"how": "cut_off"} if entry_id == "fails" else {}
        end = await run(s, entry_id, token={"secret": "bird"}, **args)
        assert end["status"] == ("succeeded" if entry_id == "everywhere" else "failed"), end
    assert parts_of(value.removesuffix("\n"), store) == []


@pytest.mark.parametrize("what", sorted(refused_calls(None, "")))
async def test_what_is_fed_back_to_code_is_refused_and_not_altered(what: str) -> None:
    """At the call, with an error that says what to do."""
    store = MemoryStore()
    async with caged(store=store) as s:
        end = await run(s, "refused", token=CANARY, what=what)
        assert end["error"] is not None
        assert "reference" in end["error"]["message"]
        assert await items(s, end["run_id"]) == []
        assert runs_of(s.node).executor.context.blobs.drafted == 0
    assert canary.in_log(store) == []


async def test_an_answer_is_refused_and_a_reason_redacted() -> None:
    """Whoever says it."""
    store = MemoryStore()
    async with caged(store=store, cancel_grace=0.2) as s:
        run_id = await start(s, "asks", token=CANARY)
        await until_stage(s, run_id, "input_required")
        (asked,) = (await s.read(run_id))["questions"]
        answer = AnswerRun(run_id=run_id, question_id=asked, answer={"it is": CANARY})
        await refused("VALIDATION_ERROR", partial(s.answer, LOCAL, answer))
        await s.cancel(LOCAL, CancelRun(run_id=run_id, reason=f"{CANARY} is known"))
        assert (await s.finished(run_id))["cancel_reason"] == f"{REDACTED} is known"
    assert canary.in_log(store) == []


async def test_a_secret_is_passed_on_to_a_secret_argument_of_a_child() -> None:
    """It is sealed for the child, and forgotten with it."""
    store, seals = MemoryStore(), MemorySeals()
    async with caged(store=store, seals=seals) as s:
        child = await result(s, await run(s, "passes_on", token=CANARY))
        end = await s.finished(child)
        assert end["status"] == "succeeded", end["error"]
        assert await result(s, end) == len(CANARY)
        await runs_of(s.node).executor.settled()
    assert canary.in_log(store) == []
    assert seals.sealed == {}


async def test_a_process_that_had_a_secret_is_not_used_again() -> None:
    """What it goes on saying is heard by no later run, which could not know it for a secret."""
    store = MemoryStore()
    async with caged(store=store) as s:
        first = await run(s, "lingers", token=CANARY)
        assert first["status"] == "succeeded", first["error"]
        second = await run(s, "beside")
        assert lines(s, second["run_id"]) == []
        third = await run(s, "beside")
        assert await result(s, third) == await result(s, second)  # others are warm
    assert canary.in_log(store) == []


@pytest.mark.parametrize("language", ["shell", "node"])
async def test_a_program_of_any_kind_gets_its_secrets_on_the_wire(
    tmp_path: Path, language: str
) -> None:
    """Not as an argument nor in its environment; what a shell traces is redacted."""
    scripts = {
        "shell": """
            set -x
            IFS= read -r line <&"$PERDURE_READ_FD"
            token=$(printf '%s\\n' "$line" | jq -r .args.token)
            echo "token $token"
            length=${#token}
            tr '\\0' '\\n' </proc/self/environ
            printf '{"say": "return", "value": %s}\\n' "$length" >&"$PERDURE_WRITE_FD"
        """,
        "node": """
            const fs = require("node:fs");
            const input = fs.createReadStream(null, { fd: Number(process.env.PERDURE_READ_FD) });
            require("node:readline").createInterface({ input }).on("line", (line) => {
              const { token } = JSON.parse(line).args;
              console.log({ token, deep: [token] }, `token ${token}`);
              console.log(process.env, process.argv);
              const said = JSON.stringify({ say: "return", value: token.length });
              fs.writeSync(Number(process.env.PERDURE_WRITE_FD), said + "\\n");
              process.exit(0);
            });
        """,
    }
    require(*NEEDS[language])
    (tmp_path / "script").write_text(scripts[language])
    (tmp_path / "plugin.toml").write_text(
        f'id = "caged"\nversion = "1"\n[entries.go]\n'
        f'command = ["{ {"shell": "sh", "node": "node"}[language] }", "script"]\n'
        f'[entries.go.args]\ntoken = {{ type = "string", secret = true }}\n'
    )
    value = 'it\'s a "canary" \\ 7f3a9c/'
    store = MemoryStore()
    source = SecretSource({"PERDURE_SECRET_BIRD": value})
    async with real_service({"caged": read_manifest(tmp_path)}, store, source=source) as s:
        s.plugin_id = "caged"
        end = await run(s, "go", token={"secret": "bird"})
        assert await result(s, end) == len(value)
        said = "\n".join(text for _, text in lines(s, end["run_id"]))
        assert f"token {REDACTED}" in said
        assert "PERDURE_SECRET" not in said
    assert parts_of("canary", store) == parts_of("7f3a9c", store) == []


async def asked(node: Node, run_id: str) -> str:
    """Wait until a run asks something; give the question."""
    while True:
        record = (await node.operations.call(LOCAL, "runs.get", {"run_id": run_id}))["run"]
        if record["questions"]:
            return str(record["questions"][0])
        await trio.sleep(0.05)


async def test_no_file_has_a_secret_in_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the real world: while the process runs, and after it; nor has what is seen of it."""
    monkeypatch.setenv("PERDURE_SECRET_OTHER", "unused")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "bird").write_text(CANARY, "utf-8")
    (tmp_path / "secrets" / "bird").chmod(0o600)
    env = RealEnv()
    told: list[Any] = []
    with closing(SqliteStore.open(tmp_path / "log.db", env=env)) as store:
        async with (
            open_log(env, store) as log,
            open_run_node(
                log,
                {"caged": declared(Caged)},
                data=DataDir(tmp_path),
                blobs=BlobStore(env, FileDepot(tmp_path)),
                secrets=open_secrets(env, tmp_path, os.environ),
            ) as node,
        ):
            call = partial(node.operations.call, LOCAL)
            for way in WAYS:
                for entry_id in ("looks_around", "everywhere"):
                    request = {"plugin_id": "caged", "entry_id": entry_id, "args": {"token": way}}
                    told.append(await call("runs.create", request))
            looking = [told[0]["run"]["run_id"], told[2]["run"]["run_id"]]
            with trio.fail_after(30):
                for run_id in looking:
                    question = await asked(node, run_id)
                    assert canary.in_files(tmp_path, "bird") == []
                    answer = {"run_id": run_id, "question_id": question, "answer": "yes"}
                    told.append(await call("runs.answer", answer))
                await runs_of(node).executor.settled()
            for run_id in looking:
                items_of = await call("runs.export", {"run_id": run_id})
                assert [item["json"] for item in items_of["items"]] == [[]]
    assert list((tmp_path / "sealed").iterdir()) == []
    assert canary.in_files(tmp_path, "bird") == []
    assert canary.in_answers(*told) == []
    assert canary.in_logging(caplog.records, caplog.text) == []
