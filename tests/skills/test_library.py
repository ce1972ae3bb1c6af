"""The library by name: closures, the prelude, and overlays that their base never notices."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from memory.errors import BadInput, NotFound
from memory.records import Provenance, Record, Status
from skills.library import Library
from skills.record import Skill
from skills.sandbox.monty import shared

Kept = Callable[..., Record[Skill]]
SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@st.composite
def graphs(draw: st.DrawFn) -> Mapping[str, tuple[str, ...]]:
    """Names with what each requires, without a circle: a name requires later ones only."""
    names = [f"f{at}" for at in range(draw(st.integers(1, 8)))]
    later = {name: names[at + 1 :] for at, name in enumerate(names)}
    return {name: tuple(sorted(draw(st.sets(st.sampled_from(more))))) if more else () for name, more in later.items()}


def made(skill: Kept, graph: Mapping[str, tuple[str, ...]]) -> Library:
    return Library(skill(at + 1, name, *calls) for at, (name, calls) in enumerate(graph.items()))


def named(records: tuple[Record[Skill], ...]) -> list[str]:
    return [record.payload.name for record in records]


def test_only_skills_in_use_are_in_the_library(skill: Kept) -> None:
    states = {status: skill(at, f"f_{status}", status=status) for at, status in enumerate(Status)}
    assert Library(states.values()).names == ("f_provisional", "f_active")


def test_the_newer_of_two_skills_with_one_name_is_in_use_and_this_is_said(skill: Kept) -> None:
    new, old = skill(7, "pay"), skill(2, "pay", summary="pay badly")
    library = Library([new, skill(3, "ask"), old])
    assert library.get("pay") is new
    assert library.names == ("ask", "pay")
    assert library.hidden == ("skill-00002 is hidden by the newer skill-00007: both are named pay",)


def test_an_unknown_name_is_refused_with_the_near_ones(skill: Kept) -> None:
    library = Library([skill(1, "send_mail"), skill(2, "pay")])
    with pytest.raises(NotFound, match=r"no skill 'send_mial' in use; did you mean send_mail\?"):
        library.get("send_mial")
    with pytest.raises(NotFound, match="the library is empty"):
        Library().get("pay")


@SHARED
@given(graph=graphs(), data=st.data())
def test_a_closure_is_complete_minimal_and_has_callees_first(
    skill: Kept, graph: Mapping[str, tuple[str, ...]], data: st.DataObject
) -> None:
    asked = data.draw(st.lists(st.sampled_from(sorted(graph))))
    found = named(made(skill, graph).closure(asked))
    assert len(found) == len(set(found))
    for at, name in enumerate(found):
        assert set(graph[name]) <= set(found[:at])
        assert name in asked or any(name in graph[other] for other in found)
    assert set(asked) <= set(found)


@SHARED
@given(graph=graphs())
def test_a_prelude_defines_every_function_to_the_byte(skill: Kept, graph: Mapping[str, tuple[str, ...]]) -> None:
    library = made(skill, graph)
    code = library.prelude(library.names)
    segments = {node.name: ast.get_source_segment(code, node) for node in ast.parse(code).body}  # type: ignore
    assert segments == {record.payload.name: record.payload.definition for record in library.records}


def test_a_circle_is_refused_and_named_as_it_calls(skill: Kept) -> None:
    library = Library([skill(1, "a", "b"), skill(2, "b", "c"), skill(3, "c", "a"), skill(4, "d")])
    with pytest.raises(BadInput, match="circle: ") as refused:
        library.closure(["d", "a"])
    circle = str(refused.value).partition("circle: ")[2].partition(";")[0].split(" -> ")
    assert circle[0] == circle[-1]
    assert all(after in library.get(before).payload.requires for before, after in pairwise(circle))


def test_a_missing_requirement_is_named_with_who_needs_it(skill: Kept) -> None:
    with pytest.raises(NotFound, match="skill 'a' requires 'b', which is not in use"):
        Library([skill(1, "a", "b"), skill(2, "b", status=Status.RETIRED)]).closure(["a"])


def test_a_prelude_has_shared_imports_once_and_runs_in_the_sandbox(skill: Kept) -> None:
    root = "import math\n\ndef root(x: float) -> float:\n    y = x  # kept\n    return math.sqrt( y )\n"
    area = "import math\nimport json\n\ndef area(x: float) -> str:\n    return json.dumps(math.floor(root(x)))\n"
    library = Library([skill(1, source=area, requires=("root",)), skill(2, source=root)])
    code = library.prelude(["area"])
    assert code.count("import math") == 1
    assert "    y = x  # kept\n    return math.sqrt( y )\n" in code
    session = shared().session({})
    assert session.run(code).error is None
    assert session.run("print(area(17.0))").stdout == "4\n"
    session.close()
    assert Library().prelude([]) == "\n"


def test_imports_that_fight_over_a_name_are_refused(skill: Kept) -> None:
    one = "import datetime\ndef one() -> int:\n    return datetime.date.today().year\n"
    two = "from datetime import datetime\ndef two() -> int:\n    return datetime.now().year\n"
    library = Library([skill(1, source=one), skill(2, source=two), skill(3, "datetime")])
    assert library.prelude(["one"])
    for names in (["one", "two"], ["two", "datetime"]):
        with pytest.raises(BadInput, match="as 'datetime', which is"):
            library.prelude(names)


def test_who_requires_a_skill(skill: Kept) -> None:
    library = Library([skill(1, "a", "c"), skill(2, "b", "c"), skill(3, "c")])
    assert (library.required_by("c"), library.required_by("a")) == (("a", "b"), ())


@SHARED
@given(data=st.data())
def test_an_overlay_never_changes_its_base_nor_another_overlay(skill: Kept, data: st.DataObject) -> None:
    base = made(skill, {"f0": ("f1",), "f1": (), "f2": ()})
    before, witness = base.records, base.overlay()
    overlay = base.overlay()
    do = {"save": overlay.save, "update": overlay.update, "delete": lambda payload: overlay.delete(payload.name)}
    names = st.sampled_from(["f0", "f1", "f2", "g"])
    for act, name, call in data.draw(st.lists(st.tuples(st.sampled_from(sorted(do)), names, names), max_size=8)):
        calls = () if call == name else (call,)
        with suppress(BadInput, NotFound):
            do[act](skill(0, name, *calls, summary="local").payload)
    assert base.records == before
    assert witness.records == before
    overlay.closure(overlay.names)


def test_an_overlay_saves_updates_and_deletes(skill: Kept) -> None:
    base = Library([skill(1, "a"), skill(2, "b", "a")])
    overlay = base.overlay()
    saved = overlay.save(skill(0, "c", "b").payload, Provenance(task_ids=("t",)))
    assert (saved.version, saved.number, saved.provenance.task_ids) == (1, 0, ("t",))
    updated = overlay.update(skill(0, "a", summary="better").payload)
    assert (updated.id, updated.number, updated.version) == ("record-1", 1, 2)
    assert named(overlay.closure(["c"])) == ["a", "b", "c"]
    with pytest.raises(BadInput, match="skill 'b' is required by c"):
        overlay.delete("b")
    overlay.delete("c")
    overlay.delete("b")
    assert overlay.records == (updated,)
    assert base.names == ("a", "b")


def test_an_overlay_refuses_what_would_break_it_and_stays_as_it_was(skill: Kept) -> None:
    overlay = Library([skill(1, "a"), skill(2, "b", "a")]).overlay()
    before = overlay.records
    with pytest.raises(BadInput, match="there is a skill 'a' already"):
        overlay.save(skill(0, "a").payload)
    with pytest.raises(NotFound, match="requires 'x'"):
        overlay.save(skill(0, "c", "x").payload)
    with pytest.raises(BadInput, match="circle"):
        overlay.update(skill(0, "a", "b").payload)
    with pytest.raises(NotFound, match="no skill 'd'"):
        overlay.update(skill(0, "d").payload)
    assert overlay.records == before


def test_the_same_function_saved_in_two_chains_has_one_id(skill: Kept) -> None:
    base = Library()
    first, second = (base.overlay().save(skill(0, "a").payload) for _ in range(2))
    assert first.id == second.id


def test_a_decorated_function_is_no_skill() -> None:
    with pytest.raises(ValueError, match="no decorators; got @cache"):
        Skill(source="@cache\ndef f() -> int:\n    return 1\n")


@pytest.mark.parametrize("source", ["def f(x: int) -> int:\n    return {}\n", "@{}\ndef f() -> int:\n    return 1\n"])
@pytest.mark.parametrize("operands", [200, 1900])
def test_a_function_that_is_nested_too_deep_is_no_skill(source: str, operands: int) -> None:
    with pytest.raises(ValidationError, match="nested at most 150 levels deep; take it apart"):
        Skill(source=source.format(" + ".join(["x"] * operands)))
