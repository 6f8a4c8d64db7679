// Live charts: lines, stacked areas and sparklines as SVG. A chart redraws its paths in place and never replaces its
// elements, so focus stays. The pointer and the arrow keys move a line that shows the values of a moment.

import { h, s, setAttribute, setText } from "./dom.js";
import { rateText, timeText } from "./format.js";
import { durationScale, linearScale, timeTicks } from "./scales.js";

const HEIGHT = 172;
const TOP = 8;
const PLOT = 136;
const LEFT = 46;
// Points that are further apart are not connected.
const GAP_MS = 8000;

/**
 * A chart over time.
 *
 * `series` is a list of {label, colour, dash}. `kind` is "lines" or "stacked". `scale` is "count" or "duration" (ms).
 * `push(ms, values)` adds one value per series; null is a gap.
 */
export class TimeChart {
  constructor({ title, series, kind = "lines", scale = "count", text = rateText, spanMs = 300000 }) {
    Object.assign(this, { title, series, kind, scale, text, spanMs, points: [], at: null, waiting: false });
    this.values = series.map(() => h("b", {}, "–"));
    const legend = h("ul", { class: "legend" }, series.map((each, number) =>
      h("li", { class: `c-${each.colour}` }, h("span", { class: "what" }, each.label), this.values[number])));
    this.rules = s("g");
    this.paths = series.map((each) =>
      s("path", { class: `c-${each.colour}${kind === "stacked" ? " area" : ""}`, "stroke-dasharray": each.dash ? "5 4" : null }));
    this.plot = s("svg", { class: "plot", x: LEFT, y: TOP, height: PLOT, viewBox: "0 0 1000 100", preserveAspectRatio: "none" }, this.paths);
    this.cross = s("line", { class: "cross", y1: TOP, y2: TOP + PLOT, visibility: "hidden" });
    this.svg = s("svg", { height: HEIGHT, "aria-hidden": "true" }, this.rules, this.plot, this.cross);
    this.tip = h("div", { class: "tip", hidden: true });
    this.figure = h("div", { class: "chart", tabindex: "0", role: "img", "aria-label": title }, this.svg, this.tip);
    this.element = h("figure", {}, legend, this.figure);
    this.figure.addEventListener("pointermove", (event) => this.#point(event));
    this.figure.addEventListener("pointerleave", () => this.#show(null));
    this.figure.addEventListener("keydown", (event) => this.#key(event));
    this.figure.addEventListener("blur", () => this.#show(null));
    new ResizeObserver(() => this.#soon()).observe(this.figure);
  }

  push(ms, values) {
    const last = this.points.at(-1);
    if (last && ms <= last.ms) return;
    this.points.push({ ms, values });
    while (this.points.length > 2 && this.points[1].ms < ms - this.spanMs) this.points.shift();
    this.#soon();
  }

  /** Redraw, for example because the clock now shows UTC. */
  redraw() {
    this.#soon();
  }

  #soon() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.#draw();
    });
  }

  #draw() {
    const width = this.figure.clientWidth;
    const newest = this.points.at(-1);
    if (!width) return;
    this.end = newest ? newest.ms : Date.now();
    // A new chart starts with a minute, and grows to its full span.
    const known = newest ? this.end - this.points[0].ms : 0;
    this.shownMs = Math.min(this.spanMs, Math.max(60000, Math.ceil(known / 30000) * 30000));
    this.start = this.end - this.shownMs;
    const stacked = this.kind === "stacked";
    const all = stacked
      ? this.points.map(({ values }) => values.reduce((sum, value) => sum + (value ?? 0), 0))
      : this.points.flatMap(({ values }) => values);
    const scale = this.scale === "duration" ? durationScale(all) : linearScale(all);
    setAttribute(this.plot, "width", Math.max(1, width - LEFT));
    this.#drawRules(scale, width);
    const x = ({ ms }) => (1000 * (ms - this.start)) / this.shownMs;
    const y = (value) => 100 * (1 - scale.place(value));
    const floor = this.points.map(() => 0);
    this.paths.forEach((path, number) => {
      setAttribute(path, "d", stacked ? this.#area(number, x, y, floor) : this.#line(number, x, y));
      const value = newest?.values[number];
      setText(this.values[number], value === null || value === undefined ? "–" : this.text(value));
    });
    const now = this.series.map((each, number) => `${each.label} ${this.values[number].textContent}`).join(", ");
    setAttribute(this.figure, "aria-label", `${this.title}: ${now}`);
    if (this.at !== null) this.#show(this.at);
  }

  #drawRules(scale, width) {
    const marks = [];
    for (const [place, label] of scale.ticks) {
      const y = Math.round(TOP + PLOT * (1 - place)) + 0.5;
      marks.push(["rule", LEFT, y, width, y, label, LEFT - 8, y + 4, "end"]);
    }
    let free = 0;
    for (const [place, label] of timeTicks(this.start, this.end)) {
      const x = LEFT + place * (width - LEFT);
      // Labels must not overlap. They are up to 56 pixels wide.
      if (x < free || x > width) continue;
      free = x + 64;
      const anchor = x > width - 28 ? "end" : x < LEFT + 16 ? "start" : "middle";
      marks.push(["tick", x, TOP + PLOT, x, TOP + PLOT + 5, label, x, TOP + PLOT + 20, anchor]);
    }
    while (this.rules.childElementCount < marks.length * 2) this.rules.append(s("line"), s("text"));
    while (this.rules.childElementCount > marks.length * 2) this.rules.lastChild.remove();
    marks.forEach(([name, x1, y1, x2, y2, label, x, y, anchor], at) => {
      const line = this.rules.children[2 * at];
      const text = this.rules.children[2 * at + 1];
      for (const [key, value] of Object.entries({ class: name, x1, y1, x2, y2 })) setAttribute(line, key, value);
      for (const [key, value] of Object.entries({ x, y, "text-anchor": anchor })) setAttribute(text, key, value);
      setText(text, label);
    });
  }

  #line(number, x, y) {
    let path = "";
    let open = false;
    let last = 0;
    for (const point of this.points) {
      const value = point.values[number];
      // The page was left, or the node did not answer.
      if (point.ms > last + GAP_MS) open = false;
      last = point.ms;
      if (value === null || value === undefined) open = false;
      else {
        path += `${open ? "L" : "M"}${x(point).toFixed(1)} ${y(value).toFixed(1)}`;
        if (!open) path += "h0";
        open = true;
      }
    }
    return path;
  }

  #area(number, x, y, floor) {
    const low = floor.slice();
    this.points.forEach(({ values }, at) => (floor[at] += values[number] ?? 0));
    if (!this.points.length) return "";
    const edge = (heights) => this.points.map((point, at) => `${x(point).toFixed(1)} ${y(heights[at]).toFixed(1)}`);
    return `M${edge(floor).join("L")}L${edge(low).reverse().join("L")}Z`;
  }

  #point(event) {
    const box = this.figure.getBoundingClientRect();
    const ms = this.start + ((event.clientX - box.left - LEFT) / (box.width - LEFT)) * this.shownMs;
    const near = this.points.reduce((best, point, at) =>
      (best === null || Math.abs(point.ms - ms) < Math.abs(this.points[best].ms - ms) ? at : best), null);
    this.#show(near === null ? null : this.points[near].ms);
  }

  #key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") this.#show(null);
    if (!step || !this.points.length) return;
    event.preventDefault();
    const here = this.at === null ? this.points.length : this.points.findIndex(({ ms }) => ms >= this.at);
    this.#show(this.points[Math.min(this.points.length - 1, Math.max(0, here + step))].ms);
  }

  /** Show the values of the point at a time, or hide them. */
  #show(ms) {
    const point = ms === null ? undefined : this.points.find((each) => each.ms >= ms);
    this.at = point ? point.ms : null;
    this.tip.hidden = !point;
    setAttribute(this.cross, "visibility", point ? "visible" : "hidden");
    if (!point) return;
    const width = this.figure.clientWidth;
    const x = LEFT + ((point.ms - this.start) / this.shownMs) * (width - LEFT);
    setAttribute(this.cross, "x1", x);
    setAttribute(this.cross, "x2", x);
    this.tip.replaceChildren(
      h("div", { class: "muted" }, timeText(point.ms, true)),
      ...this.series.map((each, number) => {
        const value = point.values[number];
        return h("div", {}, h("span", {}, each.label), h("b", {}, value === null || value === undefined ? "–" : this.text(value)));
      }),
    );
    // The values stand on the side with more room.
    this.tip.style.left = x < width / 2 ? `${x + 12}px` : "auto";
    this.tip.style.right = x < width / 2 ? "auto" : `${width - x + 12}px`;
  }
}

/** A small chart of one or two series in a table cell, as {element, push(values)}. It keeps the last `count` values. */
export class Sparkline {
  constructor(label, lines = 1, count = 60) {
    this.count = count;
    this.points = Array.from({ length: lines }, () => []);
    this.paths = this.points.map((_, at) => s("path", { class: at ? "out" : null }));
    this.element = s("svg", { class: "spark", viewBox: `0 0 ${count - 1} 20`, preserveAspectRatio: "none", role: "img", "aria-label": label }, this.paths);
  }

  push(values) {
    this.points.forEach((line, at) => {
      line.push(values[at] ?? 0);
      if (line.length > this.count) line.shift();
    });
    const most = Math.max(1, ...this.points.flat());
    this.points.forEach((line, at) => {
      const first = this.count - line.length;
      const path = line.map((value, step) => `${first + step} ${(19.5 - (19 * value) / most).toFixed(1)}`).join("L");
      setAttribute(this.paths[at], "d", line.length > 1 ? `M${path}` : null);
    });
  }
}

/** Return a bar of a share between 0 and 1, with an accessible name. */
export function meter(share, label) {
  const level = share > 0.9 ? " bad" : share > 0.75 ? " warn" : "";
  return h("div", { class: `meter${level}`, role: "img", "aria-label": label },
    s("svg", { viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
      s("rect", { width: Math.min(100, Math.max(share > 0 ? 1 : 0, share * 100)), height: 6 })));
}

/** Return horizontal bars as a table: rows of {label, value, text}. */
export function barTable(caption, rows, second = false) {
  const most = Math.max(1, ...rows.map(({ value }) => value));
  return h("table", { class: "bars" }, h("caption", { class: "only-read" }, caption),
    h("tbody", {}, rows.map(({ label, value, text }) =>
      h("tr", {}, h("th", { scope: "row" }, label), h("td", { class: "number" }, text),
        h("td", { class: "length", "aria-hidden": "true" },
          s("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none" },
            s("rect", { class: second ? "second" : null, width: (100 * value) / most, height: 10 })))))));
}
