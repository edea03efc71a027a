"""A route of HTTP: one method at one address, what it takes, answers and does.

Routes are data: the application, the OpenAPI document, the API page and the reference are made from
them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.types import ASGIApp

from perdure.runtime.kernel.node import Node
from perdure.runtime.kernel.requests import AnyRequest
from perdure.runtime.kernel.settings import Settings
from perdure.runtime.kernel.strict_json import JSON

Handler = Callable[[HttpRequest], Awaitable[ASGIApp]]
Source = Literal["path", "query", "body"]

_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_METHODS_WITH_BODY: Final = frozenset({"POST"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """What handlers are made for: a node, its settings, and all that is served.

    ``facts`` are what other surfaces add to the capabilities.
    """

    node: Node
    settings: Settings
    routes: Sequence[Route] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method at one address."""

    method: str
    path: str
    name: str  # of the operation, or its own
    summary: str
    make: Callable[[Surface], Handler]
    tag: str
    request: type[AnyRequest] | None = None  # its fields are the arguments
    response: Any = None  # the type of the JSON that is answered with
    statuses: Mapping[int, str] = field(default_factory=lambda: {200: "Done."})  # of success
    errors: tuple[str, ...] = ()
    takes: str | None = None  # the media type of the body; JSON if arguments come from there
    gives: str = JSON  # the media type of the answer
    headers: Mapping[str, str] = field(default_factory=dict)  # of success, and what they say
    reads: Mapping[str, str] = field(default_factory=dict)  # headers that it reads
    example: Mapping[str, Any] = field(default_factory=dict)  # of a body
    answer: Any = None  # an example
    needs: str | None = None  # an operation; without it there is no such route
    permission: str | None = None  # that the operation needs

    @property
    def named(self) -> tuple[str, ...]:
        """The names in its path."""
        return tuple(_PARAMETER.findall(self.path))

    @property
    def sources(self) -> dict[str, Source]:
        """Where each argument comes from."""
        fields = [] if self.request is None else msgspec.structs.fields(self.request)
        others: Source = "body" if self.method in _METHODS_WITH_BODY else "query"
        names = [each.name for each in fields] or self.named
        return {name: "path" if name in self.named else others for name in names}

    def taken_from(self, source: Source) -> tuple[str, ...]:
        """Give the arguments that come from there."""
        return tuple(name for name, each in self.sources.items() if each == source)

    @property
    def body_is_optional(self) -> bool:
        """Whether there may be no body: nothing in it is required."""
        return self.request is not None and not any(
            each.required and each.name not in self.named
            for each in msgspec.structs.fields(self.request)
        )
