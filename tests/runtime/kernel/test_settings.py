from __future__ import annotations

from pathlib import Path

import pytest

from perdure.runtime.kernel.settings import (
    DEFAULT,
    NAMES,
    Settings,
    SettingsError,
    description,
    load_settings,
)
from perdure.runtime.kernel.variables import VARIABLES


def write(directory: Path, text: str, name: str = "perdure.toml") -> None:
    """Write a settings file."""
    (directory / name).write_text(text, "utf-8")


def test_flags_beat_variables_beat_the_file_beat_defaults(tmp_path: Path) -> None:
    """Each value says where it comes from."""
    write(tmp_path, 'data_dir = "file"\nruns = 5\ncancel_grace = 2\nplugins = ["a"]\n')
    variables = {"PERDURE_DATA_DIR": "variable", "PERDURE_RUNS": "7", "PATH": "/"}
    loaded = load_settings({"data_dir": "flag", "runs": None}, variables, tmp_path)
    assert loaded.settings.data_dir == "flag"
    assert (loaded.settings.runs, loaded.settings.cancel_grace) == (7, 2.0)
    assert loaded.settings.plugins == ["a"]
    assert loaded.settings.demo is True
    assert loaded.origins == dict.fromkeys(NAMES, DEFAULT) | {
        "data_dir": "--data-dir",
        "runs": "PERDURE_RUNS",
        "cancel_grace": "perdure.toml",
        "plugins": "perdure.toml",
    }


def test_nothing_set_is_the_defaults(tmp_path: Path) -> None:
    """Without a file and variables everything has its default."""
    assert load_settings({}, {}, tmp_path).settings == Settings()


def test_variables_are_read_as_what_they_stand_for(tmp_path: Path) -> None:
    """Text becomes numbers, truth values and lists."""
    variables = {
        "PERDURE_DEMO": "false",
        "PERDURE_CANCEL_GRACE": "1.5",
        "PERDURE_PLUGINS": "a,b",
        "PERDURE_MODULES": "",
        "PERDURE_SECRET_API": "not a setting",
        **dict.fromkeys(VARIABLES, "of a process that an entry runs in"),
    }
    settings = load_settings({}, variables, tmp_path).settings
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
        ("", {"PERDURE_CONFIG": "none.toml"}, "none.toml, which does not exist"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_remedy(
    tmp_path: Path, text: str, variables: dict[str, str], reason: str
) -> None:
    """Unknown names with the nearest one, bad values with their origin."""
    write(tmp_path, text)
    with pytest.raises(SettingsError) as refused:
        load_settings({}, variables, tmp_path)
    assert reason in str(refused.value)


def test_another_file_can_be_named(tmp_path: Path) -> None:
    """PERDURE_CONFIG says which."""
    write(tmp_path, "runs = 3", "other.toml")
    loaded = load_settings({}, {"PERDURE_CONFIG": "other.toml"}, tmp_path)
    assert (loaded.settings.runs, loaded.origins["runs"]) == (3, "other.toml")


def test_every_setting_is_described() -> None:
    """People can ask what it is for."""
    for name in NAMES:
        assert description(name)
