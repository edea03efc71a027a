"""An export item as clients see it: a blob by the path at which a server offers it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.actors.run.views import ExportItem, export_item
from perdure.runtime.blobs.blob import blob_at, blob_path

if TYPE_CHECKING:
    from perdure.actors.run.events import ExportAppended


def export_view(run_id: str, export: ExportAppended) -> ExportItem:
    """Give an item with an address that can be fetched, relative to the server that gives it."""
    item = export_item(run_id, export)
    blob = blob_at(item.get("binary_url", ""))
    if blob is not None:
        item["binary_url"] = blob_path(run_id, blob.sha256)
    return item
