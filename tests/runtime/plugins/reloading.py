"""A plugin on disk that changes, and a node that loads it anew."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import trio

from perdure.actors.run.events import Activated
from perdure.eventlog import MemoryStore
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.loading import load_plugins
from perdure.runtime.plugins.reloader import Reloader
from perdure.runtime.plugins.settings import PluginSettings
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import AnswerRun
from tests.runtime.process.test_processes import result, until_stage
from tests.runtime.service import Service, real_service, service

REST = 5.0  # virtual seconds in which a change is noticed and loaded

MANIFEST = """
id = "test"
version = "{version}"
compatible = {compatible}
limit = {limit}
python = "code:Code"
"""
CODE = """
import os
from beside import NAME
from perdure import RunContext, SyncRunContext, entry, plugin
from perdure.runtime.runs.part import runs_of

PROCESS = os.urandom(8).hex()  # a process id may be the same in each namespace

@plugin("test", version="{version}", limit={limit})
class Code:
    @entry
    async def ask(self, ctx: RunContext) -> str:
        answer = await ctx.run.ask("which?")
        return f"{{answer}} {{NAME}} {said}"

    @entry
    async def greet(self, ctx: RunContext) -> str:
        return f"{{NAME}} {said}"

    @entry
    def work(self, ctx: SyncRunContext, wait: bool = False) -> list[str]:
        if wait:
            ctx.run.ask("which?")
        return [PROCESS, f"{{NAME}} {said}"]
"""


class Files:
    """A plugin on disk, as a folder or as a module, and ways to change it."""

    def __init__(self, path: Path, kind: str) -> None:
        """Write it in one version."""
        self.kind = kind
        self.folder = path / "folder" if kind == "folder" else path / "modules"
        self.code = self.folder / ("code.py" if kind == "folder" else "reloaded_plugin.py")
        self.folder.mkdir()
        self.write()
        self.settings = (
            PluginSettings(demo=False, reload=True, plugins=[str(path / "folder")])
            if kind == "folder"
            else PluginSettings(demo=False, reload=True, modules=["reloaded_plugin"])
        )

    def write(
        self, said: str = "one", version: str = "1", limit: int = 10, compatible: str = "[]"
    ) -> None:
        """Write all of it."""
        about = {"version": version, "limit": limit, "said": said}
        text = dedent(CODE).format(**about)
        if self.kind == "folder":
            (self.folder / "beside.py").write_text(f'NAME = "{said}"\n', "utf-8")
            manifest = MANIFEST.format(compatible=compatible, **about)
            (self.folder / "plugin.toml").write_text(manifest, "utf-8")
        else:
            text = text.replace("from beside import NAME", f'NAME = "{said}"')
            text = text.replace('version="', f'compatible={compatible}, version="')
        self.code.write_text(text, "utf-8")
        os.utime(self.code)


@asynccontextmanager
async def reloading(
    files: Files, tmp_path: Path, store: MemoryStore | None = None, *, real: bool = False
) -> AsyncIterator[Service]:
    """Run a node that loads its plugins anew."""
    copies = tmp_path / "copies"
    shutil.rmtree(copies, ignore_errors=True)
    copies.mkdir()
    reloader = Reloader(files.settings, load_plugins(files.settings), copies)
    plugins = reloader.loaded.plugins
    async with real_service(plugins) if real else service(store, plugins) as s:
        executor = runs_of(s.node).executor
        executor.start(partial(reloader.run, executor.context.env, executor.load))
        with trio.fail_after(60 if real else 10_000):
            yield s


async def ran(s: Service, entry_id: str, **args: Any) -> Any:
    """Run an entry to its end and give its result."""
    record = await s.finished((await s.start(entry_id, args=args))["run_id"])
    assert record["error"] is None
    return await result(s, record)


async def asking(s: Service, entry_id: str = "ask", **args: Any) -> str:
    """Start a run and wait until it asks."""
    run_id = (await s.start(entry_id, args=args))["run_id"]
    await until_stage(s, run_id, "input_required")
    return run_id


async def answered(s: Service, run_id: str) -> Any:
    """Answer a run and give its result."""
    (question,) = (await s.read(run_id))["questions"]
    await s.answer(LOCAL, AnswerRun(run_id=run_id, question_id=question, answer="so"))
    return await result(s, await s.finished(run_id))


async def problems(s: Service) -> list[Any]:
    """What could not be loaded, as callers see it."""
    return list((await s.call("plugins.list", {}))["problems"])


def versions(s: Service, run_id: str) -> list[str]:
    """The versions of the plugin that a run was activated with."""
    return [event.plugin_version for event in s.world.events(run_id, Activated)]
