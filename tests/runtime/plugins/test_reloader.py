"""Plugins that are loaded anew while runs go on."""

from __future__ import annotations

import logging
import shutil
import sys
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from perdure.eventlog import MemoryStore
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.loading import load_plugins
from perdure.runtime.plugins.settings import PluginSettings
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import CreateRun
from tests.runtime.plugins.reloading import (
    REST,
    Files,
    answered,
    asking,
    problems,
    ran,
    reloading,
    versions,
)
from tests.runtime.process.test_processes import result
from tests.runtime.service import refused, service


async def test_a_run_goes_on_with_what_it_began_with(
    plugin_files: Files, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Code and version; runs that start later get what is new, modules beside it included."""
    async with reloading(plugin_files, tmp_path) as s:
        run_id = await asking(s)
        plugin_files.write("two", version="2")
        await trio.sleep(REST)
        later = (await s.start("greet"))["run_id"]
        assert await result(s, await s.finished(later)) == "two two"
        assert await answered(s, run_id) == "so one one"
        assert (versions(s, run_id), versions(s, later)) == (["1"], ["2"])


async def test_a_change_of_the_same_size_and_second_is_noticed(
    plugin_files: Files, tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Python has compiled does not stand for it."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    async with reloading(plugin_files, tmp_path) as s:
        for said in ("two", "six", "ten"):
            plugin_files.write(said)
            await trio.sleep(REST)
            assert await ran(s, "greet") == f"{said} {said}"


async def test_what_cannot_be_loaded_again_goes_on_as_it_was(
    plugin_files: Files, tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The problem is told with file, line and remedy until it is corrected."""
    async with reloading(plugin_files, tmp_path) as s:
        good = plugin_files.code.read_text("utf-8")
        plugin_files.code.write_text("import os\n\nx = = 1\n", "utf-8")
        await trio.sleep(REST)
        assert await ran(s, "greet") == "one one"
        (problem,) = await problems(s)
        assert (problem["file"], problem["line"]) == (plugin_files.code.name, 3)
        assert "SyntaxError" in problem["message"]
        assert problem["remedy"]
        (told,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert "line 3" in told.getMessage()
        plugin_files.code.write_text(good.replace("one", "two"), "utf-8")
        await trio.sleep(REST)
        assert await problems(s) == []
        assert (await ran(s, "greet")).endswith("two")


async def test_a_program_that_exits_when_it_is_imported_ends_nothing(
    plugin_files: Files, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """It is a problem like others."""
    async with reloading(plugin_files, tmp_path) as s:
        plugin_files.code.write_text("import sys\nsys.exit(7)\n", "utf-8")
        await trio.sleep(REST)
        (problem,) = await problems(s)
        assert (problem["message"], problem["line"]) == ("SystemExit: 7", 2)
        assert await ran(s, "greet") == "one one"


async def test_a_file_that_is_being_written_is_left_alone(
    plugin_folder: Files,
    tmp_path: Path,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """However long it takes: it is loaded when it rests."""
    async with reloading(plugin_folder, tmp_path) as s:
        good = plugin_folder.code.read_text("utf-8").replace("one", "two")
        for length in range(0, len(good), 40):
            plugin_folder.code.write_text(good[:length], "utf-8")
            await trio.sleep(0.3)
        plugin_folder.code.write_text(good, "utf-8")
        await trio.sleep(REST)
        assert await ran(s, "greet") == "one two"
        assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_what_is_removed_goes_away_for_new_runs_only(
    plugin_files: Files, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Runs under way end as if it were there; when it is there again, it is loaded."""
    request = CreateRun(plugin_id="test", entry_id="greet", args={})
    async with reloading(plugin_files, tmp_path) as s:
        run_id = await asking(s)
        aside = plugin_files.folder.rename(tmp_path / "aside")
        await trio.sleep(REST)
        await refused("PLUGIN_NOT_FOUND", lambda: s.create(LOCAL, request))
        (problem,) = await problems(s)
        assert "there is no" in problem["message"]
        assert await answered(s, run_id) == "so one one"
        aside.rename(plugin_files.folder)
        await trio.sleep(REST)
        assert await ran(s, "greet") == "one one"
        assert await problems(s) == []


async def test_a_folder_that_appears_is_loaded(
    plugins_on_disk: Path, autojump_clock: MockClock
) -> None:
    """In a folder of folders; the others are not touched, and an id has one owner."""
    tmp_path = plugins_on_disk
    (tmp_path / "many").mkdir()
    first = Files(tmp_path / "many", "folder")
    first.settings = PluginSettings(demo=False, reload=True, plugins=[str(tmp_path / "many")])
    async with reloading(first, tmp_path) as s:
        before = runs_of(s.node).executor.context.entries.plugins["test"]
        other = tmp_path / "many" / "a-folder"
        shutil.copytree(first.folder, other)
        await trio.sleep(REST)
        (problem,) = await problems(s)
        assert "'test' is taken by" in problem["message"]
        manifest = (other / "plugin.toml").read_text("utf-8")
        (other / "plugin.toml").write_text(manifest.replace('"test"', '"other"'), "utf-8")
        await trio.sleep(REST)
        assert await problems(s) == []
        assert sorted(runs_of(s.node).executor.context.entries.plugins) == ["other", "test"]
        assert runs_of(s.node).executor.context.entries.plugins["test"] is before


async def test_an_id_is_free_when_its_owner_is_gone(
    plugins_on_disk: Path, autojump_clock: MockClock
) -> None:
    """A folder that was renamed brings the plugin that it had."""
    tmp_path = plugins_on_disk
    (tmp_path / "many").mkdir()
    first = Files(tmp_path / "many", "folder")
    first.settings = PluginSettings(demo=False, reload=True, plugins=[str(tmp_path / "many")])
    async with reloading(first, tmp_path) as s:
        first.folder.rename(tmp_path / "many" / "another-name")
        await trio.sleep(REST)
        assert await problems(s) == []
        assert await ran(s, "greet") == "one one"
        (tmp_path / "many" / "another-name" / "beside.py").write_text('NAME = "two"', "utf-8")
        await trio.sleep(REST)
        assert await ran(s, "greet") == "two one"


async def test_a_larger_limit_lets_those_who_wait_start(
    plugin_files: Files, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """They need not wait for somebody to end."""
    plugin_files.write(limit=1)
    async with reloading(plugin_files, tmp_path) as s:
        await asking(s)
        second = (await s.start("ask"))["run_id"]
        await trio.sleep(REST)
        assert (await s.read(second))["status"] == "queued"
        plugin_files.write("two", limit=2)
        await trio.sleep(REST)
        assert await answered(s, second) == "so two two"


async def test_the_version_that_is_recorded_is_the_one_that_is_executed(
    plugin_folder: Files, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Also if the plugin is loaded anew between the two."""
    one = load_plugins(plugin_folder.settings).plugins
    async with service(None, one) as s:
        s.node.log.env.delay = 1.0  # type: ignore[attr-defined]
        run_id = (await s.start("greet"))["run_id"]
        await trio.sleep(0.5)  # its activation is being written
        plugin_folder.write("two", version="2")
        runs_of(s.node).executor.use(load_plugins(plugin_folder.settings).plugins)
        assert await result(s, await s.finished(run_id)) == "one one"
        assert versions(s, run_id) == ["1"]


@pytest.mark.parametrize(
    ("version", "compatible", "end"),
    [("1", "[]", "so two two"), ("2", '["1"]', "so two two"), ("2", "[]", "HOST_LOST")],
)
async def test_after_a_crash_a_run_goes_on_if_its_version_fits(
    plugin_folder: Files,
    tmp_path: Path,
    autojump_clock: MockClock,
    version: str,
    compatible: str,
    end: str,
) -> None:
    """With the version that started it or one that is compatible, as they are now."""
    store = MemoryStore()
    async with reloading(plugin_folder, tmp_path, store) as s:
        run_id = await asking(s)
        plugin_folder.write("two", version=version, compatible=compatible)
        await trio.sleep(REST)
    async with reloading(plugin_folder, tmp_path, store) as s:
        if end == "HOST_LOST":
            error = (await s.finished(run_id))["error"]
            assert error is not None
            assert error["code"] == end
        else:
            assert await answered(s, run_id) == end
            assert versions(s, run_id) == ["1", version]


async def test_a_run_that_waits_to_go_on_is_held_to_its_version_too(
    plugin_folder: Files, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """What was loaded after it was taken up, and before its turn came, may not fit."""
    store = MemoryStore()
    plugin_folder.write(limit=2)
    async with reloading(plugin_folder, tmp_path, store) as s:
        first, second = await asking(s), await asking(s)
    plugin_folder.write(limit=1)
    async with reloading(plugin_folder, tmp_path, store) as s:
        plugin_folder.write("two", version="2", limit=1)
        await trio.sleep(REST)
        assert await answered(s, first) == "so one one"
        record = await s.finished(second)
        assert record["error"] is not None
        assert record["error"]["code"] == "HOST_LOST"
        assert versions(s, second) == ["1"]
