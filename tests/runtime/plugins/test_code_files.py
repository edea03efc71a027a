"""Which modules are loaded anew with a plugin."""

from pathlib import Path

import pytest

from perdure.runtime.plugins.code_files import modules_of, stamps_of
from perdure.runtime.plugins.loading import PluginSource


@pytest.mark.parametrize("package", ["runtime", "actors", "eventlog", "reports"])
def test_a_plugin_may_lie_in_a_package_of_any_name(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of a user's package runtime are watched, and its modules are imported anew."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / package).mkdir()
    files = {tmp_path / package / name for name in ("__init__.py", "orders.py")}
    for file in files:
        file.touch()
    source = PluginSource(name=f"{package}.orders", module=f"{package}.orders")
    assert set(stamps_of(source)) == {str(file) for file in files}
    is_theirs = modules_of(source)
    assert is_theirs(f"{package}.orders", None)
    assert not is_theirs(f"perdure.{package}", None)


def test_modules_of_perdure_are_never_loaded_anew() -> None:
    """Not even with a plugin that ships in it."""
    source = PluginSource(name="perdure.demo", module="perdure.demo")
    assert stamps_of(source) == {}
    assert not modules_of(source)("perdure.demo", None)
