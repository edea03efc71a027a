"""Results with their texts and JSON values in them, also those that are kept as blobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from perdure.runtime.blobs.blob import blob_of
from perdure.runtime.kernel.errors import OperationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.actors.run.core import Run
    from perdure.actors.run.views import ExportItem
    from perdure.runtime.blobs.blob import Blob
    from perdure.runtime.blobs.store import BlobStore


async def whole_results(
    blobs: BlobStore, run: Run, items: Iterable[ExportItem], *, most: int
) -> list[ExportItem]:
    """Give items as they were before they were too large: of blobs ``most`` bytes in all.

    Those that come after that are left out. A blob that cannot be read stays an address.
    """
    whole: list[ExportItem] = []
    for item in items:
        kind, blob = item["metadata"].get("type"), blob_of(run, item.get("binary_url", ""))
        if blob is None or kind not in {"text", "json"}:
            whole.append(item)
            continue
        try:
            data = await _read(blobs, blob, most)
        except OperationError:
            whole.append(item)
            continue
        if data is None:
            break
        most -= len(data)
        whole.append(_with_content(item, kind, data))
    return whole


async def _read(blobs: BlobStore, blob: Blob, most: int) -> bytes | None:
    async with blobs.open(blob) as content:
        return await content.read() if content.size <= most else None


def _with_content(item: ExportItem, kind: str, data: bytes) -> ExportItem:
    """Put the content into an item; what an entry has called so, and is not, stays a blob."""
    try:
        content: Any = data.decode() if kind == "text" else msgspec.json.decode(data)
    except (UnicodeDecodeError, msgspec.DecodeError):
        return item
    rest = {name: value for name, value in item.items() if name != "binary_url"}
    return cast("ExportItem", {**rest, "type": kind, kind: content})
