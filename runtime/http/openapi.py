"""The OpenAPI 3.1 document, made from the table of routes and the types of the operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from perdure.runtime.kernel.routes.reply import ErrorBody
from perdure.runtime.kernel.strict_json import JSON

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perdure.runtime.kernel.errors import ErrorKind
    from perdure.runtime.kernel.features import Features
    from perdure.runtime.kernel.routes.route import Route

Json = dict[str, Any]

ABOUT_TAG: Final = {"about": "What answers here."}
ABOUT: Final = (
    "Perdure over HTTP. Every answer carries the `cursor` at which it is true; following from there"
    " misses nothing. Errors are `{error: {code, message, details}}`."
)
_REFERENCE: Final = "#/components/schemas/{name}"
_ERROR: Final[Json] = {"$ref": _REFERENCE.format(name=ErrorBody.__name__)}


def document(rows: Sequence[Route], features: Features, version: str) -> Json:
    """Describe what is served."""
    types = _schemas(rows)
    components = types.components
    paths: Json = {}
    for row in rows:
        described = _operation(row, features.errors, types)
        paths.setdefault(row.path, {})[row.method.lower()] = described
    in_bodies = {row.request for row in rows if row.taken_from("body")}
    for row in rows:
        if row.request is not None and row.request not in in_bodies:
            components.pop(row.request.__name__, None)
    used = {row.tag for row in rows}
    known = {**features.tags, **ABOUT_TAG}
    tags = {**known, **dict.fromkeys(sorted(used - known.keys()), "")}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Perdure",
            "version": version,
            "summary": "An event-sourced actor runtime for long-running agent work",
            "description": ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [
            {"name": name, "description": about} for name, about in tags.items() if name in used
        ],
        "paths": paths,
        "components": {"schemas": dict(sorted(components.items()))},
    }


class _Types(NamedTuple):
    """The types of all routes."""

    schemas: dict[Any, Json]  # by type
    whole: Json  # the components as their types are
    components: Json  # as the document shows them: of a body without what its address names


def _schemas(rows: Iterable[Route]) -> _Types:
    types: list[Any] = [ErrorBody]
    for row in rows:
        types += [each for each in (row.request, row.response) if each is not None]
    types = list(dict.fromkeys(types))
    made, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    return _Types(dict(zip(types, made, strict=True)), dict(components), components)


def _operation(row: Route, errors: Mapping[str, ErrorKind], types: _Types) -> Json:
    described: Json = {
        "operationId": row.name.replace(".", "_"),
        "summary": row.summary,
        "description": _description(row),
        "tags": [row.tag],
    }
    parameters = [*_parameters(row, types.whole), *_headers_read(row)]
    if parameters:
        described["parameters"] = parameters
    if row.taken_from("body"):
        described["requestBody"] = _body(row, types)
    elif row.takes is not None:
        described["requestBody"] = {"required": True, "content": {row.takes: {"schema": {}}}}
    described["responses"] = {**_successes(row, types.schemas), **_errors(row, errors)}
    return described


def _description(row: Route) -> str:
    if row.needs is None:
        return f"`{row.name}`, a part of this surface alone."
    return f"The operation `{row.needs}`; needs the permission `{row.permission}`."


def _parameters(row: Route, whole: Json) -> Iterable[Json]:
    if row.request is None:
        return
    component = whole[row.request.__name__]
    for name, source in row.sources.items():
        if source == "body":
            continue
        schema = _without_null(component["properties"][name])
        described: Json = {"name": name, "in": source, "schema": schema}
        if source == "path":
            described["required"] = True
        if "description" in schema:
            described["description"] = schema.pop("description")
        yield described


def _without_null(schema: Json) -> Json:
    """Give the schema of a field as an address holds it: it is there, or it is not."""
    schema = {
        name: value for name, value in schema.items() if name != "default" or value is not None
    }
    if "anyOf" in schema:
        options = [option for option in schema.pop("anyOf") if option != {"type": "null"}]
        schema |= options[0] if len(options) == 1 else {"anyOf": options}
    return schema


def _headers_read(row: Route) -> Iterable[Json]:
    for name, meaning in row.reads.items():
        yield {"name": name, "in": "header", "schema": {"type": "string"}, "description": meaning}


def _body(row: Route, types: _Types) -> Json:
    assert row.request is not None  # noqa: S101 - its arguments come from the body
    name = row.request.__name__
    whole = types.whole[name]
    types.components[name] = {
        **whole,
        "properties": {
            field: schema for field, schema in whole["properties"].items() if field not in row.named
        },
        "required": [field for field in whole.get("required", ()) if field not in row.named],
    }
    content: Json = {"schema": types.schemas[row.request]}
    if row.example:
        content["example"] = dict(row.example)
    return {"required": not row.body_is_optional, "content": {JSON: content}}


def _successes(row: Route, schemas: dict[Any, Json]) -> Json:
    responses: Json = {}
    for status, meaning in row.statuses.items():
        described: Json = {"description": meaning}
        if status not in _WITHOUT_CONTENT:
            content: Json = {"schema": {} if row.response is None else schemas[row.response]}
            if row.answer is not None:
                content["example"] = row.answer
            described["content"] = {row.gives: content}
        if row.headers:
            described["headers"] = {
                name: {"schema": {"type": "string"}, "description": meaning}
                for name, meaning in row.headers.items()
            }
        responses[str(status)] = described
    return responses


_WITHOUT_CONTENT: Final = frozenset({204, 303, 304})


def _errors(row: Route, errors: Mapping[str, ErrorKind]) -> Json:
    """Group the errors of a route by their status."""
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys(row.errors):
        by_status.setdefault(errors[code].status, []).append(code)
    return {str(status): _refusal(codes, errors) for status, codes in sorted(by_status.items())}


def _refusal(codes: list[str], errors: Mapping[str, ErrorKind]) -> Json:
    code = {"error": {"type": "object", "properties": {"code": {"enum": codes}}}}
    first = errors[codes[0]]
    message = f"{first.meaning}; {first.remedy}" if first.remedy else first.meaning
    example = {"error": {"code": codes[0], "message": message, "details": None}}
    return {
        "description": "; ".join(f"`{each}`: {errors[each].meaning}" for each in codes),
        "content": {
            JSON: {
                "schema": {"allOf": [_ERROR, {"type": "object", "properties": code}]},
                "example": example,
            }
        },
    }
