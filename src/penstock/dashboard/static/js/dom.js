// Elements. Text becomes a text node always, so a name of a tube can never become markup.

const SVG = "http://www.w3.org/2000/svg";

/** Return an HTML element. `attributes` with `on…` names are listeners. Children are nodes, texts or nothing. */
export const h = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);

/** Return an SVG element. */
export const s = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(3).filter((child) => child !== undefined && child !== null && child !== false && child !== ""));
  return element;
}

export const $ = (selector, within = document) => within.querySelector(selector);
export const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

/** Set the text of an element if it has changed. The text node stays, so a selection in it stays. */
export function setText(element, text) {
  text = String(text);
  const node = element.firstChild;
  if (node && node.nodeType === Node.TEXT_NODE && !node.nextSibling) {
    if (node.data !== text) node.data = text;
  } else if (element.textContent !== text || element.firstElementChild) {
    element.textContent = text;
  }
}

/** Set or remove an attribute if it has changed. */
export function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** Return an icon of the sprite that each page contains. */
export const icon = (name) => s("svg", { class: "icon", "aria-hidden": "true" }, s("use", { href: `#i-${name}` }));

/** The prefix under which the application is mounted, without a slash at the end. */
export const root = document.documentElement.dataset.root || "";
