"""Exports of an execution: items, and what is too large for one, which becomes a blob.

An item holds bytes, a text or a JSON value up to a limit. Beyond it the item has the address of a
blob instead, and of a text or a JSON value its type and its beginning.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from perdure.actors.run.item_id import export_item_id
from perdure.actors.run.output import inline_bytes
from perdure.actors.run.preview import preview
from perdure.eventlog import cbor
from perdure.eventlog.errors import CodecError
from perdure.runtime.blobs.blob import blob_of, is_blob_address, scope_of
from perdure.runtime.execution.refusals import told_to_plugins
from perdure.runtime.execution.run_secrets import Scanner
from perdure.runtime.plugins.byte_source import pieces_of
from perdure.runtime.plugins.contract import PluginError
from perdure.runtime.plugins.run_messages import Export

if TYPE_CHECKING:
    from perdure.runtime.blobs.blob import Blob
    from perdure.runtime.blobs.store import Draft
    from perdure.runtime.execution.execution import Execution
    from perdure.runtime.plugins.run_messages import Bytes

EXPORT_URL: Final = "perdure:export/"  # and the id of an item
_MIME: Final = {"text": "text/plain; charset=utf-8", "json": "application/json"}  # of a blob


class Exports:
    """What an execution puts out for people and programs."""

    def __init__(self, execution: Execution) -> None:
        """Belong to one activation."""
        self._execution = execution

    async def export(self, item: Export) -> str:
        """Put out an item; give its id."""
        return self._id(await self._export(item))

    async def _export(self, item: Export) -> int:
        with told_to_plugins:
            if item.type == "binary":
                content = inline_bytes(item.content, self._execution.inline_limit)
                return await self._put("binary", content, item)
            if item.type == "id":
                return await self._refer(item)
            if item.type == "binary_url" and is_blob_address(item.content):
                return await self._name_blob(item)
            if _is_larger(item, self._execution.inline_limit):
                return await self._put_away(item)
            return await self._put(item.type, item.content, item)

    async def export_returned(self, value: Any) -> int:  # noqa: ANN401 - what the entry returned
        """Put out the value of an entry, which leaves with the end of the run; give its number."""
        item = Export(type="json", content=value)
        if not _is_larger(item, self._execution.inline_limit):
            return self._execution.outbox.export("json", value, self._execution.now())
        with told_to_plugins:
            return await self._put_away(item)

    async def export_bytes(self, item: Bytes, data: Any) -> str:  # noqa: ANN401 - bytes, in any way
        """Take in bytes, whole or piece by piece; put them out and give the item's id.

        A blob is on disk before its item is, and both are when this returns.
        """
        known = self._execution.outbox.number_of(item.key)
        if known is not None:
            return self._id(known)
        with told_to_plugins:
            async with self._execution.blobs.draft(scope_of(self._execution.run)) as draft:
                content = await self._take_in(draft, data)
                if isinstance(content, bytes):
                    return self._id(await self._put("binary", content, item))
                about = {"size": draft.size, "sha256": content.sha256}
                return self._id(await self._put_durably(content.url, item, about))

    async def _put_away(self, item: Export) -> int:
        """Make a blob of a text or a JSON value, and put out its address and its beginning."""
        known = self._execution.outbox.number_of(item.key)
        if known is not None:
            return known
        data = _encoded(item.type, self._execution.redactor.value(item.content))
        async with self._execution.blobs.draft(scope_of(self._execution.run)) as draft:
            await draft.write(data)
            blob = await draft.publish()
            about = {
                "type": item.type,
                "preview": preview(data),
                "size": len(data),
                "sha256": blob.sha256,
            }
            item = msgspec.structs.replace(item, mime=item.mime or _MIME[item.type])
            return await self._put_durably(blob.url, item, about)

    async def _refer(self, item: Export) -> int:
        """Put out the address of another item: nothing is copied."""
        if not await self._execution.has_export(item.content):
            raise PluginError(
                "VALIDATION_ERROR", f"{item.content!r} is no export that this run may refer to"
            )
        return await self._put("url", f"{EXPORT_URL}{item.content}", item, {"ref": item.content})

    async def _name_blob(self, item: Export) -> int:
        """Put out the address of a blob, which is there as long as the item is."""
        blob = blob_of(self._execution.run, item.content)
        if blob is None:
            raise PluginError(
                "VALIDATION_ERROR", f"{item.content!r} is no blob that this run may name"
            )
        async with self._execution.blobs.hold(blob):
            return await self._put_durably(blob.url, item)

    async def _put(
        self,
        kind: str,
        content: Any,  # noqa: ANN401 - as its kind says
        item: Export | Bytes,
        about: dict[str, Any] | None = None,
    ) -> int:
        """Put an item into the outbox, when there is room; give its number."""
        await self._execution.delivery.room()
        number = self._execution.outbox.export(
            kind,
            content,
            self._execution.now(),
            description=item.description,
            mime=item.mime,
            key=item.key,
            metadata=item.metadata if about is None else {**(item.metadata or {}), **about},
        )
        self._execution.delivery.something_waits()
        return number

    async def _put_durably(
        self, url: str, item: Export | Bytes, about: dict[str, Any] | None = None
    ) -> int:
        """Put out the address of bytes, and return when it is in the log."""
        number = await self._put("binary_url", url, item, about)
        with trio.CancelScope(shield=True):  # not even a cancelled entry goes on before
            await self._execution.delivery.hand_over()
        return number

    def _id(self, number: int) -> str:
        return export_item_id(self._execution.run.created.run_id, number)

    async def _take_in(self, draft: Draft, data: Any) -> bytes | Blob:  # noqa: ANN401 - bytes, in any way
        """Take in all that arrives: give the bytes if they are few, else the blob they are now."""
        scanner = Scanner(self._execution.redactor)
        waiting = bytearray()
        async with aclosing(pieces_of(data)) as pieces:
            async for piece in pieces:
                scanner.see(piece)
                if draft.size or len(waiting) + len(piece) > self._execution.inline_limit:
                    await draft.write(waiting)
                    await draft.write(piece)
                    waiting.clear()
                else:
                    waiting += piece
                await trio.lowlevel.checkpoint()
        return await draft.publish() if draft.size else bytes(waiting)


def _is_larger(item: Export, limit: int) -> bool:
    """Tell whether a text or a JSON value is more than an item may hold.

    What could not be stored in any way is left to the outbox, which says why.
    """
    if item.type not in _MIME:
        return False
    try:
        if len(_encoded(item.type, item.content)) <= limit:
            return False
        cbor.check(item.content)
    except (TypeError, ValueError, RecursionError, CodecError):
        return False
    return True


def _encoded(kind: str, content: Any) -> bytes:  # noqa: ANN401 - a text, or a JSON value
    return content.encode() if kind == "text" else msgspec.json.encode(content)
