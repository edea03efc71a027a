"""Secret arguments as they are declared and published."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from perdure.runtime.plugins.manifest import read_manifest
from perdure.runtime.plugins.plugin import DeclarationError, declared, entry, plugin
from perdure.runtime.plugins.run_context import RunContext
from perdure.runtime.secrets.secret import Secret
from tests.runtime.secrets.guarded import PLUGINS


def test_a_secret_is_published_as_write_only() -> None:
    """Also one that may be left out."""
    properties = PLUGINS["test"].entries["use"].schema["properties"]
    assert properties["token"] == {"type": "string", "writeOnly": True}
    assert [name for name, part in properties.items() if part.get("writeOnly")] == [
        "token",
        "second",
        "login",
    ]
    assert PLUGINS["test"].entries["use"].secrets == {"token", "second", "login"}


def declaring(hint: Any, *default: Any) -> Callable[[], type]:
    """A plugin whose entry has one argument."""

    def declare() -> type:
        class Declared:
            async def go(self, ctx: RunContext, it: Any) -> None:
                """Go."""

        Declared.go.__annotations__["it"] = hint
        Declared.go.__defaults__ = default or None
        entry(Declared.go)
        return plugin("p")(Declared)

    return declare


class Inside(msgspec.Struct):
    """A struct with a secret in it, and itself."""

    password: Secret
    next: Inside | None = None


@pytest.mark.parametrize(
    ("hint", "default", "said"),
    [
        (list[Secret], (), "an argument of its own"),
        (dict[str, Secret], (), "an argument of its own"),
        (Inside, (), "an argument of its own"),
        (Secret, ("hunter2",), "None is the only one"),
    ],
)
def test_a_secret_that_could_not_be_kept_is_a_mistake(
    hint: Any, default: tuple[Any, ...], said: str
) -> None:
    """It shows at the declaration: nobody believes something sealed that is not."""
    with pytest.raises(DeclarationError, match=f"'it'.*{said}"):
        declaring(hint, *default)()


def test_a_struct_may_be_a_secret_as_a_whole() -> None:
    """Then it does not matter what is inside."""
    whole = Annotated[Inside, Meta(extra_json_schema={"writeOnly": True})]
    assert declared(declaring(whole)()).entries["go"].secrets == {"it"}
    assert declared(declaring(Secret | None, None)()).entries["go"].secrets == {"it"}


def test_a_manifest_names_secrets_too(tmp_path: Any) -> None:
    """With ``secret = true``; such an argument has no default."""
    said = 'id = "p"\nversion = "1"\n[entries.e]\ncommand = ["true"]\n[entries.e.args]\n'
    path = tmp_path / "plugin.toml"
    path.write_text(said + 'token = { type = "string", secret = true }\n', "utf-8")
    assert read_manifest(tmp_path).entries["e"].secrets == {"token"}
    path.write_text(said + 'token = { type = "string", secret = true, default = "x" }\n', "utf-8")
    with pytest.raises(DeclarationError, match=r"args.token: it is secret"):
        read_manifest(tmp_path)
