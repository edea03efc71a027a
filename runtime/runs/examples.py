"""Examples of what is sent and answered; a test holds them to the types."""

from __future__ import annotations

from typing import Any, Final

_RUN: Final = "0198c5f2-6f0e-7a51-9c3d-5b2f8a6e4d10"
_NEXT: Final = "0198c5f2-7b1c-7d02-8e4f-1a9b3c5d7e20"
_CURSOR: Final = "AQABAgMEBQYHCAkAAAAAAAAAKgUG"
_ITEM: Final = f"{_RUN}.1"

CREATE: Final[dict[str, Any]] = {
    "plugin_id": "demo",
    "entry_id": "count",
    "args": {"to": 3, "delay": 0.01},
    "idempotency_key": "order-17",
}
CANCEL_MANY: Final[dict[str, Any]] = {"plugin_id": "demo", "status": ["queued"]}
RETRY_MANY: Final[dict[str, Any]] = {"status": ["failed"], "count": 1, "at": _CURSOR}
COUNTED: Final[dict[str, Any]] = {
    "count": 1200,
    "run_ids": [],
    "unchanged": 0,
    "refused": [],
    "next_after": None,
    "cursor": _CURSOR,
}
RETRIED_MANY: Final[dict[str, Any]] = {**COUNTED, "count": 1, "run_ids": [_NEXT]}
TRIGGER: Final[dict[str, Any]] = {"plugin_id": "demo", "entry_id": "count", "args": {"to": 3}}

_QUEUED: Final[dict[str, Any]] = {
    "run_id": _RUN,
    "plugin_id": "demo",
    "entry_id": "count",
    "status": "queued",
    "created_at": 1785585600.0,
    "updated_at": 1785585600.001,
    "task_id": None,
    "trace_id": None,
    "idempotency_key": "order-17",
    "root_run_id": _RUN,
    "parent_run_id": None,
    "attempt": 1,
    "started_at": None,
    "finished_at": None,
    "progress": None,
    "cancel_requested": False,
    "cancel_reason": None,
    "cancel_requested_at": None,
    "error": None,
    "result_refs": [],
    "message": None,
    "stage": None,
    "session_id": None,
    "deadline": None,
    "questions": [],
    "started_by": None,
    "children": 0,
}
_ENDED: Final = {
    **_QUEUED,
    "status": "succeeded",
    "started_at": 1785585600.002,
    "finished_at": 1785585600.04,
    "updated_at": 1785585600.041,
    "progress": 1.0,
    "message": "3 of 3",
    "result_refs": [{"export_item_id": _ITEM, "type": "json"}],
}
_CANCELED: Final = {
    **_QUEUED,
    "status": "canceled",
    "cancel_requested": True,
    "cancel_reason": "not needed any more",
    "cancel_requested_at": 1785585600.01,
    "finished_at": 1785585600.01,
    "error": {
        "code": "CANCELED",
        "message": "not needed any more",
        "details": None,
        "retriable": False,
    },
}
_EXPORTED: Final = {
    "export_item_id": _ITEM,
    "run_id": _RUN,
    "type": "json",
    "created_at": 1785585600.04,
    "description": None,
    "mime": None,
    "metadata": {},
    "json": 3,
}

QUEUED: Final = {**_QUEUED, "cursor": _CURSOR}
ENDED: Final = {**_ENDED, "cursor": _CURSOR}
CANCELED: Final = {**_CANCELED, "cursor": _CURSOR}
RETRIED: Final = {
    **_QUEUED,
    "run_id": _NEXT,
    "parent_run_id": _RUN,
    "attempt": 2,
    "idempotency_key": None,
    "cursor": _CURSOR,
}
FOUND: Final = {"run_ids": [_RUN], "more": False, "cursor": _CURSOR}
RUNS: Final = {"runs": [_ENDED], "next_after": None, "cursor": _CURSOR}
EXPORT: Final = {"items": [_EXPORTED], "next_after": None, "cursor": _CURSOR}
QUESTIONS: Final = {
    "questions": [
        {"question_id": _NEXT, "question": {"text": "Deploy?"}, "asked_at": 1785585600.04}
    ],
    "more": False,
    "cursor": _CURSOR,
}
HISTORY: Final = {
    "history": [
        {
            "at": 1785585600.002,
            "what": "activated",
            "epoch": 1,
            "host": _NEXT,
            "plugin_version": "1",
        },
        {
            "at": 1785585600.03,
            "what": "step_recorded",
            "step": "fetch",
            "size": 12,
            "preview": '{"pages": 3}',
        },
    ],
    "next_after": None,
    "cursor": _CURSOR,
}
LOGS: Final = {
    "lines": [
        {
            "run_id": _RUN,
            "trace_id": None,
            "level": "info",
            "text": "counted to 3",
            "at": 1785585600.04,
        }
    ],
    "dropped": 0,
    "next_after": None,
    "cursor": _CURSOR,
}
UPLOAD: Final = {
    "upload_id": _NEXT,
    "run_id": _RUN,
    "size_limit": 1 << 20,
    "expires_at": 1785589200.0,
    "cursor": _CURSOR,
}
PLUGINS: Final = {
    "plugins": [
        {
            "plugin_id": "demo",
            "version": "1",
            "description": "Small entries that each show one thing.",
            "limit": None,
            "entries": [
                {
                    "entry_id": "count",
                    "description": "Count.",
                    "args": {"type": "object", "properties": {"to": {"type": "integer"}}},
                    "timeout": None,
                    "resumes": True,
                }
            ],
        }
    ],
    "problems": [],
    "cursor": _CURSOR,
}
ENVELOPE: Final = {"ok": True, "data": 3, "error": None, "run_id": _RUN}
