"""Filters: which records a follower wants to see."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from perdure.eventlog.record import FieldValue, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A record passes if it matches everything stated; nothing stated lets everything pass.

    ``fields`` compares metadata fields: each one named must have one of the values given.
    """

    streams: frozenset[str] | None = None
    scopes: frozenset[str] | None = None
    names: frozenset[str] | None = None
    fields: Mapping[str, frozenset[FieldValue]] = field(default_factory=dict)

    def matches(self, record: Record) -> bool:
        """Tell whether a record passes. The cheap questions come first."""
        if self.streams is not None and record.stream not in self.streams:
            return False
        if self.scopes is not None and record.scope not in self.scopes:
            return False
        if self.names is not None and record.name not in self.names:
            return False
        return not self.fields or self._fields_match(record)

    def _fields_match(self, record: Record) -> bool:
        found = record.metadata.fields
        return all(name in found and found[name] in wanted for name, wanted in self.fields.items())

    def __and__(self, other: Filter) -> Filter:
        """Give the filter that lets pass what passes both."""
        fields = dict(self.fields)
        for name, wanted in other.fields.items():
            fields[name] = fields.get(name, wanted) & wanted
        return Filter(
            streams=_both(self.streams, other.streams),
            scopes=_both(self.scopes, other.scopes),
            names=_both(self.names, other.names),
            fields=fields,
        )

    @property
    def key(self) -> Hashable:
        """Equal for filters that let the same pass."""
        return self.streams, self.scopes, self.names, frozenset(self.fields.items())

    @property
    def lets_everything_pass(self) -> bool:
        """Whether nothing is stated."""
        return (
            self.streams is None and self.scopes is None and self.names is None and not self.fields
        )

    @property
    def only_stream(self) -> str | None:
        """The one stream asked for: its records are found by index."""
        return _only(self.streams)

    @property
    def only_scope(self) -> str | None:
        """The one scope asked for: its records are found by index."""
        return _only(self.scopes)


def _both(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _only(names: frozenset[str] | None) -> str | None:
    if names is None or len(names) != 1:
        return None
    (name,) = names
    return name


EVERYTHING = Filter()
