"""A canary: a secret that must not turn up anywhere, and the search for it."""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from perdure.eventlog import MemoryStore
from perdure.eventlog.store import Bounds
from perdure.runtime.kernel.projection import Projection
from tests.runtime.runs.index_rows import rows

CANARY = 'canary "7f3a/9c"'
FORMS = [
    CANARY,
    json.dumps(CANARY)[1:-1],
    quote(CANARY, safe=""),
    b64encode(CANARY.encode()).decode().rstrip("="),
]


def leaks(*places: bytes | str) -> list[str]:
    """Where the canary turned up, in any form."""
    texts = [place if isinstance(place, bytes) else place.encode() for place in places]
    return [repr(text)[:300] for text in texts if any(form.encode() in text for form in FORMS)]


def in_log(store: MemoryStore) -> list[str]:
    """Every byte of every record."""
    records = store.read_all(0, Bounds(records=1 << 30, bytes=1 << 40)).records
    return leaks(*(repr(tuple(record)) for record in records), *(r.body for r in records))


def in_logging(records: Iterable[logging.LogRecord], text: str) -> list[str]:
    """Every record of logging with all its parts, and what handlers made of it."""
    return leaks(text, *(repr(vars(record)) for record in records))


def in_answers(*answers: Any) -> list[str]:
    """Every answer of an operation."""
    return leaks(*(msgspec.json.encode(answer) for answer in answers), *map(repr, answers))


def in_listing(tables: Projection) -> list[str]:
    """Every row of a listing."""
    return leaks(*map(repr, rows(tables)))


def in_files(folder: Path, *except_for: str) -> list[str]:
    """Every byte of every file under a folder, by name too."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in except_for]
    return leaks(*(path.read_bytes() for path in files), *(str(path) for path in files))
