import importlib
import json
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import perdure
from tests.repository.tree import PACKAGES, SUBPACKAGES

LISTED: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_name("public_names.toml").read_text("utf-8")
)


FROM_THE_LANGUAGE = {"Any", "TYPE_CHECKING", "import_module"}


def public_names(package: str) -> list[str]:
    """What the package offers by `from package import ...`, its modules apart."""
    module = importlib.import_module(package)
    return sorted(
        name
        for name in dir(module)
        if not name.startswith("_") and not isinstance(getattr(module, name), ModuleType)
        if name not in FROM_THE_LANGUAGE
    )


@pytest.mark.parametrize("package", [*PACKAGES, *SUBPACKAGES])
def test_public_names_are_the_listed_ones(package: str) -> None:
    """A package offers exactly the names on its list: none slips in, none gets lost."""
    offered = public_names(package)
    paste = "\n".join(f"    {json.dumps(name)}," for name in offered)
    assert offered == LISTED[package], (
        f"if this is meant, put into public_names.toml:\n\n{json.dumps(package)} = [\n{paste}\n]\n"
    )


def test_a_name_is_offered_once() -> None:
    """Whether it was used before or not."""
    assert callable(perdure.plugin)
    assert sorted(dir(perdure)) == sorted(set(dir(perdure)))


def test_every_package_has_a_list() -> None:
    """The list names the packages that ship and no others."""
    assert sorted(LISTED) == sorted([*PACKAGES, *SUBPACKAGES])
