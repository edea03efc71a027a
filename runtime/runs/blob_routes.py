"""Bytes over HTTP: streamed into an upload and out of a blob, a piece at a time."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from perdure.runtime.blobs.store import CHUNK
from perdure.runtime.kernel.operations import COMMON_ERRORS
from perdure.runtime.kernel.principal import principal_of
from perdure.runtime.kernel.requests import Name, Sha256
from perdure.runtime.kernel.requests import Request as Asked
from perdure.runtime.kernel.routes.arguments import (
    allow_body,
    hold_memory,
    path_args,
    refuse_query,
)
from perdure.runtime.kernel.routes.byte_range import Span, asked_span, has_etag
from perdure.runtime.kernel.routes.reply import Header, empty_reply, json_reply
from perdure.runtime.kernel.routes.route import Route
from perdure.runtime.runs.answers import BlobAnswer
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import ReadBlob

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from perdure.runtime.blobs.store import BlobReading
    from perdure.runtime.kernel.routes.route import Handler, Surface

BYTES: Final = "application/octet-stream"


class UploadAddress(Asked):
    """Where the bytes of an upload go."""

    upload_id: Name


class BlobAddress(Asked):
    """Where a blob is."""

    run_id: Name  # a run of the scope that the blob belongs to
    sha256: Sha256


def _receiving(surface: Surface) -> Handler:
    node, part = surface.node, runs_of(surface.node)

    async def receive(request: Request) -> ASGIApp:
        principal = principal_of(request)
        node.operations.permit(principal, "blobs.create_upload")
        refuse_query(request)
        upload_id = path_args(request.path_params)["upload_id"]
        allow_body(
            request, part.executor.context.blobs.limits.scope_quota
        )  # the upload itself may allow less
        hold_memory(request, CHUNK)  # what is written at once
        async with aclosing(request.stream()) as arriving:
            return json_reply(await part.uploads.receive(principal, upload_id, arriving))

    return receive


def _sending(surface: Surface) -> Handler:
    node, part = surface.node, runs_of(surface.node)

    async def send_blob(request: Request) -> ASGIApp:
        principal = principal_of(request)
        row = node.operations.permit(principal, "blobs.read")
        refuse_query(request)
        asked = row.parse(path_args(request.path_params))
        assert isinstance(asked, ReadBlob)  # noqa: S101 - that is what it parses
        etag = f'"{asked.sha256}"'
        hold_memory(request, CHUNK)  # the piece after the one that is on its way

        async def reply(scope: Scope, receive: Receive, send: Send) -> None:
            async with part.uploads.open(principal, asked.run_id, asked.sha256) as content:
                headers = request.headers
                if has_etag(headers.get("if-none-match"), etag):
                    await empty_reply(304, *_describing(etag))(scope, receive, send)
                    return
                span = asked_span(headers.get("range"), headers.get("if-range"), etag, content.size)
                await _send(content, span, etag, send, head_only=scope["method"] == "HEAD")

        return reply

    return send_blob


def _describing(etag: str) -> tuple[Header, ...]:
    return (
        (b"etag", etag.encode()),
        (b"accept-ranges", b"bytes"),
        (b"cache-control", b"private, max-age=31536000, immutable"),  # the address is the content
    )


async def _send(
    content: BlobReading, span: Span | None, etag: str, send: Send, *, head_only: bool
) -> None:
    whole = Span(0, content.size, content.size)
    headers: list[Header] = [
        (b"content-type", BYTES.encode()),
        (b"content-length", b"%d" % (span or whole).length),
        (b"content-disposition", f"attachment; filename={etag}".encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"content-security-policy", b"sandbox; default-src 'none'"),
        *_describing(etag),
    ]
    status = 200
    if span is not None:
        status = 206
        headers.append((b"content-range", span.content_range))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if not head_only:
        async with aclosing(_late(content, span or whole)) as pieces:
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _late(content: BlobReading, span: Span) -> AsyncGenerator[bytes, None]:
    """Give the pieces of a span, each when the next is there.

    So the last one is only sent once it is known that all of them are what was stored: of a damaged
    blob the end is missing, and the reader notices.
    """
    held: bytes | None = None
    async for piece in content.pieces(span.start, span.length):
        if held is not None:
            yield held
        held = piece
    if held is not None:
        yield held


RECEIVING: Final = Route(
    method="PUT",
    path="/uploads/{upload_id}",
    name="blobs.receive",
    summary="Bring the bytes of an upload; if this breaks off, they can be sent again.",
    make=_receiving,
    tag="blobs",
    request=UploadAddress,
    response=BlobAnswer,
    takes=BYTES,
    errors=(
        *COMMON_ERRORS,
        "UPLOAD_NOT_FOUND",
        "RUN_NOT_FOUND",
        "RUN_NOT_RUNNING",
        "PAYLOAD_TOO_LARGE",
        "QUOTA_EXCEEDED",
    ),
)
SENDING: Final = Route(
    method="GET",
    path="/runs/{run_id}/blobs/{sha256}",
    name="blobs.open",
    summary="Read a blob, or a range of it.",
    make=_sending,
    tag="blobs",
    request=BlobAddress,
    gives=BYTES,
    statuses={200: "All of it.", 206: "The range that was asked for.", 304: "You have it."},
    errors=(*COMMON_ERRORS, "RUN_NOT_FOUND", "BLOB_NOT_FOUND", "BLOB_DAMAGED", "INVALID_RANGE"),
    reads={
        "Range": "`bytes=0-99`: one range; several are answered with all of it",
        "If-Range": "the range only if the blob has this ETag",
        "If-None-Match": "304 if the blob has this ETag",
    },
    headers={
        "ETag": "the hash in quotes",
        "Accept-Ranges": "`bytes`",
        "Content-Range": "which bytes these are, with 206",
        "Content-Disposition": "`attachment`",
    },
)
