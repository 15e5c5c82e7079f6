"""Which blocks of a prompt are handed over."""

from __future__ import annotations

import pytest
from baton_vllm.layout import Group

IDS = [10, 11, 12, 13, 14, 15]


@pytest.mark.parametrize(
    ("window", "tokens", "needed"),
    [
        (None, 1, [10]),
        (None, 16, [10]),
        (None, 17, [10, 11]),
        (None, 96, IDS),
        (32, 16, [10]),
        # Token 32 is the last; it looks at 1 to 32.
        (32, 33, [10, 11, 12]),
        # Token 46 looks at 15 to 46, token 47 at 16 to 47.
        (32, 47, [10, 11, 12]),
        (32, 48, [11, 12]),
        (32, 80, [13, 14]),
    ],
)
def test_the_blocks_that_the_last_token_looks_at(
    window: int | None, tokens: int, needed: list[int]
) -> None:
    group = Group(16, window)
    assert group.needed(IDS, tokens) == needed
    assert group.needed_count(tokens) == len(needed)
    assert group.wanted(IDS, tokens, 0) == needed


@pytest.mark.parametrize(
    ("window", "have", "wanted"),
    [
        (None, 16, [11, 12, 13, 14]),
        (None, 64, [14]),
        (None, 80, []),
        (32, 16, [13, 14]),
        (32, 64, [14]),
    ],
)
def test_only_what_is_not_there(
    window: int | None, have: int, wanted: list[int]
) -> None:
    assert Group(16, window).wanted(IDS, 80, have) == wanted
