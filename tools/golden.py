"""Write the golden log of the current format: `python -m tools.golden`.

A golden log is made once, when a format is new, and then read by every later release for ever. An
existing one is never overwritten.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from eventlog.append import Append, StreamWrite
from eventlog.log import EventLog, open_log
from eventlog.record import Metadata, NewEvent, Record
from eventlog.registry import EventRegistry
from eventlog.simulation import SimEnv, simulate
from eventlog.sqlite import SqliteStore
from eventlog.sqlite.schema import SCHEMA_VERSION
from eventlog.store import Bounds
from tests.golden.events import EVENTS, EXAMPLES

GOLDEN = Path(__file__).parent.parent / "tests" / "golden"


def described(record: Record, log: EventLog, registry: EventRegistry) -> dict[str, object]:
    """Describe a record in full, as JSON can hold it."""
    plain = {
        name: value.hex() if isinstance(value, bytes) else value
        for name, value in record._asdict().items()
    }
    return {**plain, "cursor": log.cursor(record.mark), "event": repr(registry.decode(record))}


async def write(path: Path, chance: random.Random) -> list[dict[str, object]]:
    """Write the examples into a new log; give the description of every record."""
    env = SimEnv(chance)
    store = SqliteStore.open(path, env=env)
    async with open_log(env, store) as log:
        for number, event in enumerate(EXAMPLES):
            metadata = Metadata(
                principal="local/local",
                causation=str(env.new_id()),
                trace="0af7651916cd43dd8448eb211c80319c" if number % 2 else None,
                fields={"status": "running", "attempt": number, "final": number % 2 == 0},
            )
            new: NewEvent = EVENTS.encode(
                event, event_id=env.new_id().bytes, event_time=env.now(), metadata=metadata
            )
            await log.append(
                Append([StreamWrite(f"run/{number}", 0, [new], "session/s1", seal=number == 0)])
            )
        records = store.read_all(0, Bounds()).records
        descriptions = [described(record, log, EVENTS) for record in records]
    store.close()
    path.with_name(path.name + ".lock").unlink()
    return descriptions


def main() -> int:
    """Write both files, or say that they exist."""
    path = GOLDEN / f"log-format-{SCHEMA_VERSION}.db"
    if path.exists():
        print(f"{path.name} exists; a golden log is never written again", file=sys.stderr)
        return 1
    descriptions = simulate(1, lambda chance: write(path, chance))
    described_in = path.with_suffix(".json")
    described_in.write_text(json.dumps(descriptions, indent=1, ensure_ascii=False) + "\n")
    print(f"wrote {path.name} and {described_in.name}: {len(descriptions)} records")
    return 0


if __name__ == "__main__":
    sys.exit(main())
