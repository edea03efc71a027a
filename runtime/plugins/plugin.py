"""Plugins and entries as their authors declare them.

    @plugin("demo", version="1.0")
    class Demo:
        @entry(timeout=60)
        async def count(self, ctx: RunContext, to: int, delay: float = 0.0) -> int:
            ...

The arguments' types are the schema: it is published as JSON Schema 2020-12 and checked before a
run exists. Async entries run inline on Trio; others run in a process of their own, or, if that is
asked for, in a thread. This module stays light: it is what ``import perdure`` costs.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_type_hints, overload

import msgspec

from perdure.runtime.secrets.secret import mistakes, published, secret_arguments

Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)

Where = Literal["inline", "process", "thread"]

LONGEST: Final = 10 * 365 * 24 * 3600.0  # seconds; a run may last for years, but not for ever

_MARK: Final = "__perdure_entry__"


class DeclarationError(TypeError):
    """A plugin is declared in a way that cannot work. The message says where and what to do."""

    def __init__(self, message: str, *, line: int | None = None) -> None:
        """``line`` is that of a file which is no code."""
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryOptions:
    """What ``@entry`` says."""

    id: str | None = None
    timeout: float | None = None  # seconds from the start of a run
    resumes: bool = True  # after a lost host the entry is called again; else the run has failed
    where: Where | None = None  # inline if it is async, else in a process


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What is started to execute entries that do not run inline.

    With ``home`` it is a Python process that finds the plugin's class there and can execute one
    run after the other; without, any executable, started for each run.
    """

    command: tuple[str, ...] = ()
    home: str | None = None  # "module:Class"
    folder: str | None = None  # where it is started, and what its modules are imported from
    code: str | None = None  # a copy of its modules as they were loaded, if they may change
    network: bool = True
    memory: int | None = None  # MiB that it may take
    processes: int | None = None  # that it may have started at once
    reads: tuple[str, ...] = ()  # places that it needs beside its folder and its interpreter
    writes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Something a plugin can do. The handler is called inline or in a thread."""

    id: str
    handler: Callable[..., Any] | None
    arguments: type[msgspec.Struct]
    description: str | None
    timeout: float | None
    resumes: bool
    where: Where = "inline"
    program: Program | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        (schema,), parts = msgspec.json.schema_components([self.arguments], schema_hook=_any_value)
        named = parts.pop(self.arguments.__name__, schema)
        if self.secrets:
            named = {**named, "properties": published(named["properties"], self.secrets)}
        definitions = {"$defs": parts} if parts else {}
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **named, **definitions}

    @property
    def secrets(self) -> frozenset[str]:
        """The arguments that are secret."""
        return secret_arguments(self.arguments)

    def check(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Give the arguments that the handler is called with, or raise ValueError."""
        try:
            checked = msgspec.convert(args, self.arguments)
        except msgspec.ValidationError as exc:
            raise ValueError(str(exc)) from exc
        return {name: getattr(checked, name) for name in self.arguments.__struct_fields__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A named set of entries, at a version."""

    id: str
    version: str
    entries: Mapping[str, Entry] = field(default_factory=dict)
    limit: int | None = None  # how many of its runs may run at once
    description: str | None = None
    compatible: frozenset[str] = frozenset()  # versions whose runs this one can go on with


def programs_of(plugins: Mapping[str, Plugin]) -> frozenset[Program]:
    """Give the programs that plugins start."""
    entries = [entry for plugin in plugins.values() for entry in plugin.entries.values()]
    return frozenset(entry.program for entry in entries if entry.program is not None)


@overload
def entry(fn: Function) -> Function: ...
@overload
def entry(
    *,
    id: str | None = None,
    timeout: float | None = None,
    resumes: bool = True,
    where: Where | None = None,
) -> Callable[[Function], Function]: ...
def entry(
    fn: Function | None = None,
    *,
    id: str | None = None,  # noqa: A002 - it is the entry's id, and a keyword only
    timeout: float | None = None,
    resumes: bool = True,
    where: Where | None = None,
) -> Function | Callable[[Function], Function]:
    """Declare a method of a plugin as an entry (a decorator, with or without arguments).

    Async methods run inline on Trio. Others, and with ``where="process"`` async ones on asyncio,
    run in a process. A thread (``where="thread"``) cannot be stopped: when its run is canceled or
    out of time it is left behind, and what it returns later is refused.
    """
    options = EntryOptions(id=id, timeout=timeout, resumes=resumes, where=where)

    def declare(fn: Function) -> Function:
        setattr(fn, _MARK, options)
        return fn

    return declare if fn is None else declare(fn)


def plugin(  # noqa: PLR0913 - keywords of a declaration
    id: str,  # noqa: A002 - it is the plugin's id
    *,
    version: str = "0",
    limit: int | None = None,
    compatible: Iterable[str] = (),
    network: bool = True,
    memory: int | None = None,
    processes: int | None = None,
    reads: Iterable[str] = (),
    writes: Iterable[str] = (),
) -> Callable[[Class], Class]:
    """Declare a class as a plugin (a decorator). It is made once, without arguments.

    ``compatible`` are earlier versions whose runs this one can go on with. The rest is for
    entries in processes: whether they see the network, how much memory (MiB) and how many processes
    they may take, and what they read and write beside their folder and their interpreter
    (absolute paths).
    """
    program = Program(
        network=network,
        memory=memory,
        processes=processes,
        reads=tuple(reads),
        writes=tuple(writes),
    )
    for path in (*program.reads, *program.writes):
        if not path.startswith("/"):
            raise DeclarationError(f"plugin {id!r}: {path!r} is no absolute path")
    declaration = _Declaration(id, version, limit, frozenset(compatible), program)

    def declare(cls: Class) -> Class:
        cls.__perdure_plugin__ = declaration  # type: ignore[attr-defined]
        declared(cls)  # mistakes show at the declaration
        return cls

    return declare


class _Declaration(NamedTuple):
    id: str
    version: str
    limit: int | None
    compatible: frozenset[str]
    program: Program  # without its home


def declared(cls: type) -> Plugin:
    """Give the plugin that a class declares, with an instance behind its entries."""
    declaration: _Declaration | None = getattr(cls, "__perdure_plugin__", None)
    if declaration is None:
        raise DeclarationError(f"{cls.__qualname__} is not declared with @plugin")
    instance = cls()
    program = replace(declaration.program, home=f"{_module_of(cls)}:{cls.__qualname__}")
    entries = {}
    for name, member in inspect.getmembers(cls, inspect.isfunction):
        options = getattr(member, _MARK, None)
        if options is not None:
            made = _entry(options.id or name, getattr(instance, name), options, program)
            entries[made.id] = made
    if not entries:
        raise DeclarationError(f"plugin {declaration.id!r} ({cls.__qualname__}) has no @entry")
    return Plugin(
        id=declaration.id,
        version=declaration.version,
        entries=entries,
        limit=declaration.limit,
        description=inspect.cleandoc(cls.__doc__) if cls.__doc__ else None,
        compatible=declaration.compatible,
    )


def _module_of(cls: type) -> str:
    """Name the module of a class as another process finds it."""
    if cls.__module__ != "__main__":
        return cls.__module__
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name if spec is not None else "__main__"


def _entry(
    entry_id: str, handler: Callable[..., Any], options: EntryOptions, program: Program
) -> Entry:
    name = f"entry {entry_id!r} ({handler.__qualname__})"
    if options.timeout is not None and not 0 < options.timeout <= LONGEST:
        raise DeclarationError(f"{name}: a timeout is more than 0 and at most {LONGEST:g} seconds")
    where = placed(name, handler, options.where, program)
    return Entry(
        id=entry_id,
        handler=handler,
        arguments=_arguments(name, entry_id, handler),
        description=inspect.getdoc(handler),
        timeout=options.timeout,
        resumes=options.resumes,
        where=where,
        program=program if where == "process" else None,
    )


def placed(name: str, handler: Callable[..., Any], asked: Where | None, program: Program) -> Where:
    """Say where a function runs, if it can run where it is asked to."""
    is_async = inspect.iscoroutinefunction(handler)
    where: Where = asked or ("inline" if is_async else "process")
    if where == "inline" and not is_async:
        raise DeclarationError(f"{name} is not async, so it cannot run inline: leave `where` out")
    if where == "thread" and is_async:
        raise DeclarationError(f"{name} is async: it runs inline, or in a process on asyncio")
    if where == "process" and "<locals>" in str(program.home):
        raise DeclarationError(
            f"{name} runs in a process, which cannot find a class inside a function:"
            " declare it at the top of a module"
        )
    if where == "process" and str(program.home).startswith("__main__:"):
        raise DeclarationError(
            f"{name} runs in a process, which cannot find a class of the program itself:"
            " declare it in a module that can be imported"
        )
    return where


def _arguments(name: str, entry_id: str, handler: Callable[..., Any]) -> type[msgspec.Struct]:
    """Make the type of an entry's arguments from its signature."""
    parameters = list(inspect.signature(handler).parameters.values())
    if not parameters:
        raise DeclarationError(f"{name} takes no context: its first parameter is the RunContext")
    hints = get_type_hints(handler, include_extras=True)
    fields: list[Any] = []
    for parameter in parameters[1:]:
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            raise DeclarationError(f"{name} takes *{parameter.name}: name its arguments")
        if parameter.name not in hints:
            raise DeclarationError(f"{name}: argument {parameter.name!r} has no type")
        hint = hints[parameter.name]
        required = parameter.default is parameter.empty
        fields.append(
            (parameter.name, hint) if required else (parameter.name, hint, parameter.default)
        )
    made = msgspec.defstruct(entry_id, fields, kw_only=True, forbid_unknown_fields=True)
    for mistake in mistakes(made):
        raise DeclarationError(f"{name}: {mistake}")
    for field_name, hint, *_ in fields:
        try:
            msgspec.json.schema(hint, schema_hook=_any_value)
        except TypeError:
            raise DeclarationError(
                f"{name}: argument {field_name!r} has a type that JSON has no values of"
            ) from None
    return made


def _any_value(hint: type) -> dict[str, Any]:
    """Describe a type that msgspec has no schema for: an object of Python is any value."""
    if hint is object:
        return {"description": "any value"}
    raise NotImplementedError
