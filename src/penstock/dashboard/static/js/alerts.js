// What needs attention: tubes without consumers, buried jobs, a full memory or disk, a node that is away.

import { h, root, setText } from "./dom.js";
import { plural } from "./format.js";
import { shown, tubeHref } from "./names.js";

const SHOWN = 3;

/** Return {element, update(list)}. An alert is {level, code, message, tube}. Alerts that stay keep their elements. */
export function alertList() {
  const list = h("div", { class: "alerts", role: "status" });
  const more = h("button", { type: "button", class: "button plain small", "aria-expanded": "false", hidden: true, onclick: () => {
    isOpen = !isOpen;
    more.setAttribute("aria-expanded", String(isOpen));
    limit();
  } });
  const places = new Map();
  let isOpen = false;
  const limit = () => {
    const all = [...places.values()];
    all.forEach(({ element }, at) => (element.hidden = !isOpen && at >= SHOWN));
    more.hidden = all.length <= SHOWN;
    setText(more, isOpen ? "Show fewer alerts" : `Show ${plural(all.length - SHOWN, "more alert")}`);
  };
  const update = (alerts) => {
    const seen = new Set();
    for (const alert of alerts) {
      const key = `${alert.code} ${alert.tube ?? ""}`;
      seen.add(key);
      let place = places.get(key);
      if (!place) {
        const text = h("span", {});
        place = { text, element: h("div", {}, text, h("a", { href: hrefOf(alert), "aria-label": `${alert.message}: show` }, "Show")) };
        places.set(key, place);
        list.append(place.element);
      }
      place.element.className = `alert ${alert.level === "critical" ? "bad" : "warn"}`;
      setText(place.text, shown(alert.message, 300));
    }
    for (const [key, place] of places) {
      if (seen.has(key)) continue;
      place.element.remove();
      places.delete(key);
    }
    limit();
  };
  return { element: h("div", { class: "alert-block" }, list, more), update };
}

function hrefOf({ code, tube }) {
  if (tube === undefined || tube === null) return `${root}/settings`;
  return code === "BURIED" ? `${root}/buried?${new URLSearchParams({ tube })}` : tubeHref(tube);
}
