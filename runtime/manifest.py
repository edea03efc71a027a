"""A plugin in a folder: ``plugin.toml`` says what it is and how its entries are started.

    id = "reports"
    version = "2"
    compatible = ["1"]          # versions whose runs this one can go on with
    limit = 4                   # of its runs at once
    network = false             # closed off from the network, where the system allows it
    memory = 512                # MiB that a process may take

    [entries.monthly]
    command = ["node", "monthly.js"]
    timeout = 600
    [entries.monthly.args]
    month = { type = "string" }
    pages = { type = "integer", default = 10, minimum = 1 }

With ``python = "module:Class"`` the entries are those of a class in a module of the folder.
"""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from dataclasses import replace
from math import ceil, floor
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from runtime.plugin import DeclarationError, Entry, Plugin, Program, declared
from runtime.secret import WRITE_ONLY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

MANIFEST: Final = "plugin.toml"
_TYPES: Final[dict[str, Any]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "object": dict[str, Any],
    "array": list[Any],
}


class Argument(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An argument of an entry. Without a default it is required."""

    type: Literal["string", "integer", "number", "boolean", "object", "array"]
    default: Any = msgspec.UNSET
    minimum: float | None = None
    maximum: float | None = None
    description: str | None = None
    secret: bool = False  # passed as a reference, or sealed; never in the log


class EntryManifest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An entry that is an executable."""

    command: Annotated[list[str], msgspec.Meta(min_length=1)]
    description: str | None = None
    timeout: Annotated[float, msgspec.Meta(gt=0)] | None = None
    resumes: bool = True
    args: dict[str, Argument] = {}


class Manifest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a plugin.toml says."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    version: str
    description: str | None = None
    compatible: list[str] = []
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    network: bool = True
    memory: Annotated[int, msgspec.Meta(ge=1)] | None = None
    python: str | None = None
    entries: dict[str, EntryManifest] = {}


def read_manifest(folder: Path) -> Plugin:
    """Make the plugin that a folder holds."""
    path = folder / MANIFEST
    try:
        manifest = msgspec.convert(tomllib.loads(path.read_text("utf-8")), Manifest)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise DeclarationError(f"{MANIFEST}: {error}") from error
    entries = {
        name: _entry(name, said, folder, manifest) for name, said in manifest.entries.items()
    }
    if manifest.python is not None:
        entries |= _python_entries(manifest.python, folder, manifest)
    if not entries:
        raise DeclarationError(f"{MANIFEST} names no entries: add [entries.NAME] or python = ...")
    return Plugin(
        id=manifest.id,
        version=manifest.version,
        entries=entries,
        limit=manifest.limit,
        description=manifest.description,
        compatible=frozenset(manifest.compatible),
    )


def _entry(name: str, said: EntryManifest, folder: Path, manifest: Manifest) -> Entry:
    fields = [_field(argument, name_) for name_, argument in said.args.items()]
    program = Program(
        command=_command(said.command, folder),
        folder=str(folder),
        network=manifest.network,
        memory=manifest.memory,
    )
    return Entry(
        id=name,
        handler=None,
        arguments=msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True),
        description=said.description,
        timeout=said.timeout,
        resumes=said.resumes,
        where="process",
        program=program,
    )


def _command(command: list[str], folder: Path) -> tuple[str, ...]:
    """Give the command; a program that is a file of the folder is started from there."""
    program = folder / command[0]
    return (str(program) if program.is_file() else command[0], *command[1:])


def _field(argument: Argument, name: str) -> Any:  # noqa: ANN401 - msgspec's
    is_number = argument.type in {"integer", "number"}
    if not is_number and (argument.minimum is not None or argument.maximum is not None):
        raise DeclarationError(
            f"{MANIFEST}: args.{name} is no number: it has no minimum or maximum"
        )
    if argument.secret and argument.default is not msgspec.UNSET:
        raise DeclarationError(f"{MANIFEST}: args.{name} is secret: it has no default")
    meta = msgspec.Meta(
        ge=_bound(argument.type, argument.minimum, ceil),
        le=_bound(argument.type, argument.maximum, floor),
        description=argument.description,
        extra_json_schema=WRITE_ONLY if argument.secret else None,
    )
    hint: Any = Annotated[_TYPES[argument.type], meta]
    if argument.default is msgspec.UNSET:
        return (name, hint)
    try:
        msgspec.convert(argument.default, hint)
    except msgspec.ValidationError as error:
        raise DeclarationError(f"{MANIFEST}: the default of args.{name}: {error}") from error
    default = argument.default
    if isinstance(default, dict | list) and default:
        return (name, hint, msgspec.field(default_factory=lambda: default))
    return (name, hint, default)


def _bound(kind: str, bound: float | None, towards: Callable[[float], int]) -> float | None:
    """Give a bound that fits its type: of integers, the last one that is allowed."""
    return bound if bound is None or kind != "integer" else towards(bound)


def _python_entries(home: str, folder: Path, manifest: Manifest) -> dict[str, Entry]:
    """Give the entries of a class in a module of the folder."""
    module_name, _, class_name = home.partition(":")
    module = _import(folder, module_name, manifest.id)
    cls = getattr(module, class_name, None)
    if not isinstance(cls, type):
        raise DeclarationError(f"{MANIFEST}: there is no class {class_name!r} in {module_name}.py")
    program = Program(
        home=home, folder=str(folder), network=manifest.network, memory=manifest.memory
    )
    return {
        entry.id: replace(entry, program=program if entry.where == "process" else None)
        for entry in declared(cls).entries.values()
    }


def _import(folder: Path, name: str, plugin_id: str) -> ModuleType:
    """Import a module of a folder under a name that no other folder's module has."""
    path = folder / f"{name.replace('.', '/')}.py"
    unique = f"perdure_plugin_{plugin_id}.{name}"
    spec = importlib.util.spec_from_file_location(unique, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise DeclarationError(f"{MANIFEST}: there is no {path.name} in the folder")
    module = importlib.util.module_from_spec(spec)
    sys.modules[unique] = module
    sys.path.insert(0, str(folder))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module
