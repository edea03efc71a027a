"""Which runs are meant, and how the tables of the index are searched for them.

A query becomes a few searches. One index answers each of them, in the order of positions, and a
run matches one of them only. Runs that have ended are found by their outcome, runs that have not by
being open, and runs that were open at a position of the past by the interval in which they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from perdure.actors.run.status import ENDED, OPEN
from perdure.runtime.kernel.intervals import cells_around

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    Columns = dict[str, str | None]  # what each must be; None is a value, too

NOT_ENDED: Final = ""  # the outcome of a run that is open
FOREVER: Final = (1 << 63) - 1  # after every position
# The columns that lead to few runs, the likeliest first. Each group has an index with the outcome.
GROUPS: Final = (
    ("root_run_id",),
    ("started_by",),
    ("session_id",),
    ("task_id",),
    ("plugin_id", "entry_id"),
    ("entry_id",),
    ("plugin_id",),
)
_COLUMNS: Final = (
    "plugin_id",
    "entry_id",
    "task_id",
    "session_id",
    "root_run_id",
    "started_by",
)
_TOP_LEVEL: Final = {"started_by": None}


class Span(NamedTuple):
    """The positions among which runs are looked for: after the first, before the last."""

    after: int = 0
    before: int = FOREVER


class Search(NamedTuple):
    """A condition on a run ``r``, and the values in it."""

    condition: str
    values: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs to list: all that is stated must match."""

    tenant: str
    plugin_id: str | None = None
    entry_id: str | None = None
    task_id: str | None = None
    session_id: str | None = None
    root_run_id: str | None = None
    started_by: str | None = None
    statuses: frozenset[str] | None = None
    created_from: int | None = None  # UTC nanoseconds, inclusive
    created_until: int | None = None  # exclusive
    newest: bool = False  # only the newest attempt of each root
    top_level: bool = False  # only those that no other run has started

    def searches(self, span: Span, past: int | None) -> list[Search]:
        """Search the tables for runs as they are, or as they were at a position."""
        if past is not None:
            span = Span(span.after, min(span.before, past + 1))
        stated = self._stated()
        if stated is None:
            return []
        group = _leading(stated)
        leading = {"tenant": self.tenant, **{name: stated.pop(name) for name in group}}
        rest = [Search("r.position > ? AND r.position < ?", span), *_filtered(stated)]
        rest += [*self._created(), *self._newest(past)]
        standing = self._standing(grouped=bool(group))
        if self.statuses is None or past is None:
            return [_both(*_indexed(leading), each, *rest) for each in standing]
        since = Search("r.since <= ?", (past,))
        found = [_both(*_indexed(leading), each, since, *rest) for each in standing]
        if were := OPEN & self.statuses:
            found.append(_both(self._were(were, past), *_filtered(leading), *rest))
        return found

    def _stated(self) -> Columns | None:
        """Give the columns that must have a value; None if nothing can match."""
        stated: Columns = {
            name: wanted for name in _COLUMNS if (wanted := getattr(self, name)) is not None
        }
        if not self.top_level:
            return stated
        return None if "started_by" in stated else {**stated, **_TOP_LEVEL}

    def _standing(self, *, grouped: bool) -> Iterable[Search]:
        """Say where runs stand: one search for each range of an index."""
        wanted = sorted(OPEN | ENDED if self.statuses is None else self.statuses)
        if not grouped:
            return [Search("r.status = ?", (status,)) for status in wanted]
        found = [Search("r.outcome = ?", (status,)) for status in wanted if status in ENDED]
        if being_open := [status for status in wanted if status in OPEN]:
            condition = f"r.outcome = ? AND +r.status IN ({_places(being_open)})"
            found.append(Search(condition, (NOT_ENDED, *being_open)))
        return found

    def _were(self, statuses: Collection[str], past: int) -> Search:
        """Say that runs were in one of these statuses, and are not any more."""
        cells = cells_around(past)
        return Search(
            "r.position IN (SELECT i.position FROM past i"  # noqa: S608 - places only
            f" WHERE i.tenant = ? AND i.status IN ({_places(statuses)})"
            f" AND i.cell IN ({_places(cells)}) AND i.begins <= ? AND i.ends > ?)",
            (self.tenant, *sorted(statuses), *cells, past, past),
        )

    def _created(self) -> Iterable[Search]:
        if self.created_from is not None:
            yield Search("r.created_at >= ?", (self.created_from,))
        if self.created_until is not None:
            yield Search("r.created_at < ?", (self.created_until,))

    def _newest(self, past: int | None) -> Iterable[Search]:
        if self.newest:
            later = "n.position > r.position AND n.position <= ?"
            yield Search(
                "NOT EXISTS (SELECT 1 FROM runs n WHERE n.tenant = r.tenant"  # noqa: S608
                f" AND n.root_run_id = r.root_run_id AND {later})",
                (FOREVER if past is None else past,),
            )


def _leading(stated: Columns) -> tuple[str, ...]:
    """Choose the columns whose index is walked; runs that nobody started are many, so last."""
    known = {name for name, wanted in stated.items() if wanted is not None}
    found = next((each for each in GROUPS if known >= set(each)), ())
    return found or tuple(stated)


def _both(*searches: Search) -> Search:
    """Give what matches all of several."""
    condition = " AND ".join(each.condition for each in searches)
    return Search(condition, tuple(value for each in searches for value in each.values))


def _indexed(columns: Columns) -> list[Search]:
    return [_is(f"r.{column}", wanted) for column, wanted in columns.items()]


def _filtered(columns: Columns) -> list[Search]:
    """Look at each row that is found: the sign keeps SQLite from choosing another index."""
    return [_is(f"+r.{column}", wanted) for column, wanted in columns.items()]


def _is(column: str, wanted: str | None) -> Search:
    if wanted is None:
        return Search(f"{column} IS NULL")
    return Search(f"{column} = ?", (wanted,))


def _places(values: Collection[object]) -> str:
    return ", ".join("?" * len(values))
