"""The page on the WebSocket protocol against the code."""

from __future__ import annotations

from typing import get_args

from perdure.eventlog.cbor import MAX_VALUES
from perdure.runtime.features import FEATURES
from perdure.runtime.kernel.budget import Budget
from perdure.runtime.websocket import SocketLimits
from perdure.runtime.websocket.conversation import EndReason
from perdure.runtime.websocket.formats import FORMATS
from perdure.runtime.websocket.frames import GOING_AWAY, SILENT, TOO_SLOW, TRY_AGAIN_LATER
from perdure.runtime.websocket.session import GONE_AFTER, PING_AFTER, SERVICE_RESTART
from tests.repository.tree import ROOT

PAGE = " ".join((ROOT / "docs" / "websocket.md").read_text("utf-8").split())


def test_the_limits_are_those_of_the_code() -> None:
    """Each number is the number in force."""
    limits = SocketLimits()
    frames, open_ = limits.wire.frames, limits.conversation
    assert (
        f"{frames.message_bytes >> 20} MiB, {MAX_VALUES:,} values and {frames.fragments} fragments"
        in PAGE
    )
    assert f"may take {frames.patience:.0f} s and a second more for each 6 KiB" in PAGE
    assert frames.progress == 6 << 10
    assert f"faster than {frames.rate:,.0f} a second" in PAGE
    assert f"Ping after {PING_AFTER:.0f} s and is gone after {GONE_AFTER:.0f} s" in PAGE
    assert f"what it is sent for {limits.wire.send:.0f} s" in PAGE
    assert f"{open_.calls:,} may be open, of {Budget().share >> 20} MiB" in PAGE
    assert f"that only read, {open_.reads} are worked on" in PAGE
    assert f"{open_.follows} follows may be open" in PAGE
    for code in (SERVICE_RESTART, TRY_AGAIN_LATER, TOO_SLOW, SILENT, GOING_AWAY):
        assert f"| {code} |" in PAGE


def test_every_name_is_there() -> None:
    """Formats, channels, and the reasons of an end."""
    assert all(f"`{name}`" in PAGE for name in (*FORMATS, *FEATURES.channels))
    assert all(f'end: "{reason}"' in PAGE for reason in get_args(EndReason))
