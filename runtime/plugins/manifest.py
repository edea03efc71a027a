"""A plugin in a folder: ``plugin.toml`` says what it is and how its entries are started.

    id = "reports"
    version = "2"
    compatible = ["1"]          # versions whose runs this one can go on with
    limit = 4                   # of its runs at once
    network = false             # closed off from the network, where the system allows it
    memory = 512                # MiB that a run may take
    processes = 64              # that a run may have started at once
    reads = ["/srv/models"]     # what it needs beside this folder and its interpreter
    writes = ["cache"]          # what it may change: everything else is read only

    [entries.monthly]
    command = ["node", "monthly.js"]
    timeout = 600
    [entries.monthly.args]
    month = { type = "string" }
    pages = { type = "integer", default = 10, minimum = 1 }

With ``python = "module:Class"`` the entries are those of a class in a module of the folder. What
``[entries.NAME]`` without a command says then comes before what the class says of that entry.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from dataclasses import dataclass, replace
from math import ceil, floor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from perdure.runtime.plugins.document import Document
from perdure.runtime.plugins.plugin import (
    LONGEST,
    DeclarationError,
    Entry,
    Plugin,
    Program,
    Where,
    declared,
    placed,
)
from perdure.runtime.secrets.secret import WRITE_ONLY

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

MANIFEST: Final = "plugin.toml"
_ENTRY_NAME: Final = re.compile(r"[\w-]+")
_PLUGIN_ID: Final = re.compile(r"[\w-]+(\.[\w-]+)*")
_TYPES: Final[dict[str, Any]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "object": dict[str, Any],
    "array": list[Any],
}


class Argument(msgspec.Struct, kw_only=True):
    """An argument of an entry. Without a default it is required."""

    type: Literal["string", "integer", "number", "boolean", "object", "array"]
    default: Any = msgspec.UNSET
    minimum: float | None = None
    maximum: float | None = None
    description: str | None = None
    secret: bool = False  # passed as a reference, or sealed; never in the log


class EntryManifest(msgspec.Struct, kw_only=True):
    """An entry: an executable, or, without a command, one of the class."""

    command: Annotated[list[str], msgspec.Meta(min_length=1)] | None = None
    where: Where | None = None
    description: str | None = None
    timeout: Annotated[float, msgspec.Meta(gt=0, le=LONGEST)] | None = None
    resumes: bool | None = None
    args: dict[str, Any] = {}  # of Argument


class Manifest(msgspec.Struct, kw_only=True):
    """What a plugin.toml says."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    version: Annotated[str, msgspec.Meta(min_length=1)]
    description: str | None = None
    compatible: list[str] = []
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    network: bool = True
    memory: Annotated[int, msgspec.Meta(ge=1, le=1 << 30)] | None = None
    processes: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] | None = None
    reads: list[str] = []
    writes: list[str] = []
    python: str | None = None
    entries: dict[str, Any] = {}  # of EntryManifest


def read_manifest(folder: Path) -> Plugin:
    """Make the plugin that a folder holds."""
    document = Document(folder / MANIFEST)
    manifest = document.table(document.content, Manifest)
    if not _PLUGIN_ID.fullmatch(manifest.id):
        raise document.wrong("it has letters, digits, _ and -, and dots between them", "id")
    entries = _Folder(folder, document, manifest).entries()
    if not entries:
        raise document.wrong("it names no entries: add [entries.NAME] or python = ...")
    return Plugin(
        id=manifest.id,
        version=manifest.version,
        entries=entries,
        limit=manifest.limit,
        description=manifest.description,
        compatible=frozenset(manifest.compatible),
    )


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder whose manifest was read, and what is wrong in it."""

    path: Path
    document: Document
    manifest: Manifest

    def entries(self) -> dict[str, Entry]:
        """Give the entries of the class, if there is one, and the executables."""
        home = self.manifest.python
        entries = {} if home is None else self._of_class(home)
        for name, table in self.manifest.entries.items():
            said = self.document.table(table, EntryManifest, "entries", name)
            if said.command is None:
                entries[name] = self._changed(entries.get(name), said, name)
            elif name in entries:
                raise self._wrong("the class has an entry of this name too", name)
            else:
                entries[name] = self._executable(said, said.command, name)
        return entries

    def _wrong(self, message: str, name: str, *place: str) -> DeclarationError:
        return self.document.wrong(message, "entries", name, *place)

    # Executables

    def _executable(self, said: EntryManifest, command: list[str], name: str) -> Entry:
        if not _ENTRY_NAME.fullmatch(name):
            raise self._wrong("the name of an entry has letters, digits, _ and -", name)
        if said.where not in {None, "process"}:
            raise self._wrong('an executable runs in a process: leave "where" out', name, "where")
        fields = [self._field(name, argument, table) for argument, table in said.args.items()]
        return Entry(
            id=name,
            handler=None,
            arguments=msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True),
            description=said.description,
            timeout=said.timeout,
            resumes=said.resumes is not False,
            where="process",
            program=self._program(command=self._command(name, command)),
        )

    def _command(self, entry: str, command: list[str]) -> tuple[str, ...]:
        """Give the command; a program that is a file of the folder is started from there."""
        program = self.path / command[0]
        if not program.is_file():
            if "/" in command[0]:
                raise self._wrong(f"there is no file {command[0]}", entry, "command")
            return tuple(command)
        if not os.access(program, os.X_OK):
            remedy = f"chmod +x {command[0]}, or name what executes it first"
            raise self._wrong(f"{command[0]} is no program: {remedy}", entry, "command")
        return (str(program), *command[1:])

    def _field(self, entry: str, name: str, table: Any) -> Any:  # noqa: ANN401 - msgspec's
        place = ("args", name)
        argument = self.document.table(table, Argument, "entries", entry, *place)
        if not name.isidentifier():
            raise self._wrong("the name of an argument has letters, digits and _", entry, *place)
        is_number = argument.type in {"integer", "number"}
        if not is_number and (argument.minimum is not None or argument.maximum is not None):
            raise self._wrong("it is no number: it has no minimum or maximum", entry, *place)
        if argument.secret and argument.default is not msgspec.UNSET:
            raise self._wrong("it is secret: it has no default", entry, *place)
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
            raise self._wrong(f"its default: {error}", entry, *place) from error
        default = argument.default
        if isinstance(default, dict | list) and default:
            return (name, hint, msgspec.field(default_factory=lambda: default))
        return (name, hint, default)

    # The class

    def _of_class(self, home: str) -> dict[str, Entry]:
        """Give the entries of a class in a module of the folder."""
        module_name, _, class_name = home.partition(":")
        module = self._import(module_name)
        cls = getattr(module, class_name, None)
        if not isinstance(cls, type):
            missing = f"there is no class {class_name!r} in {module_name}.py"
            raise self.document.wrong(missing, "python")
        program = self._program(home=home)
        return {
            entry.id: replace(entry, program=program if entry.where == "process" else None)
            for entry in declared(cls).entries.values()
        }

    def _changed(self, entry: Entry | None, said: EntryManifest, name: str) -> Entry:
        """Give an entry of the class as the manifest wants it."""
        if entry is None or entry.handler is None:
            raise self._wrong("there is no such entry in a class, and no command", name)
        if said.args:
            raise self._wrong("the arguments of a function are those of the class", name, "args")
        where, program = entry.where, self._program(home=self.manifest.python)
        if said.where is not None:
            try:
                where = placed(f"entry {name!r}", entry.handler, said.where, program)
            except DeclarationError as error:
                raise self._wrong(str(error), name, "where") from error
        return replace(
            entry,
            description=said.description or entry.description,
            timeout=said.timeout or entry.timeout,
            resumes=entry.resumes if said.resumes is None else said.resumes,
            where=where,
            program=program if where == "process" else None,
        )

    def _program(self, *, command: tuple[str, ...] = (), home: str | None = None) -> Program:
        manifest = self.manifest
        return Program(
            command=command,
            home=home,
            folder=str(self.path),
            network=manifest.network,
            memory=manifest.memory,
            processes=manifest.processes,
            reads=tuple(str(self.path / path) for path in manifest.reads),
            writes=tuple(str(self.path / path) for path in manifest.writes),
        )

    def _import(self, name: str) -> ModuleType:
        """Import a module of the folder under a name that no other folder's module has."""
        path = self.path / f"{name.replace('.', '/')}.py"
        unique = f"perdure_plugin_{self.manifest.id}.{name}"
        spec = importlib.util.spec_from_file_location(unique, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise self.document.wrong(f"there is no {path.name} in the folder", "python")
        module = importlib.util.module_from_spec(spec)
        sys.modules[unique] = module
        sys.path.insert(0, str(self.path))
        try:
            spec.loader.exec_module(module)
        finally:
            sys.path.remove(str(self.path))
        return module


def _bound(kind: str, bound: float | None, towards: Callable[[float], int]) -> float | None:
    """Give a bound that fits its type: of integers, the last one that is allowed."""
    return bound if bound is None or kind != "integer" else towards(bound)
