// Tables whose rows are updated in place. A row keeps its elements for as long as it is listed, so a tick changes only
// texts: focus and selections stay. Rows are put in order only while nobody works with the table.

import { h, setAttribute, setText } from "./dom.js";

/**
 * A column: {id, label, text(row), number, sort(row), link(row), make(), second, className(row), hint}.
 *
 * `text` returns the text of the cell. `link` returns an address. `make(row)` returns {element, update(row)} for other
 * content. `sort` returns the value by which rows are ordered; without it, the column cannot be sorted.
 */
export class LiveTable {
  constructor({ caption, columns, key, sort = "", descending = true, onSort, rowsMax = 2000, select }) {
    Object.assign(this, { columns: columns.filter(Boolean), key, sort, descending, onSort, rowsMax, select, rows: new Map(), selected: new Set() });
    this.heads = this.columns.map((column) => this.#head(column));
    const boxes = select ? [h("th", { class: "tight", scope: "col" }, (this.all = this.#box("Select all rows")))] : [];
    this.body = h("tbody");
    this.table = h("table", {}, h("caption", { class: "only-read" }, caption), h("thead", {}, h("tr", {}, boxes, this.heads)), this.body);
    this.element = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, this.table);
    this.all?.addEventListener("change", () => this.#selectAll(this.all.checked));
    this.#showSort();
  }

  #box(label) {
    return h("input", { type: "checkbox", "aria-label": label });
  }

  #head(column) {
    const names = [column.number && "number", column.second && "second", column.tight && "tight"].filter(Boolean).join(" ");
    const label = column.sort
      ? h("button", { class: "sort", type: "button", title: column.hint, onclick: () => this.#sortBy(column.id) }, column.label)
      : column.label;
    return h("th", { scope: "col", class: names || null, title: column.sort ? null : column.hint }, label || h("span", { class: "only-read" }, column.name ?? column.id));
  }

  #sortBy(id) {
    this.descending = this.sort === id ? !this.descending : Boolean(this.columns.find((column) => column.id === id).number);
    this.sort = id;
    this.#showSort();
    this.#order(true);
    this.onSort?.(id, this.descending);
  }

  #showSort() {
    this.columns.forEach(({ id }, at) =>
      setAttribute(this.heads[at], "aria-sort", id === this.sort ? (this.descending ? "descending" : "ascending") : null));
  }

  /** Show these rows. Rows that are not among them are removed, unless `add` is true. */
  update(list, { add = false } = {}) {
    const seen = new Set();
    let changed = false;
    for (const data of list) {
      const key = this.key(data);
      seen.add(key);
      const row = this.rows.get(key);
      if (row) {
        row.data = data;
        this.#fill(row);
      } else if (this.rows.size < this.rowsMax) {
        this.rows.set(key, this.#make(data, key));
        changed = true;
      }
    }
    if (!add) {
      for (const [key, row] of this.rows) {
        if (seen.has(key)) continue;
        row.element.remove();
        this.rows.delete(key);
        if (this.selected.delete(key)) this.select?.(this.selectedRows());
      }
    }
    this.#order(changed);
  }

  clear() {
    this.update([]);
  }

  selectedRows() {
    return [...this.selected].map((key) => this.rows.get(key)?.data).filter(Boolean);
  }

  /** Return what is shown, for an export: a list of objects by the names of the columns. */
  records() {
    const columns = this.columns.filter((column) => column.text);
    return this.#sorted().map(({ data }) => Object.fromEntries(columns.map((column) => [column.id, column.value ? column.value(data) : column.text(data)])));
  }

  #make(data, key) {
    const row = { data, key, cells: [] };
    const boxes = [];
    if (this.select) {
      row.box = this.#box(`Select ${this.columns[0].text(data)}`);
      row.box.addEventListener("change", () => this.#choose(row, row.box.checked));
      boxes.push(h("td", { class: "tight" }, row.box));
    }
    this.columns.forEach((column, at) => {
      const made = column.make?.(data);
      const inside = made ? made.element : column.link ? h("a", {}) : null;
      const names = [column.number && "number", column.second && "second", column.name_ && "name", column.clip && "clip", column.tight && "tight"];
      const element = h(at === 0 ? "th" : "td", { class: names.filter(Boolean).join(" ") || null, scope: at === 0 ? "row" : null }, inside);
      if (at === 0) element.classList.add("name");
      row.cells.push({ element, base: element.className, made, inside });
    });
    row.element = h("tr", {}, boxes, row.cells.map(({ element }) => element));
    this.#fill(row);
    return row;
  }

  #fill(row) {
    this.columns.forEach((column, at) => {
      const cell = row.cells[at];
      if (cell.made) {
        cell.made.update?.(row.data);
      } else {
        setText(cell.inside ?? cell.element, column.text(row.data));
        if (column.link) setAttribute(cell.inside, "href", column.link(row.data));
        if (column.title) setAttribute(cell.element, "title", column.title(row.data));
      }
      if (column.className) {
        const names = `${cell.base} ${column.className(row.data) || ""}`.trim();
        if (cell.element.className !== names) cell.element.className = names;
      }
    });
  }

  #choose(row, chosen) {
    if (chosen) this.selected.add(row.key);
    else this.selected.delete(row.key);
    this.select(this.selectedRows());
  }

  #selectAll(chosen) {
    for (const row of this.rows.values()) {
      row.box.checked = chosen;
      if (chosen) this.selected.add(row.key);
      else this.selected.delete(row.key);
    }
    this.select(this.selectedRows());
  }

  #sorted() {
    const column = this.columns.find(({ id }) => id === this.sort);
    const rows = [...this.rows.values()];
    if (!column?.sort) return rows;
    const sign = this.descending ? -1 : 1;
    return rows.sort((a, b) => {
      const [x, y] = [column.sort(a.data), column.sort(b.data)];
      if (x === y) return 0;
      if (x === null || x === undefined) return 1;
      if (y === null || y === undefined) return -1;
      return x < y ? -sign : sign;
    });
  }

  /** Put rows in order. A row that moved under the pointer or lost focus would disturb, so an idle table is needed. */
  #order(force) {
    const chosen = getSelection();
    const busy = this.body.contains(document.activeElement) || this.body.matches(":hover") || (!chosen.isCollapsed && this.body.contains(chosen.anchorNode));
    if (busy && !force) return;
    if (busy) {
      // Only new rows are added, at the end, if others must not move.
      const fresh = [...this.rows.values()].filter(({ element }) => !element.parentNode);
      if (fresh.length && this.body.contains(document.activeElement)) return this.body.append(...fresh.map(({ element }) => element));
    }
    let place = this.body.firstElementChild;
    for (const { element } of this.#sorted()) {
      if (element === place) place = place.nextElementSibling;
      else this.body.insertBefore(element, place);
    }
  }
}
