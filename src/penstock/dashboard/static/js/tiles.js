// Tiles: a label, a number and a note each. A tick changes their texts only.

import { h, setText } from "./dom.js";

/** Return {element, update(name, value, more, alarm)}. `list` has {name, label, dot, href}. */
export function tiles(list) {
  const places = {};
  const element = h("div", { class: "tiles" }, list.map(({ name, label, dot, href }) => {
    const value = h("span", { class: "value" }, "–");
    const more = h("span", { class: "more" });
    const tile = h(href ? "a" : "div", { class: "tile", href }, h("span", { class: "label" }, dot && h("span", { class: `dot ${dot}` }), label), value, more);
    places[name] = { tile, value, more };
    return tile;
  }));
  const update = (name, value, more = "", alarm = false) => {
    const place = places[name];
    setText(place.value, value);
    place.value.classList.toggle("long", String(value).length > 7);
    setText(place.more, more);
    place.tile.classList.toggle("alarm", alarm);
  };
  return { element, update };
}

/** Return a definition list of [label, text or node] with {element, update(list)}. Rows are changed in place. */
export function facts(list = []) {
  const element = h("dl", { class: "facts" });
  const places = new Map();
  const update = (rows) => {
    for (const [label, value] of rows) {
      if (value === undefined || value === null || value === "") continue;
      let place = places.get(label);
      if (!place) {
        place = h("dd");
        places.set(label, place);
        element.append(h("dt", {}, label), place);
      }
      if (value instanceof Node) place.replaceChildren(value);
      else setText(place, value);
    }
  };
  update(list);
  return { element, update };
}
