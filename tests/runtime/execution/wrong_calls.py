"""Calls of ``ctx.run`` that are wrong in themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure import Retry


def wrong_calls(run: Any, step: Callable[[], Any]) -> dict[str, Callable[[], Any]]:
    """Give calls that no place lets pass."""
    return {
        "progress 2.0": lambda: run.progress(2.0),
        "progress nan": lambda: run.progress(float("nan")),
        "progress text": lambda: run.progress("half"),
        "progress bool": lambda: run.progress(True),  # noqa: FBT003 - the point
        "message": lambda: run.progress(0.5, 5),
        "stage": lambda: run.status(5),
        "line": lambda: run.log(5),
        "level": lambda: run.log("x", 5),
        "result of another": lambda: run.result("nobody.1"),
        "result": lambda: run.result(5),
        "type": lambda: run.export("pdf", "x"),
        "text": lambda: run.export_text(5),
        "description": lambda: run.export_text("x", 5),
        "key": lambda: run.export_text("x", key=""),
        "mime": lambda: run.export_json(1, mime=5),
        "metadata": lambda: run.export_bytes(b"x", metadata=5),
        "unknown": lambda: run.export_text("x", colour="red"),
        "base64": lambda: run.export_binary("?"),
        "large": lambda: run.export_binary(bytes(65_537)),
        "bytes": lambda: run.export_bytes("text"),
        "piece": lambda: run.export_bytes([b"x", "text"]),
        "used": lambda: run.step("used", step),
        "used to sleep": lambda: run.sleep(0, name="used"),
        "long name": lambda: run.step("x" * 501, step),
        "long name to ask": lambda: run.ask("?", name="x" * 501),
        "no name": lambda: run.step("", step),
        "no text": lambda: run.start("anywhere", "inline", name=5),
        "tries": lambda: run.step("s", step, retry=Retry(tries=0)),
        "retry": lambda: run.step("s", step, retry=3),
        "called": lambda: run.step("s", 1),
        "jitter": lambda: run.step("s", step, retry=Retry(jitter=2)),
        "no jitter": lambda: run.step("s", step, retry=Retry(jitter="1")),  # type: ignore[arg-type]
        "on": lambda: run.step("s", step, retry=Retry(on="OSError")),  # type: ignore[arg-type]
        "delay": lambda: run.step("s", step, retry=Retry(delay=float("nan"))),
        "seconds": lambda: run.sleep("1"),
        "for ever": lambda: run.sleep(float("inf")),
        "plugin": lambda: run.start(5, "inline"),
        "entry": lambda: run.start("anywhere", None),
        "args": lambda: run.start("anywhere", "inline", [1]),
    }
