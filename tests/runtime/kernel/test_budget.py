"""The memory budget: fair, never exceeded, and given back whatever happens."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from perdure.runtime.kernel.budget import SHARE, Account, Budget, Hold
from perdure.runtime.kernel.errors import OperationError

LIMIT = 10_000
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["hold", "grow", "resize", "release", "close"]),
        st.integers(0, 4),
        st.integers(0, LIMIT),
    ),
    max_size=60,
)


@given(STEPS)
def test_what_is_held_is_what_was_not_given_back(steps: list[tuple[str, int, int]]) -> None:
    """In any order; a refusal changes nothing, and the whole is never exceeded."""
    budget = Budget(LIMIT)
    accounts = [budget.account() for _ in range(5)]
    holds: dict[int, list[Hold]] = {number: [] for number in range(5)}
    for step, number, size in steps:
        before = (budget.held, accounts[number].held, [hold.size for hold in holds[number]])
        try:
            _do(step, accounts[number], holds[number], size)
        except OperationError:
            now = (budget.held, accounts[number].held, [hold.size for hold in holds[number]])
            assert now == before
        if step == "close":
            accounts[number], holds[number] = budget.account(), []
        assert budget.held == sum(account.held for account in accounts) <= LIMIT
        for account, held in zip(accounts, holds.values(), strict=True):
            assert account.held == sum(hold.size for hold in held) <= budget.share
    for account in accounts:
        with account:
            pass
    assert budget.held == 0


def _do(step: str, account: Account, holds: list[Hold], size: int) -> None:
    if step == "hold":
        holds.append(account.hold(size))
    elif step == "close":
        with account:
            pass
        for hold in holds:
            hold.release()  # too late: that was given back with the account
    elif holds and step == "release":
        holds[size % len(holds)].release()
        holds[size % len(holds)].release()
    elif holds:
        getattr(holds[size % len(holds)], step)(size)


@given(st.integers(1, 100), st.integers(10, 40))
def test_many_that_want_all_leave_enough_for_one_that_wants_little(many: int, piece: int) -> None:
    """They get equal parts; who comes last gets nearly as much."""
    budget = Budget(LIMIT)
    greedy = [budget.account() for _ in range(many)]
    _take_all(greedy, piece)
    parts = [account.held for account in greedy]
    assert max(parts) - min(parts) <= 2 * piece
    assert budget.account().room >= (budget.limit // (many + SHARE) - piece) // 2


def _take_all(accounts: list[Account], piece: int) -> None:
    hungry = accounts
    while hungry:
        for account in hungry:
            if account.room >= piece:
                account.hold(piece)
        hungry = [account for account in hungry if account.room >= piece]


def test_alone_an_account_has_its_share() -> None:
    """And not a byte more."""
    budget = Budget(LIMIT)
    account = budget.account()
    with account.hold(budget.share):
        assert account.room == 0
        with pytest.raises(OperationError, match="OVERLOADED"):
            account.hold(1)
    assert budget.refusals == 1
    assert account.room == budget.share


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 900)), min_size=1, max_size=8))
def test_nothing_leaks_when_tasks_are_cancelled(plan: list[tuple[int, int]]) -> None:
    """Wherever they were: before, within, between two sizes, or done."""
    budget = Budget(LIMIT)

    async def work(account: Account, size: int) -> None:
        with account.hold(size) as held:
            await trio.lowlevel.checkpoint()
            held.resize(2 * size)
            await trio.lowlevel.checkpoint()
            held.grow(size)
            await trio.sleep_forever()

    async def connection(ends_after: int, sizes: list[int]) -> None:
        with budget.account() as account:
            account.hold(10)  # kept by whoever forgot it
            async with trio.open_nursery() as nursery:
                for size in sizes:
                    nursery.start_soon(work, account, size)
                for _ in range(ends_after):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()

    async def main() -> Any:
        async with trio.open_nursery() as nursery:
            for ends_after, size in plan:
                nursery.start_soon(connection, ends_after, [size, size // 2, 1])

    try:
        trio.run(main)
    except* OperationError:
        pass
    assert budget.held == 0
