"""Plugins and entries as their authors declare them.

    @plugin("demo", version="1.0")
    class Demo:
        @entry(timeout=60)
        async def count(self, ctx: RunContext, to: int, delay: float = 0.0) -> int:
            ...

The arguments' types are the schema: it is published as JSON Schema 2020-12 and checked before a
run exists. This module stays light: it is what ``import perdure`` costs.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, get_type_hints, overload

import msgspec

Handler = Callable[..., Awaitable[Any]]
Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)

_MARK: Final = "__perdure_entry__"


class DeclarationError(TypeError):
    """A plugin is declared in a way that cannot work. The message says where and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryOptions:
    """What ``@entry`` says."""

    id: str | None = None
    timeout: float | None = None  # seconds from the start of a run
    resumes: bool = True  # after a lost host the entry is called again; else the run has failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Something a plugin can do."""

    id: str
    handler: Handler
    arguments: type[msgspec.Struct]
    description: str | None
    timeout: float | None
    resumes: bool

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        (schema,), parts = msgspec.json.schema_components([self.arguments])
        named = parts.pop(self.arguments.__name__, schema)
        definitions = {"$defs": parts} if parts else {}
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **named, **definitions}

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


@overload
def entry(fn: Function) -> Function: ...
@overload
def entry(
    *, id: str | None = None, timeout: float | None = None, resumes: bool = True
) -> Callable[[Function], Function]: ...
def entry(
    fn: Function | None = None,
    *,
    id: str | None = None,  # noqa: A002 - it is the entry's id, and a keyword only
    timeout: float | None = None,
    resumes: bool = True,
) -> Function | Callable[[Function], Function]:
    """Declare a method of a plugin as an entry (a decorator, with or without arguments)."""
    options = EntryOptions(id=id, timeout=timeout, resumes=resumes)

    def declare(fn: Function) -> Function:
        setattr(fn, _MARK, options)
        return fn

    return declare if fn is None else declare(fn)


def plugin(
    id: str,  # noqa: A002 - it is the plugin's id
    *,
    version: str = "0",
    limit: int | None = None,
) -> Callable[[Class], Class]:
    """Declare a class as a plugin (a decorator). It is made once, without arguments."""

    def declare(cls: Class) -> Class:
        cls.__perdure_plugin__ = (id, version, limit)  # type: ignore[attr-defined]
        declared(cls)  # mistakes show at the declaration
        return cls

    return declare


def declared(cls: type) -> Plugin:
    """Give the plugin that a class declares, with an instance behind its entries."""
    declaration = getattr(cls, "__perdure_plugin__", None)
    if declaration is None:
        raise DeclarationError(f"{cls.__qualname__} is not declared with @plugin")
    plugin_id, version, limit = declaration
    instance = cls()
    entries = {}
    for name, member in inspect.getmembers(cls, inspect.isfunction):
        options = getattr(member, _MARK, None)
        if options is not None:
            made = _entry(options.id or name, getattr(instance, name), options)
            entries[made.id] = made
    if not entries:
        raise DeclarationError(f"plugin {plugin_id!r} ({cls.__qualname__}) has no @entry")
    return Plugin(
        id=plugin_id,
        version=version,
        entries=entries,
        limit=limit,
        description=inspect.cleandoc(cls.__doc__) if cls.__doc__ else None,
    )


def _entry(entry_id: str, handler: Handler, options: EntryOptions) -> Entry:
    where = f"entry {entry_id!r} ({handler.__qualname__})"
    if not inspect.iscoroutinefunction(handler):
        raise DeclarationError(f"{where} is not async: only async entries can run inline")
    parameters = list(inspect.signature(handler).parameters.values())
    if not parameters:
        raise DeclarationError(f"{where} takes no context: its first parameter is the RunContext")
    hints = get_type_hints(handler)
    fields: list[Any] = []
    for parameter in parameters[1:]:
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            raise DeclarationError(f"{where} takes *{parameter.name}: name its arguments")
        if parameter.name not in hints:
            raise DeclarationError(f"{where}: argument {parameter.name!r} has no type")
        hint = hints[parameter.name]
        required = parameter.default is parameter.empty
        fields.append(
            (parameter.name, hint) if required else (parameter.name, hint, parameter.default)
        )
    arguments = msgspec.defstruct(entry_id, fields, kw_only=True, forbid_unknown_fields=True)
    return Entry(
        id=entry_id,
        handler=handler,
        arguments=arguments,
        description=inspect.getdoc(handler),
        timeout=options.timeout,
        resumes=options.resumes,
    )
