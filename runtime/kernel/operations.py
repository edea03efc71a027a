"""The operations: everything that can be asked of Perdure, in one table.

An operation is a method of a service, marked with its name, the permission it needs and the errors
it may answer with; its request and response are its types. Every surface binds to this table and
adds nothing but its shape:

    operations = Operations(runs, plugins, channels)
    answer = await operations.call(principal, "runs.get", {"run_id": "..."})
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args, get_type_hints

import msgspec

from perdure.eventlog.errors import CodecError
from perdure.runtime.kernel.errors import OperationError, translated
from perdure.runtime.kernel.instants import NotAnInstant, cursor_or_instant, instant_at
from perdure.runtime.kernel.invalid_value import invalid, invalid_request, invalid_values
from perdure.runtime.kernel.principal import Permission
from perdure.runtime.kernel.requests import AnyRequest, CursorOrInstant, Instant

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from perdure.runtime.kernel.principal import Principal

Argument = TypeVar("Argument")
Result = TypeVar("Result")
Method = TypeVar("Method", bound=Callable[..., Awaitable[Any]])

# What any operation may answer with, besides its own errors.
COMMON_ERRORS: Final = (
    "VALIDATION_ERROR",
    "PERMISSION_DENIED",
    "OVERLOADED",
    "UNAVAILABLE",
    "LOG_DAMAGED",
    "LOG_UNSUPPORTED",
    "INTERNAL",
)
Page = Literal["contents", "list"]  # a list may wait for its tables, and only lists wait for it
_MARK: Final = "__perdure_operation__"
_log = logging.getLogger("perdure.operations")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How some operations name what the rest of the table names otherwise."""

    codes: Mapping[str, str]  # of errors: our name, theirs

    def code(self, code: str) -> str:
        """Give the name of an error's code in this dialect."""
        return self.codes.get(code, code)

    def spoken(self, error: OperationError) -> OperationError:
        """Give an error under its name in this dialect."""
        return OperationError(self.code(error.code), error.message, **(error.details or {}))

    def translating(
        self, fn: Callable[[Argument], Awaitable[Result]]
    ) -> Callable[[Argument], Awaitable[Result]]:
        """Give a function that raises errors under their names in this dialect."""
        if not self.codes:
            return fn

        async def call(argument: Argument) -> Result:
            try:
                return await fn(argument)
            except (OperationError, CodecError) as error:
                raise self.spoken(translated(error)) from error

        return call


PLAIN: Final = Dialect({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One row of the table."""

    name: str
    summary: str
    request: type[AnyRequest]
    response: Any  # the type of the answer; of each frame, if it follows
    permission: Permission
    errors: tuple[str, ...]
    follows: bool
    method: str
    dialect: Dialect = PLAIN
    waits: bool = False  # its answer may take as long as the caller allows
    page: Page | None = None  # its answer may be large: few are made at a time

    def parse(self, args: Mapping[str, Any]) -> AnyRequest:
        """Check a request at the door. Its moments become UTC nanoseconds, or stay cursors."""
        return self._converted(_with_moments(self.request, args))

    def _converted(self, args: Mapping[str, Any]) -> AnyRequest:
        try:
            return msgspec.convert(args, self.request, builtin_types=(bytes,))
        except msgspec.ValidationError as error:
            whole = {name: _whole(value) for name, value in args.items()}
            if any(type(whole[name]) is not type(args[name]) for name in whole):
                return self._converted(whole)  # to JSON, 1.0 is an integer
            values = invalid_values(args, self.request, builtin_types=(bytes,))
            raise invalid_request(f"{self.name}: ", values) from error


def _with_moments(request: type[AnyRequest], args: Mapping[str, Any]) -> Mapping[str, Any]:
    """Read what names a moment; null is none."""
    read = {}
    for name, reading in _moments_of(request).items():
        value = args.get(name)
        if value is not None:
            try:
                read[name] = reading(value)
            except NotAnInstant as error:
                if reading is cursor_or_instant and isinstance(value, str):
                    raise OperationError("INVALID_CURSOR", f"{name}: {error}") from None
                raise invalid(f"{name}: {error}", name, "an instant") from None
    return {**args, **read} if read else args


@cache
def _moments_of(request: type[AnyRequest]) -> Mapping[str, Callable[[object], str | int]]:
    """Say which fields of a request name moments, and how they are read."""
    hints = get_type_hints(request, include_extras=True)
    wanted = {name: [hint, *get_args(hint)] for name, hint in hints.items()}
    return {name: cursor_or_instant for name, hint in wanted.items() if CursorOrInstant in hint} | {
        name: instant_at for name, hint in wanted.items() if Instant in hint
    }


def _whole(value: Any) -> Any:  # noqa: ANN401 - any argument
    return int(value) if type(value) is float and value.is_integer() else value


def operation(
    name: str,
    permission: Permission,
    *errors: str,
    frames: Any = None,  # noqa: ANN401 - a type, if the operation follows something
    dialect: Dialect = PLAIN,
    waits: bool = False,
    page: Page | None = None,
) -> Callable[[Method], Method]:
    """Put a method into the table (a decorator). What it raises is among its errors."""

    def mark(method: Method) -> Method:
        setattr(method, _MARK, (name, permission, errors, frames, dialect, waits, page))
        return method

    return mark


def operations_of(*services: type) -> dict[str, Operation]:
    """Give the rows of the table that services offer, by name."""
    rows = {row.name: row for service in services for row in _rows(service)}
    return dict(sorted(rows.items()))


def _rows(service: type) -> Iterator[Operation]:
    for method_name, method in inspect.getmembers(service, inspect.isfunction):
        if not hasattr(method, _MARK):
            continue
        name, permission, errors, frames, dialect, waits, page = getattr(method, _MARK)
        hints = get_type_hints(method)
        yield Operation(
            name=name,
            summary=(inspect.getdoc(method) or "").partition("\n")[0],
            request=hints["request"],
            response=frames or hints["return"],
            permission=permission,
            errors=tuple(dict.fromkeys(map(dialect.code, (*COMMON_ERRORS, *errors)))),
            follows=frames is not None,
            method=method_name,
            dialect=dialect,
            waits=waits,
            page=page,
        )


class Operations:
    """The table with services behind it."""

    def __init__(
        self,
        table: Mapping[str, Operation],
        services: Iterable[object],
        subjects: Iterable[str] = (),
        pages: Mapping[Page, AbstractAsyncContextManager[object]] | None = None,
    ) -> None:
        """Offer what the services can do, as the table describes it.

        ``subjects`` are arguments that say in our own log what a call was about. A page is made
        inside of ``pages``, which may let some of them wait.
        """
        self._calls: dict[str, tuple[Operation, Callable[..., Awaitable[Any]]]] = {
            name: (table[name], getattr(service, row.method))
            for service in services
            for name, row in operations_of(type(service)).items()
        }
        self._subjects = frozenset(subjects)
        self._pages = pages or {}

    def __iter__(self) -> Iterator[Operation]:
        """Go through the table by name."""
        return iter(self._calls[name][0] for name in sorted(self._calls))

    def __contains__(self, name: str) -> bool:
        """Tell whether there is such an operation."""
        return name in self._calls

    def permit(self, principal: Principal, name: str) -> Operation:
        """Give an operation, if there is one and the principal may ask for it."""
        if name not in self._calls:
            raise OperationError("VALIDATION_ERROR", f"there is no operation {name[:40]!r}")
        row, _ = self._calls[name]
        if row.permission not in principal.permissions:
            raise row.dialect.spoken(
                OperationError(
                    "PERMISSION_DENIED", f"{name} needs the permission to {row.permission}"
                )
            )
        return row

    async def call(self, principal: Principal, name: str, args: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Do what is asked for; whatever goes wrong is an OperationError."""
        row = self.permit(principal, name)
        work = self._calls[name][1]
        try:
            if row.page is None:
                return await work(principal, row.parse(args))
            async with self._pages.get(row.page, nullcontext()):
                return await work(principal, row.parse(args))
        except OperationError as error:
            if row.dialect is PLAIN:
                raise
            raise row.dialect.spoken(error) from error
        except Exception as error:
            raise self._told(row, args, error) from error

    def _told(self, row: Operation, args: Mapping[str, Any], error: Exception) -> OperationError:
        """Give what a caller is told of an error from below."""
        told = translated(error)
        if told.code == "INTERNAL":
            about = {each: args[each] for each in self._subjects & args.keys()}
            _log.exception("%s failed", row.name, extra=about)
        return told if row.dialect is PLAIN else row.dialect.spoken(told)
