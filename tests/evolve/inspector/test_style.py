"""Colours can be read: WCAG 2.2 AA, 4.5 : 1 for text, in both schemes; pages can be used by keyboard and by ear.

The ratio is that of WCAG (relative luminance of sRGB); axe-like checks of structure are made on the templates' output.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.evolve.inspector.conftest import Visitor
from tests.evolve.inspector.test_pages import PATHS

PAIRS = [
    *(("ink", "paper"), ("ink", "band"), ("soft", "paper"), ("soft", "band"), ("accent", "paper"), ("accent", "band")),
    *(("paper", "accent"), ("bad", "paper"), ("good", "good-band"), ("bad", "bad-band"), ("new", "new-band")),
    *(("ink", "new-band"), ("ink", "line"), ("ink", "good-band"), ("ink", "bad-band")),
]


def luminance(colour: str) -> float:
    """Return the relative luminance of `#rgb` or `#rrggbb`."""
    digits = colour.lstrip("#")
    digits = "".join(2 * each for each in digits) if len(digits) == 3 else digits
    channels = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return the ratio of two colours, from 1 to 21."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_ratio_is_that_of_wcag() -> None:
    assert contrast("#000", "#fff") == pytest.approx(21)
    assert contrast("#777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), PAIRS)
def test_text_can_be_read(text: str, ground: str, scheme: int, root: Path) -> None:
    css = (root / "evolve" / "inspector" / "static" / "app.css").read_text()
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]+);", re.findall(r":root \{(.*?)\}", css, re.DOTALL)[scheme]))
    assert contrast(colours[text], colours[ground]) >= 4.5


@pytest.mark.parametrize("path", PATHS)
def test_pages_can_be_used_without_a_mouse_and_without_eyes(path: str, visitor: Visitor) -> None:
    page = visitor.text(path)
    assert '<html lang="en">' in page
    assert page.count("<h1") == page.count("<main") == 1
    assert 'class="skip" href="#main"' in page
    for control in re.findall(r"<(?:input|select|textarea)\b[^>]*>", page):
        labelled = 'type="hidden"' in control or re.search(rf"<label>[^<]*{re.escape(control)}", page)
        assert labelled, control
    assert all("aria-label" in chart for chart in re.findall(r'<div class="chart"[^>]*>', page))
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
