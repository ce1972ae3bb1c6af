// Follows the journal, draws the charts, and lets the review queue be worked through by keyboard.
"use strict";

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function draw(place) {
  const given = JSON.parse(place.dataset.chart);
  const colours = [css("--line-1"), css("--line-2"), css("--soft"), css("--bad")];
  const whole = (values) => values.every((value) => value == null || Number.isInteger(value));
  const counted = given.unit !== "%" && given.series.every((line) => whole(line.y));
  const series = given.series.map((line, at) => ({
    label: line.label, stroke: colours[at % colours.length], width: 2, dash: at ? [6, 4] : undefined,
    spanGaps: given.joined, points: { show: given.joined || line.y.filter((value) => value != null).length < 2 },
    value: (_, value) => (value == null ? "-" : value.toPrecision(3) + (given.unit ? " " + given.unit : "")),
  }));
  const axis = { stroke: css("--soft"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line") } };
  const counts = { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1e5, 1e6] };  // no task 1.5
  const percent = given.unit === "%";
  place.replaceChildren();
  const plot = new uPlot({
    title: given.title + (given.unit ? ", " + given.unit : ""), width: Math.max(place.clientWidth, 240), height: 220,
    scales: { x: { time: false }, y: percent ? { range: [0, 102] } : counted ? { range: (_, __, most) => [0, most + 0.5] } : {} },
    series: [{ label: "number" }, ...series],
    axes: [whole(given.x) ? { ...axis, ...counts } : axis, { ...axis, size: 56, ...(counted ? counts : {}) }],
  }, [given.x, ...given.series.map((line) => line.y)], place);
  place._plot = plot;
}

const drawAll = (root) => root.querySelectorAll(".chart[data-chart]").forEach(draw);

addEventListener("resize", () => document.querySelectorAll(".chart").forEach((place) => {
  if (place._plot) place._plot.setSize({ width: Math.max(place.clientWidth, 240), height: 220 });
}));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(document));

function busy() {
  const at = document.activeElement;
  return Boolean(document.querySelector("#live details[open], #live input:checked, #live :popover-open")) ||
    (at && at.closest("#live") && at.matches("input, textarea, select, article, article *"));
}

// A browser keeps six connections to a host for all its tabs: only the tab that is looked at listens.
function follow(pulse) {
  let source = listen(pulse);
  document.addEventListener("visibilitychange", () => {
    source.close();
    if (!document.hidden) { source = listen(pulse); document.body.dispatchEvent(new Event("journal")); }
  });
  addEventListener("pagehide", () => source.close());
  addEventListener("pageshow", (event) => { if (event.persisted) source = listen(pulse); });
}

function listen(pulse) {
  const source = new EventSource("/live");
  source.onopen = () => { pulse.textContent = "live"; pulse.classList.remove("off"); };
  source.onerror = () => { pulse.textContent = "not connected"; pulse.classList.add("off"); };
  source.addEventListener("journal", (event) => {
    document.body.dataset.journal = event.data;
    if (busy()) pulse.textContent = "changed: reload to see";
    else document.body.dispatchEvent(new Event("journal"));
  });
  return source;
}

function step(by) {
  const changes = [...document.querySelectorAll("article.change[tabindex]")];
  const at = changes.indexOf(document.activeElement?.closest("article.change"));
  const next = changes[Math.min(Math.max(at + by, 0), changes.length - 1)];
  if (next) { next.focus(); next.scrollIntoView({ block: "nearest" }); }
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=checkbox]), textarea, select")) return;
  if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else {
    const change = document.activeElement?.closest("article.change");
    const does = change?.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    if (!does) return;
    if (does.matches("input")) does.click();
    else if (does.matches("details")) { does.open = true; does.querySelector("textarea").focus(); event.preventDefault(); }
    else does.click();
  }
});

// A word of ours: its explanation opens beside it, and while the pointer rests on it.
function explain(word) {
  const place = document.getElementById(word.getAttribute("popovertarget"));
  if (!place?.showPopover) return null;
  if (!place.matches(":popover-open")) place.showPopover();
  return place;
}

function beside(place, word) {
  const at = word.getBoundingClientRect(), room = document.documentElement.clientWidth - place.offsetWidth - 8;
  const below = at.bottom + 6, fits = below + place.offsetHeight < innerHeight;
  place.style.left = `${Math.max(8, Math.min(at.left, room))}px`;
  place.style.top = `${fits ? below : Math.max(8, at.top - place.offsetHeight - 6)}px`;
}

addEventListener("toggle", (event) => {
  const place = event.target;
  if (event.newState !== "open" || !place.matches?.(".meaning")) return;
  const words = [...document.querySelectorAll(`.term[popovertarget="${CSS.escape(place.id)}"]`)];
  beside(place, words.find((word) => word === document.activeElement || word.matches(":hover")) ?? words[0]);
}, true);
addEventListener("mouseover", (event) => {
  const word = event.target.closest?.(".term");
  const place = word && explain(word);
  if (place) word.addEventListener("mouseleave", () => { if (document.activeElement !== word) place.hidePopover(); }, { once: true });
});

addEventListener("submit", (event) => {
  const question = event.target.dataset.confirm;
  if (question && !confirm(question)) event.preventDefault();
});

addEventListener("DOMContentLoaded", () => {
  const pulse = document.getElementById("pulse");
  if (pulse) follow(pulse);
  drawAll(document);
});
addEventListener("htmx:afterSwap", () => drawAll(document));
addEventListener("hashchange", () => { drawAll(document); scrollTo(0, 0); });  // in an exported file
