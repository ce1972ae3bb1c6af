"""The settings of the gates' decisions: what is outside of its range is refused, and nothing inside is."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from evolve.gates import ablation_rules, held_out_rules, online_ab, utility

OPEN = (0.001, 0.5, 0.999)
SETTINGS: list[tuple[Any, str, tuple[float, ...], tuple[float, ...]]] = [
    (lambda **given: ablation_rules.Rules(exact=True, **given), "level", OPEN, (0, 1)),
    (held_out_rules.Rules, "alpha", OPEN, (0, 1)),
    (held_out_rules.Rules, "error", OPEN, (0, 1)),
    (held_out_rules.Rules, "min_delta", (0, *OPEN), (-0.001, 1)),
    (held_out_rules.Rules, "cap", (0, *OPEN, 1), (-0.001, 1.001)),
    (held_out_rules.Rules, "first", (1, 2), (0,)),
    (held_out_rules.Rules, "enough", (1, 2), (0,)),
    (online_ab.Rules, "probability", (0.001, 0.2, 0.25), (0, 0.251)),
    (online_ab.Rules, "alpha", OPEN, (0, 1)),
    (online_ab.Rules, "harm_alpha", OPEN, (0, 1)),
    (online_ab.Rules, "patience", (1, 2), (0,)),
    (utility.Rules, "alpha", OPEN, (0, 1)),
]


@pytest.mark.parametrize(("rules", "field", "inside", "outside"), SETTINGS)
def test_a_setting_is_taken_inside_its_range_and_refused_outside(
    rules: Any, field: str, inside: tuple[float, ...], outside: tuple[float, ...]
) -> None:
    for value in inside:
        assert getattr(rules(**{field: value}), field) == value
    for value in outside:
        with pytest.raises(ValidationError, match=field):
            rules(**{field: value})
