"""Secret arguments, as authors declare them and callers pass them.

    @entry
    async def sync(self, ctx: RunContext, account: str, token: Secret) -> None: ...

A secret argument is published with ``writeOnly: true``. A caller passes a value, which is sealed
outside the log, or a reference ``{"secret": "name"}``, which is resolved when the entry is about to
be called. In the log stands the reference, or ``{"sealed": true}``. This module stays light: it is
part of what ``import perdure`` costs.
"""

from __future__ import annotations

from functools import lru_cache
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec.structs import fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

WRITE_ONLY: Final = {"writeOnly": True}
Secret = Annotated[str, msgspec.Meta(extra_json_schema=WRITE_ONLY)]

SEALED: Final = {"sealed": True}  # what the log holds in the place of a value
_REFERENCE: Final = "secret"


def reference_in(value: Any) -> str | None:  # noqa: ANN401 - whatever was passed
    """Give the name in a reference; None if this is no reference."""
    if isinstance(value, dict) and value.keys() == {_REFERENCE}:
        name = value[_REFERENCE]
        return name if isinstance(name, str) else None
    return None


def is_sealed(value: Any) -> bool:  # noqa: ANN401 - whatever was passed
    """Tell whether a value is the mark of one that was sealed."""
    return isinstance(value, dict) and value == SEALED


def has_sealed(args: Mapping[str, Any]) -> bool:
    """Tell whether something may be sealed for a run with these arguments."""
    return any(map(is_sealed, args.values()))


@lru_cache(maxsize=1024)
def secret_arguments(arguments: type[msgspec.Struct]) -> frozenset[str]:
    """Give the names of the arguments that are secret."""
    return frozenset(field.name for field in fields(arguments) if _is_secret(field.type))


def published(properties: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """Give the schemas of arguments with the secret ones marked as such."""
    return {
        name: {**part, **WRITE_ONLY} if name in names else part for name, part in properties.items()
    }


def mistakes(arguments: type[msgspec.Struct]) -> Iterator[str]:
    """Say what cannot work about the secrets among some arguments."""
    for field in fields(arguments):
        if not _is_secret(field.type):
            if _mentions(field.type, frozenset()):
                yield (
                    f"argument {field.name!r} has a secret inside:"
                    " a secret is an argument of its own"
                )
        elif not (field.default is msgspec.NODEFAULT or field.default is None):
            yield (
                f"the secret argument {field.name!r} has a default:"
                " None is the only one it may have"
            )


def _is_secret(hint: Any) -> bool:  # noqa: ANN401 - any type expression
    """Tell whether a type says so itself, or one that may stand in its place."""
    if get_origin(hint) is Annotated:
        inner, *said = get_args(hint)
        return any(map(_says_so, said)) or _is_secret(inner)
    return get_origin(hint) in {Union, UnionType} and any(map(_is_secret, get_args(hint)))


def _says_so(said: object) -> bool:
    schema = said.extra_json_schema if isinstance(said, msgspec.Meta) else None
    return schema is not None and schema.get("writeOnly") is True


def _mentions(hint: Any, seen: frozenset[Any]) -> bool:  # noqa: ANN401 - any type expression
    """Tell whether a secret is anywhere inside a type."""
    if _is_secret(hint):
        return True
    inside: Iterable[Any] = get_args(hint)
    if isinstance(hint, type) and hint not in seen:
        inside, seen = get_type_hints(hint, include_extras=True).values(), seen | {hint}
    return any(_mentions(part, seen) for part in inside)
