"""Processes of plugins that are loaded anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from perdure.runtime.features import FEATURES
from perdure.runtime.kernel.local_node import open_local_node
from perdure.runtime.plugins.code_files import copy_code, stamps_of
from perdure.runtime.plugins.loading import PluginSource
from perdure.runtime.runs.part import runs_of
from tests.runtime.plugins.reloading import (
    Files,
    answered,
    asking,
    problems,
    ran,
    reloading,
)
from tests.runtime.process.test_pool import kept, pool_of
from tests.runtime.service import Service
from tests.runtime.settings import settings_with


async def until(s: Service, said: str) -> Any:
    """Run an entry in a process until what it says is new; give its answer."""
    while True:
        answer = await ran(s, "work")
        if answer[1] == said:
            return answer
        await trio.sleep(0.1)


async def test_warm_workers_are_never_used_for_other_code(
    plugin_files: Files, tmp_path: Path
) -> None:
    """The same version or not: they end at once, those at work when they are done."""

    def workers() -> int:
        return len(kept(s))

    async with reloading(plugin_files, tmp_path, real=True) as s:
        busy = await asking(s, "work", wait=True)
        warm = await ran(s, "work")
        assert await ran(s, "work") == warm
        plugin_files.write("two")
        fresh = await until(s, "two two")
        assert fresh[0] != warm[0]
        assert workers() == 1
        assert (await answered(s, busy))[1] == "one one"
        assert workers() == 1
        assert await ran(s, "work") == fresh


async def test_a_process_executes_what_was_loaded(plugin_files: Files, tmp_path: Path) -> None:
    """Also when its file cannot be loaded any more, and when its worker starts late."""
    async with reloading(plugin_files, tmp_path, real=True) as s:
        plugin_files.code.write_text("x = = 1\n", "utf-8")
        assert (await ran(s, "work"))[1] == "one one"
        while not await problems(s):  # noqa: ASYNC110 - nobody tells
            await trio.sleep(0.1)
        await pool_of(s).let_go()
        assert (await ran(s, "work"))[1] == "one one"


async def test_a_node_does_it_if_the_settings_say_so(plugin_folder: Files, tmp_path: Path) -> None:
    """On real files and in real time; copies are gone when it ends."""
    data = str(tmp_path / "data")
    settings = settings_with(
        demo=False, reload=True, plugins=[str(plugin_folder.folder)], data_dir=data
    )
    async with open_local_node(settings, FEATURES) as node:
        entry = runs_of(node).executor.context.entries.plugins["test"].entries["work"]
        assert entry.program is not None
        assert entry.program.code is not None
        copy = Path(entry.program.code)
        assert (copy / "code.py").is_file()
        plugin_folder.write("two", version="2")
        with trio.fail_after(30):
            while runs_of(node).executor.context.entries.plugins["test"].version == "1":  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.05)
    assert not copy.exists()


def test_a_copy_has_what_lies_beside_the_code(tmp_path: Path) -> None:
    """Modules are copied, everything else is linked, what was installed is left out of the look."""
    folder = tmp_path / "plugin"
    for name in ("code.py", "part/more.py", "part/data.txt", "data/a.txt", "node_modules/x/y.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name, "utf-8")
    (folder / "plugin.toml").write_text("", "utf-8")
    (folder / "loop").symlink_to(folder)
    source = PluginSource(name="folder", folder=folder)
    seen = {str(Path(file).relative_to(folder)) for file in stamps_of(source)}
    assert seen == {"plugin.toml", "code.py", "part/more.py"}
    copy_code(source, tmp_path / "copy")
    for name in ("code.py", "part/more.py"):
        (folder / name).write_text("other", "utf-8")
        assert (tmp_path / "copy" / name).read_text("utf-8") == name
    (folder / "part/data.txt").write_text("other", "utf-8")
    assert (tmp_path / "copy" / "part/data.txt").read_text("utf-8") == "other"
    assert (tmp_path / "copy" / "data/a.txt").read_text("utf-8") == "data/a.txt"
