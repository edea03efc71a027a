from __future__ import annotations

from pathlib import Path

import pytest

from perdure.runtime.kernel.settings import DEFAULT, Settings, SettingsError
from perdure.runtime.kernel.variables import OF_PROCESSES
from perdure.runtime.runs.settings import RunSettings
from tests.runtime.settings import TABLE


def write(directory: Path, text: str, name: str = "perdure.toml") -> None:
    """Write a settings file."""
    (directory / name).write_text(text, "utf-8")


def test_flags_beat_variables_beat_the_file_beat_defaults(tmp_path: Path) -> None:
    """Each value says where it comes from."""
    write(tmp_path, 'data_dir = "file"\nruns = 5\ncancel_grace = 2\nplugins = ["a"]\n')
    variables = {"PERDURE_DATA_DIR": "variable", "PERDURE_RUNS": "7", "PATH": "/"}
    loaded = TABLE.load({"data_dir": "flag", "runs": None}, variables, tmp_path)
    runs = loaded.settings.of(RunSettings)
    assert loaded.settings.server.data_dir == "flag"
    assert (runs.runs, runs.cancel_grace, runs.plugins, runs.demo) == (7, 2.0, ["a"], True)
    assert loaded.origins == dict.fromkeys(TABLE.names, DEFAULT) | {
        "data_dir": "--data-dir",
        "runs": "PERDURE_RUNS",
        "cancel_grace": "perdure.toml",
        "plugins": "perdure.toml",
    }


def test_nothing_set_is_the_defaults(tmp_path: Path) -> None:
    """Without a file and variables everything has its default."""
    settings = TABLE.load({}, {}, tmp_path).settings
    assert TABLE.values(settings) == TABLE.values(Settings())


def test_variables_are_read_as_what_they_stand_for(tmp_path: Path) -> None:
    """Text becomes numbers, truth values and lists."""
    variables = {
        "PERDURE_DEMO": "false",
        "PERDURE_CANCEL_GRACE": "1.5",
        "PERDURE_PLUGINS": "a,b",
        "PERDURE_MODULES": "",
        "PERDURE_SECRET_API": "not a setting",
        **dict.fromkeys(OF_PROCESSES, "of a process that an entry runs in"),
    }
    settings = TABLE.load({}, variables, tmp_path).settings.of(RunSettings)
    assert (settings.demo, settings.cancel_grace) == (False, 1.5)
    assert (settings.plugins, settings.modules) == (["a", "b"], [])


@pytest.mark.parametrize(
    ("text", "variables", "reason"),
    [
        ("data_dirr = 'x'", {}, "did you mean data_dir?"),
        ("xyzzy = 1", {}, "`perdure config` lists all settings"),
        ("", {"PERDURE_DATADIR": "x"}, "did you mean PERDURE_DATA_DIR?"),
        ("runs = 'many'", {}, "runs (perdure.toml)"),
        ("runs = 0", {}, "runs (perdure.toml)"),
        ("", {"PERDURE_RUNS": ""}, "runs (PERDURE_RUNS): Expected `int`, got `str`"),
        ("", {"PERDURE_RUNS": "x"}, "runs (PERDURE_RUNS)"),
        ("runs = ", {}, "perdure.toml cannot be read"),
        ("granted_secrets = ['github']", {}, "granted_secrets (perdure.toml)"),
        ("granted_secrets = ['acme:../x']", {}, "granted_secrets (perdure.toml)"),
        ("", {"PERDURE_GRANTED_SECRETS": "a:b,c"}, "granted_secrets (PERDURE_GRANTED_SECRETS)"),
        ("memory_budget = 1000", {}, "memory_budget (perdure.toml)"),
        ("body_limit = 4194304", {}, "requests of 2097152 bytes; make one of the two fit"),
        ("", {"PERDURE_CONFIG": "none.toml"}, "none.toml, which does not exist"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_remedy(
    tmp_path: Path, text: str, variables: dict[str, str], reason: str
) -> None:
    """Unknown names with the nearest one, bad values with their origin."""
    write(tmp_path, text)
    with pytest.raises(SettingsError) as refused:
        TABLE.load({}, variables, tmp_path)
    assert reason in str(refused.value)


def test_another_file_can_be_named(tmp_path: Path) -> None:
    """PERDURE_CONFIG says which."""
    write(tmp_path, "runs = 3", "other.toml")
    loaded = TABLE.load({}, {"PERDURE_CONFIG": "other.toml"}, tmp_path)
    assert (loaded.settings.of(RunSettings).runs, loaded.origins["runs"]) == (3, "other.toml")


def test_every_setting_is_described() -> None:
    """People can ask what it is for."""
    for name in TABLE.names:
        assert TABLE.description(name)
