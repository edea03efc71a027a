"""The API page: the OpenAPI document as people read it, in one file without scripts."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.runtime.kernel.strict_json import JSON

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Json = dict[str, Any]

HTML: Final = "text/html"
ADDRESS: Final = "http://server.invalid"
STYLE: Final = """
:root{--ink:#1c2330;--soft:#5b6575;--line:#dfe3ea;--back:#fff;--pale:#f5f7fa;--link:#1d5fbf;
--get:#1f7a4d;--post:#1d5fbf;--put:#9a5b00}
@media(prefers-color-scheme:dark){:root{--ink:#e4e8ef;--soft:#9aa5b6;--line:#2c3442;--back:#12161d;
--pale:#1a202a;--link:#7fb0ff;--get:#5fcf97;--post:#7fb0ff;--put:#f0b45c}}
*{box-sizing:border-box}
html{scroll-behavior:smooth;scroll-padding-top:1rem}
body{margin:0;font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back)}
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}
.all{display:grid;grid-template-columns:17rem minmax(0,1fr);max-width:76rem;margin:auto}
nav{position:sticky;top:0;height:100vh;overflow:auto;padding:1.5rem 1rem;
border-right:1px solid var(--line);font-size:.85rem}
nav b{display:block;margin:1rem 0 .3rem;text-transform:capitalize}
nav a{display:flex;gap:.5rem;padding:.15rem 0;color:var(--ink);overflow-wrap:anywhere}
main{padding:1.5rem 2rem 6rem;min-width:0}
h1{margin:0;font-size:1.8rem}h2{margin:3rem 0 0;text-transform:capitalize}
h3{margin:0;font-size:1.05rem;overflow-wrap:anywhere}h4{margin:1.2rem 0 .4rem;font-size:.85rem;
color:var(--soft);text-transform:uppercase;letter-spacing:.04em}
article{margin:1.5rem 0;padding:1.2rem;border:1px solid var(--line);border-radius:.6rem}
article>p{margin:.4rem 0}
.how{display:inline-block;min-width:3.2rem;font-weight:700;font-size:.8em}
.get{color:var(--get)}.post{color:var(--post)}.put{color:var(--put)}
code,pre{font:.85em/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
code{overflow-wrap:anywhere}
pre{margin:.4rem 0;padding:.8rem;background:var(--pale);border-radius:.4rem;overflow:auto}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.9rem}
td,th{padding:.35rem .6rem .35rem 0;text-align:left;vertical-align:top;
border-bottom:1px solid var(--line)}th{color:var(--soft);font-weight:600}
td:first-child code{white-space:nowrap}
details{margin:.4rem 0}summary{cursor:pointer}
.soft{color:var(--soft)}
@media(max-width:52rem){.all{display:block}nav{position:static;height:auto;border-right:0;
border-bottom:1px solid var(--line)}main{padding:1rem}article{padding:.9rem}}
"""


def policy() -> str:
    """Give the policy under which the page is shown: this style and nothing else."""
    digest = b64encode(sha256(STYLE.encode()).digest()).decode("ascii")
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none';"
        " form-action 'none'; frame-ancestors 'none'"
    )


def page(document: Json) -> str:
    """Write the page; in its examples ADDRESS stands for the address of the server."""
    return "".join(_page(document))


def _page(document: Json) -> Iterator[str]:
    info = document["info"]
    title = escape(info["title"])
    yield (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title} API</title><style>{STYLE}</style></head><body>"
        '<div class="all"><nav aria-label="Operations">'
    )
    yield f'<a href="#top"><strong>{title} {escape(info["version"])}</strong></a>'
    for tag, operations in _by_tag(document):
        yield f"<b>{escape(tag['name'])}</b>"
        for path, method, operation in operations:
            yield f'<a href="#{operation["operationId"]}">{_method(method)} {escape(path)}</a>'
    yield '<b>shapes</b><a href="#shapes">Objects</a>'
    yield f'</nav><main id="top"><h1>{title} API</h1>'
    yield f"<p>{_marked(info['summary'])}.</p><p>{_marked(info['description'])}</p>"
    yield (
        '<p>For programs: <a href="/openapi.json">openapi.json</a>, and for what is'
        ' said over WebSocket at <code>/ws</code> <a href="/asyncapi.json">asyncapi.json</a>.'
        ' What this server allows: <a href="/capabilities">capabilities</a>.</p>'
    )
    for tag, operations in _by_tag(document):
        yield f"<h2>{escape(tag['name'])}</h2><p>{_marked(tag['description'])}</p>"
        for path, method, operation in operations:
            yield from _article(document, path, method, operation)
    yield from _shapes(document)
    yield "</main></div></body></html>\n"


def _by_tag(document: Json) -> Iterator[tuple[Json, list[tuple[str, str, Json]]]]:
    for tag in document["tags"]:
        yield (
            tag,
            [
                (path, method, operation)
                for path, methods in document["paths"].items()
                for method, operation in methods.items()
                if operation["tags"] == [tag["name"]]
            ],
        )


def _article(document: Json, path: str, method: str, operation: Json) -> Iterator[str]:
    body = operation.get("requestBody", {}).get("content", {})
    yield f'<article id="{operation["operationId"]}">'
    yield f"<h3>{_method(method)} <code>{escape(path)}</code></h3>"
    yield f"<p>{_marked(operation['summary'])}</p>"
    yield f'<p class="soft">{_marked(operation["description"])}</p>'
    yield f"<pre>{escape(curl(path, method, body))}</pre>"
    if "parameters" in operation:
        yield "<h4>Parameters</h4>"
        yield _table(
            ("name", "in", "type", ""),
            (
                (
                    f"<code>{escape(each['name'])}</code>",
                    each["in"],
                    _type(each["schema"]),
                    _about(each, "required" if each.get("required") else ""),
                )
                for each in operation["parameters"]
            ),
        )
    if JSON in body:
        yield "<h4>Body</h4>"
        yield _fields(_resolved(document, body[JSON]["schema"]), "required", "")
    yield "<h4>Answers</h4>"
    for status, response in operation["responses"].items():
        yield from _response(document, status, response)
    yield "</article>"


def _shapes(document: Json) -> Iterator[str]:
    yield '<h2 id="shapes">Shapes</h2><p>What the objects above consist of.</p>'
    for name, schema in document["components"]["schemas"].items():
        about = _marked(schema.get("description", "").replace("``", "`"))
        yield f'<article id="{name}"><h3>{name}</h3><p>{about}</p>'
        yield _fields(schema, "", "may be absent") + "</article>"


def curl(path: str, method: str, body: Json) -> str:
    """Show how to ask from a shell."""
    address = f'"{ADDRESS}{path.replace("{", "$").replace("}", "")}"'
    if not body:
        return f"curl {address}" if method == "get" else f"curl -X {method.upper()} {address}"
    if JSON not in body:
        return f"curl -T FILE -H 'content-type: application/octet-stream' {address}"
    if "example" not in body[JSON]:
        return f"curl -X {method.upper()} {address}"
    text = msgspec.json.encode(body[JSON]["example"]).decode()
    return f"curl {address} -H 'content-type: {JSON}' \\\n  -d '{text}'"


def _response(document: Json, status: str, response: Json) -> Iterator[str]:
    content = response.get("content", {})
    yield f"<details><summary><code>{status}</code> {_marked(response['description'])}</summary>"
    for name, header in response.get("headers", {}).items():
        yield f'<p class="soft"><code>{escape(name)}</code>: {_marked(header["description"])}</p>'
    for kind, described in content.items():
        yield f'<p class="soft">{escape(kind)}</p>'
        schema = _resolved(document, described["schema"])
        if "properties" in schema:
            yield _fields(schema, "", "may be absent")
        if "example" in described:
            text = msgspec.json.format(msgspec.json.encode(described["example"])).decode()
            yield f"<pre>{escape(text)}</pre>"
    yield "</details>"


def _fields(schema: Json, required: str, optional: str) -> str:
    """Give the fields of an object, and a word on those that must or need not be there."""
    names = schema.get("required", ())
    return _table(
        ("field", "type", ""),
        (
            (
                f"<code>{escape(name)}</code>",
                _type(each),
                _about({"schema": each}, required if name in names else optional),
            )
            for name, each in schema["properties"].items()
        ),
    )


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{top}</tr>{lines}</table></div>'


def _resolved(document: Json, schema: Json) -> Json:
    if "$ref" in schema:
        named: Json = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return named
    return schema


def _type(schema: Json) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return escape(str(schema.get("type", "any")))


def _about(each: Json, presence: str) -> str:
    schema = each["schema"]
    words = [presence] if presence else []
    if schema.get("default") not in (None, {}):
        words.append(f"default <code>{escape(str(schema['default']))}</code>")
    words += [
        f"{_span(schema.get(least), schema.get(most))}{unit}"
        for least, most, unit in _BOUNDS
        if least in schema or most in schema
    ]
    if "pattern" in schema:
        words.append(f"like <code>{escape(schema['pattern'])}</code>")
    description = each.get("description", schema.get("description"))
    if description:
        words.append(_marked(description))
    return ", ".join(words)


_BOUNDS: Final = (("minimum", "maximum", ""), ("minLength", "maxLength", " characters"))


def _span(least: float | None, most: float | None) -> str:
    if most is None:
        return f"at least {least}"
    return f"at most {most}" if least is None else f"{least} to {most}"


def _method(method: str) -> str:
    return f'<span class="how {escape(method)}">{escape(method.upper())}</span>'


def _marked(text: str) -> str:
    """Show what stands between backticks as code."""
    parts = escape(text, quote=False).split("`")
    return "".join(
        f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts)
    )
