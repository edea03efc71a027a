"""Write the golden log and the golden run of the current formats: `python -m tools.golden`.

They are made once, when a format or a fold is new, and then read by every later release for ever.
An existing one is never overwritten.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

from perdure.actors.run.core import RUN
from perdure.actors.run.views import record
from perdure.eventlog.append import Append, StreamWrite
from perdure.eventlog.log import EventLog, open_log
from perdure.eventlog.record import Metadata, NewEvent, Record
from perdure.eventlog.registry import EventRegistry
from perdure.eventlog.simulation import SimEnv, simulate
from perdure.eventlog.sqlite import SqliteStore
from perdure.eventlog.sqlite.schema import SCHEMA_VERSION
from perdure.eventlog.store import Bounds
from tests.golden.events import EVENTS, EXAMPLES
from tests.golden.runs import BESIDE, HISTORY, REGISTRIES

GOLDEN = Path(__file__).parent.parent / "tests" / "golden"


def described(record: Record, log: EventLog, registry: EventRegistry) -> dict[str, object]:
    """Describe a record in full, as JSON can hold it."""
    plain = {
        name: value.hex() if isinstance(value, bytes) else value
        for name, value in record._asdict().items()
        if name != "checksum"  # which older formats do not have
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


def stored(event: object) -> dict[str, object]:
    """Give an event as the log stores it."""
    for registry in REGISTRIES:
        if type(event) in set(registry):
            new = registry.encode(event, event_id=bytes(16), event_time=0)
            return {"name": new.name, "schema": new.schema, "body": new.body.hex()}
    raise TypeError(f"{type(event).__name__} is nobody's event")


def shown(history: list[Any]) -> dict[str, Any]:
    """Give the record that a history of a run folds to."""
    run = RUN.replay(history)
    if run is None:
        raise ValueError("a run without history")
    return dict(record(run, history[-1].at))


def write_runs() -> int:
    """Write the golden run, or say that it exists."""
    path = GOLDEN / f"{RUN.fold}.json"
    if path.exists():
        print(f"{path.name} exists; a golden run is never written again", file=sys.stderr)
        return 1
    golden = {
        "history": [stored(event) for event in HISTORY],
        "beside": [stored(event) for event in BESIDE],
        "records": [shown(HISTORY[:length]) for length in range(1, len(HISTORY) + 1)],
    }
    path.write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n")
    print(f"wrote {path.name}")
    return 0


def main() -> int:
    """Write what is missing, or say that it exists."""
    return write_log() & write_runs()


def write_log() -> int:
    """Write the golden log and its description, or say that they exist."""
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
