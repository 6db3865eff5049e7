// The values as a table, for screen readers and for copying.

import { element } from "./elements.js";

const MAX_TOKENS = 40;

/** All pairs in the chosen layer; of long inputs the pinned token with each token in every layer. */
export function fillTable(table, view) {
  const { labels, names, values, size, matrices, layers, layer, pinned, measure } = view;
  const isWhole = size <= MAX_TOKENS;
  const caption = isWhole
    ? `${measure.value} of every token ${measure.link} every other, ${layers[layer].name.toLowerCase()}`
    : `${measure.value} of ${names[pinned]} ${measure.link} every token, in each layer`;
  const heads = isWhole ? labels : layers.map(({ name }) => name);
  const valueAt = isWhole
    ? (row, column) => values[row * size + column]
    : (row, column) => matrices[column][pinned * size + row];
  table.replaceChildren(
    element("caption", {}, caption),
    element("thead", {}, element("tr", {}, element("td"),
      ...heads.map((head) => element("th", { scope: "col" }, head)))),
    element("tbody", {}, ...labels.map((label, row) =>
      element("tr", {}, element("th", { scope: "row" }, label),
        ...heads.map((_, column) => element("td", {}, valueAt(row, column).toFixed(3)))))));
}
