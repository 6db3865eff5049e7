// The views of one answer. All of them show the same layer and the same tokens.

import { describeAcross, showAcross, showNearest } from "./across.js";
import { paint } from "./colors.js";
import { element, moveByArrows } from "./elements.js";
import { HeatMap } from "./heatmap.js";
import { meanOf, rangeOf, shrink, tokenToCompare, tokenToPin } from "./similarity.js";
import { fillTable } from "./table.js";
import { describeToken, markTokens, showInputs } from "./tokens.js";

const find = (id) => document.getElementById(id);
const ORDINALS = ["first", "second"];
const MAX_PIXELS = 128; // of a small map, in each direction

// layer, pinned, compared: what is chosen; row, column: what is pointed at, or null.
let view = null;

/** Shows an answer: texts, results, tokens, size, layers, matrices (one for each layer), measure, limit. */
export function showView(answer) {
  const { tokens, matrices, layers, results } = answer;
  const layer = layers.length - 1;
  const pinned = tokenToPin(tokens);
  view = {
    ...answer,
    labels: tokens.map(({ token }) => token),
    names: tokens.map((token) => nameOf(token, results.length > 1)),
    starts: tokens.flatMap((token, i) => (i && startsText(token, tokens[i - 1]) ? [i] : [])),
    commonRange: rangeOf(matrices),
    layer,
    pinned,
    compared: tokenToCompare(tokens, pinned, matrices[layer]),
    row: null,
    column: null,
  };
  showInputs(find("inputs"), view, { onPoint: pointAtToken, onPick: pin });
  find("layer").replaceChildren(...layers.map(({ name }, i) => element("option", { value: i }, name)));
  paint(find("legend"), Float32Array.from({ length: 256 }, (_, i) => i / 255), 256, [0, 1]);
  find("measure-hint").textContent = `${answer.measure.of} of every token ${answer.measure.link} every other`;
  find("nearest-value").textContent = answer.measure.value;
  showSmallMaps();
  showLayer();
}

/** A token with its position, which tells it from others of the same spelling. */
function nameOf({ token, position, input }, isOneOfTwo) {
  return `${token} (${isOneOfTwo ? `${ORDINALS[input]} text, ` : ""}${position})`;
}

const startsText = (token, before) => token.input !== before.input || token.text !== before.text;

function rangeOfLayer(layer) {
  return find("own-range").checked ? rangeOf([view.matrices[layer]]) : view.commonRange;
}

const layerName = () => view.layers[view.layer].name.toLowerCase();

function showSmallMaps() {
  const { layers, matrices, size } = view;
  find("layers").replaceChildren(...layers.map(({ name }, i) => {
    const canvas = element("canvas", { "aria-hidden": true });
    const small = shrink(matrices[i], size, MAX_PIXELS);
    paint(canvas, small, Math.sqrt(small.length), rangeOfLayer(i));
    const button = element("button", { type: "button", role: "radio", "data-layer": i },
      canvas, element("span", { class: "layer-name" }, name),
      element("span", { class: "hint" }, `mean ${meanOf(matrices[i], size).toFixed(2)}`));
    button.addEventListener("click", () => chooseLayer(i));
    return button;
  }));
}

function chooseLayer(layer) {
  view.layer = layer;
  showLayer();
}

/** Everything that depends on the layer. */
function showLayer() {
  const { layer, matrices, size, labels, starts, measure } = view;
  for (const button of find("layers").children) {
    const isChosen = Number(button.dataset.layer) === layer;
    button.setAttribute("aria-checked", isChosen);
    button.tabIndex = isChosen ? 0 : -1;
    // On a phone the layers are a row that scrolls.
    if (isChosen) find("layers").scrollLeft = button.offsetLeft - find("layers").clientWidth / 2;
  }
  find("layer").value = layer;
  find("tip").hidden = true;
  find("map-title").textContent = `${measure.title}, ${layerName()}`;
  find("map").setAttribute("aria-label",
    `${measure.of} of ${size} tokens ${measure.link} each other, ${layerName()}. A table below has the values.`);
  const range = rangeOfLayer(layer);
  heat.show({ labels, starts, values: matrices[layer], range });
  find("large-control").hidden = !heat.isDense;
  find("legend-low").textContent = range[0].toFixed(1);
  find("legend-high").textContent = range[1].toFixed(1);
  showPinned();
}

/** Everything that depends on the pinned token, and on the one that it is compared with. */
function showPinned() {
  const { pinned, layer, layers, matrices, names, commonRange, measure } = view;
  const shown = { ...view, values: matrices[layer], range: rangeOfLayer(layer) };
  const { other, values } = describeAcross(shown);
  find("pinned-title").textContent = `${names[pinned]} across the layers`;
  find("across-text").replaceChildren(measure.link === "to" ? "To " : "With ", element("strong", {}, other), `: ${values}.`);
  showAcross(find("across"), { ...shown, range: commonRange });
  find("nearest-title").textContent = `${measure.most} ${names[pinned]}, ${layers[layer].name.toLowerCase()}`;
  showNearest(find("nearest"), shown, compare);
  if (find("values").open) fillTable(find("values-table"), shown);
  showPointed();
}

/** What follows the pointer. */
function showPointed() {
  const { pinned, compared, row, column, tokens, size } = view;
  find("readout").textContent = describePair(row ?? pinned, column ?? compared);
  heat.mark({ pinned, row, column });
  markTokens(find("inputs"), pinned, row === pinned ? [column] : [row, column]);
  find("token-detail").textContent = describeToken(tokens[column ?? pinned]);
  find("map").dataset.size = size;
}

function describePair(row, column) {
  const { names, matrices, layer, size, measure } = view;
  return `${names[row]} ${measure.link} ${names[column]}: ${matrices[layer][row * size + column].toFixed(3)}`;
}

/** Points at a token of the lists: it is compared with the pinned one. */
function pointAtToken(index) {
  point(index === null ? null : view.pinned, index);
}

/** Points at a cell, or at none. In the row of the pinned token, this compares another with it. */
function point(row, column) {
  if (!view || (row === view.row && column === view.column)) return;
  Object.assign(view, { row, column });
  const isOther = column !== null && row === view.pinned && column !== row && column !== view.compared;
  if (isOther) compare(column);
  else showPointed();
}

function pointAtCell(row, column, event) {
  point(row, column);
  const tip = find("tip");
  tip.hidden = row === null || !event || event.pointerType === "touch";
  if (tip.hidden) return;
  tip.textContent = describePair(row, column);
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${event.clientY + 18}px`;
}

/** Pins a token. It is compared with that of the column, or else with the one pinned before. */
function pin(row, column = row) {
  if (column !== row) view.compared = column;
  else if (row !== view.pinned) view.compared = view.pinned;
  view.pinned = row;
  showPinned();
}

function compare(index) {
  view.compared = index;
  showPinned();
}

const heat = new HeatMap(find("heat"), { onPoint: pointAtCell, onPick: pin });
moveByArrows(find("layers"), (button) => chooseLayer(Number(button.dataset.layer)));
find("layer").addEventListener("change", () => chooseLayer(Number(find("layer").value)));
find("own-range").addEventListener("change", () => {
  showSmallMaps();
  showLayer();
});
find("large").addEventListener("change", () => {
  heat.large = find("large").checked;
  heat.layOut();
  heat.bring(view.pinned, view.compared);
});
find("values").addEventListener("toggle", () => view && showPinned());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => heat.layOut());
