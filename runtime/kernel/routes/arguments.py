"""Arguments from an address and a body: texts become what the operation's request wants.

The path names things, a query says how to read, a body is JSON. What does not fit its type is
passed on as it is, so that the operation itself says what is wrong with it.
"""

from __future__ import annotations

import re
from contextlib import aclosing
from functools import partial
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)
from urllib.parse import parse_qsl

from perdure.eventlog import cbor
from perdure.eventlog.errors import CodecError
from perdure.runtime.kernel.decoding import off_the_loop, weighed
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.invalid_value import invalid
from perdure.runtime.kernel.requests import CursorOrInstant, Instant
from perdure.runtime.kernel.strict_json import JSON, decode_message

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from starlette.requests import Request

    from perdure.eventlog.env import Env
    from perdure.runtime.kernel.requests import AnyRequest

    Read = Callable[[str], Any]

BODY_LIMIT: Final = "perdure.body_limit"  # extensions of our port
HOLD: Final = "perdure.hold"
MOST_FIELDS: Final = 100  # in a query
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}(\.[0-9]{1,19})?")
_BOOLEANS: Final = {"true": True, "false": False}
_ZONE_LOST: Final = re.compile(r"(T[0-9:.,]+) (?=[0-9])")  # a plus sign in a query is a space


class QueryReading(NamedTuple):
    """How the text of a field is read."""

    read: Read = str
    is_list: bool = False


def queried(request: type[AnyRequest], names: Collection[str]) -> dict[str, QueryReading]:
    """Say how the fields of a request are read from a query."""
    hints = get_type_hints(request, include_extras=True)
    return {name: _reading(hints[name]) for name in names}


def _reading(hint: Any) -> QueryReading:  # noqa: ANN401 - a type
    (wanted,) = [part for part in _options(hint) if part is not type(None)]
    if wanted in (CursorOrInstant, Instant):
        return QueryReading(lambda text: _ZONE_LOST.sub(r"\1+", text))
    if get_origin(wanted) is list:
        return QueryReading(is_list=True)
    base = get_args(wanted)[0] if get_origin(wanted) is Annotated else wanted
    if base is int:
        return QueryReading(lambda text: int(text) if _INTEGER.fullmatch(text) else text)
    if base is float:
        return QueryReading(lambda text: float(text) if _NUMBER.fullmatch(text) else text)
    if base is bool:
        return QueryReading(lambda text: _BOOLEANS.get(text, text))
    return QueryReading()


def _options(hint: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a type
    return get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)


def query_args(query: bytes, fields: Mapping[str, QueryReading]) -> dict[str, Any]:
    """Read the arguments in a query. A list is repeated, or its parts are divided by commas."""
    if not query:
        return {}
    args: dict[str, Any] = {}
    for name, text in _pairs(query):
        if name not in fields:
            known = ", ".join(sorted(fields)) or "none"
            told = f"there is no parameter {name[:40]!r} here; known: {known}"
            raise invalid(told, name[:40], f"one of the names {known}")
        field = fields[name]
        if field.is_list:
            args.setdefault(name, []).extend(text.split(","))
            continue
        if name in args:
            raise invalid(f"{name} is there twice", name, "one value", "two values")
        args[name] = field.read(text)
    return args


def refuse_query(request: Request) -> None:
    """Refuse a query where none is known."""
    query_args(request.scope["query_string"], {})


def _pairs(query: bytes) -> list[tuple[str, str]]:
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MOST_FIELDS,
        )
        cbor.check(pairs)
    except (ValueError, CodecError) as error:
        raise invalid(f"the query cannot be read: {error}", "", "a query of texts") from None
    return pairs


def path_args(params: dict[str, Any]) -> dict[str, Any]:
    """Read the arguments in a path."""
    for name, text in params.items():
        if not text.isascii() or not text.isprintable():
            try:
                cbor.check(text)
            except CodecError as error:
                raise invalid(f"{name}: {error}", name, "a text") from None
    return params


async def body_args(env: Env, request: Request, limit: int, *, optional: bool) -> dict[str, Any]:
    """Read the object in a body. One that is optional may be empty."""
    kind = request.headers.get("content-type")
    if kind is None:
        if optional and not await _body(request, limit):
            return {}
        raise _wrong_type("no content type")
    if kind.partition(";")[0].strip().lower() != JSON or not _is_utf8(kind):
        raise _wrong_type(repr(kind[:100]))
    data = await _body(request, limit)
    if optional and not data:
        return {}
    decode = partial(decode_message, data, max_bytes=limit)
    value, weight = weighed(await off_the_loop(env, decode, len(data)), data)
    hold_memory(request, weight)
    if type(value) is not dict:
        raise invalid("the body is a JSON object, with names and values", "", "an object")
    return value


def _is_utf8(kind: str) -> bool:
    charset = kind.lower().partition("charset=")[2].strip('" ')
    return charset in {"", "utf-8", "utf8"}


def allow_body(request: Request, size: int) -> None:
    """Tell the server how large this body may be, where it wants to know."""
    _tell_port(request, BODY_LIMIT, size)


def hold_memory(request: Request, size: int) -> None:
    """Tell the server that so many bytes more are kept until the request was answered.

    It may refuse them with OVERLOADED.
    """
    _tell_port(request, HOLD, size)


def _tell_port(request: Request, extension: str, size: int) -> None:
    extensions: Mapping[str, Any] = request.scope.get("extensions") or {}
    tell = extensions.get(extension)
    if tell is not None:
        tell(size)


async def _body(request: Request, limit: int) -> bytes:
    """Read a body of so many bytes at most."""
    stated = request.headers.get("content-length")
    if stated is not None and stated.isdigit() and (len(stated) > 18 or int(stated) > limit):  # noqa: PLR2004
        raise _too_large(limit)
    allow_body(request, limit)
    pieces: list[bytes] = []
    size = 0
    async with aclosing(request.stream()) as arriving:
        async for piece in arriving:
            size += len(piece)
            if size > limit:
                raise _too_large(limit)
            hold_memory(request, len(piece))
            pieces.append(piece)
    return b"".join(pieces)


def _too_large(limit: int) -> OperationError:
    return OperationError(
        "PAYLOAD_TOO_LARGE", f"a body of JSON has at most {limit} bytes", limit=limit
    )


def _wrong_type(what: str) -> OperationError:
    return OperationError("UNSUPPORTED_MEDIA_TYPE", f"{what} where {JSON} is wanted", wanted=JSON)
