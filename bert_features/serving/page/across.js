// One token compared across the layers: a line for each other token, and a list of the nearest.

import { colorOf, shortNumber } from "./colors.js";
import { element, svg } from "./elements.js";
import { nearest } from "./similarity.js";

const WIDTH = 440;
const HEIGHT = 230;
const MARGIN = { top: 20, right: 4, bottom: 40, left: 40 };
const INSET = 16; // keeps the first and the last value off the edges
const MAX_FAINT = 80;
const MAX_LABELLED = 13;

/** Draws the cosine of the pinned token with `compared`, and faintly with the others, in all layers. */
export function showAcross(room, { matrices, size, pinned, compared, layer, layers, range }) {
  const left = (index) => MARGIN.left + INSET
    + (layers.length > 1 ? index / (layers.length - 1) : 0.5) * (WIDTH - MARGIN.left - MARGIN.right - 2 * INSET);
  const top = (value) => MARGIN.top
    + ((range[1] - value) / (range[1] - range[0])) * (HEIGHT - MARGIN.top - MARGIN.bottom);
  const line = (other, kind) => svg("polyline", {
    class: kind,
    points: matrices.map((m, i) => `${left(i)},${top(m[pinned * size + other])}`).join(" "),
  });
  const others = Array.from({ length: size }, (_, i) => i).filter((i) => i !== pinned && i !== compared);
  const values = matrices.map((m) => m[pinned * size + compared]);
  room.replaceChildren(svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-labelledby": "across-text" },
    ...grid(range, top),
    svg("line", { class: "here", x1: left(layer), x2: left(layer), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }),
    ...(size <= MAX_FAINT ? others.map((other) => line(other, "faint")) : []),
    line(compared, "strong"),
    ...points(values, left, top, layer),
    ...layerNames(layers, left)));
}

function grid(range, top) {
  const steps = Array.from({ length: 5 }, (_, i) => range[0] + (i / 4) * (range[1] - range[0]));
  return steps.flatMap((value) => [
    svg("line", { class: "grid", x1: MARGIN.left, x2: WIDTH - MARGIN.right, y1: top(value), y2: top(value) }),
    svg("text", { x: MARGIN.left - 6, y: top(value) + 4, "text-anchor": "end" }, value.toFixed(2)),
  ]);
}

function points(values, left, top, layer) {
  return values.flatMap((value, i) => [
    svg("circle", { class: "point", cx: left(i), cy: top(value), r: i === layer ? 5 : 3 }),
    ...(values.length <= MAX_LABELLED || i === layer
      ? [svg("text", { class: "value", x: left(i), y: top(value) - 9, "text-anchor": "middle" }, shortNumber(value))]
      : []),
  ]);
}

function layerNames(layers, left) {
  const every = Math.ceil(layers.length / MAX_LABELLED);
  const names = layers.map(({ short }, i) => (i % every ? "" : short));
  return [
    ...names.map((name, i) =>
      svg("text", { x: left(i), y: HEIGHT - MARGIN.bottom + 16, "text-anchor": "middle" }, name)),
    svg("text", { x: (MARGIN.left + WIDTH) / 2, y: HEIGHT - 5, "text-anchor": "middle" }, "layer"),
  ];
}

/** What the line shows, in words: the other token, and its cosine in each layer. */
export function describeAcross({ matrices, size, pinned, compared, layers, names }) {
  const values = matrices.map((m, i) => `${layers[i].short} ${m[pinned * size + compared].toFixed(2)}`);
  return { other: names[compared], values: values.join(", ") };
}

/** Lists the tokens that are most similar to the pinned one; onChoose(index) when one is pressed. */
export function showNearest(table, { values, size, pinned, names, range }, onChoose) {
  table.tBodies[0].replaceChildren(...nearest(values, size, pinned, 6).map(([index, value]) => {
    const button = element("button", { type: "button", class: "link" }, names[index]);
    button.addEventListener("click", () => onChoose(index));
    const bar = element("div", { class: "bar" });
    bar.style.width = `${Math.max(0, value) * 100}%`;
    bar.style.backgroundColor = `rgb(${colorOf(value, range)})`;
    return element("tr", {},
      element("td", {}, button),
      element("td", { class: "number" }, value.toFixed(3)),
      element("td", { class: "bar-room", "aria-hidden": "true" }, bar));
  }));
}
