// Parts that several pages are made of: choices of a select, and a table that scrolls by itself where it is too wide.

import { html } from "./template.js";

/** The options of a select: `words` names each value, `chosen` is the one that is selected at first. */
export function choices(values, chosen, words) {
  return values.map(
    (value) => html`<option value="${value}" ${value === chosen ? html`selected` : ""}>${words(value)}</option>`,
  );
}

/** A table named by the heading with the id `labelledby`; `columns` are words, an empty one stands over buttons. */
export function tableBox(labelledby, columns, rows, more = "") {
  const heads = columns.map((words) => (words ? html`<th scope="col">${words}</th>` : html`<td></td>`));
  return html`<div class="fg-table-box ${more}" tabindex="0" role="region" aria-labelledby="${labelledby}">
    <table><thead><tr>${heads}</tr></thead><tbody>${rows}</tbody></table></div>`;
}
