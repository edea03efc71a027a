"""Figures: numbers that a part of a node shows to its operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

Labels = tuple[tuple[str, str], ...]


class Figure(NamedTuple):
    """A number with a name, or one for each value of its labels."""

    name: str  # without the prefix and, of a counter, without `_total`
    kind: Literal["gauge", "counter"]
    about: str
    values: Mapping[Labels, float]


def figure(name: str, kind: Literal["gauge", "counter"], about: str, value: float) -> Figure:
    """Give a figure that is one number."""
    return Figure(name, kind, about, {(): value})


def figures_by(
    label: str,
    name: str,
    kind: Literal["gauge", "counter"],
    about: str,
    values: Mapping[str, float],
) -> Figure:
    """Give a figure with a number for each value of a label."""
    return Figure(name, kind, about, {((label, key),): value for key, value in values.items()})
