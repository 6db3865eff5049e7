// Tables of what a server's other outputs say of the inputs: their heaviest terms, and their spans.

import { element } from "./elements.js";
import { cosines, nearest } from "./similarity.js";

const MOST_TERMS = 20;

/** The names of the outputs that these tables show. */
export function outputsWithUnits({ outputs }) {
  return outputs.filter(({ features: [{ kind, level }] }) => kind === "sparse" || level === "span")
    .map(({ name }) => name);
}

/** Shows an answer of these outputs; hides the card without one, or where it has no terms or spans. */
export function showUnits(card, answer) {
  const tables = (answer?.features ?? []).flatMap((feature) =>
    (feature.kind === "sparse" ? termTables : spanTables)(answer.results, feature.name));
  card.hidden = !tables.length;
  card.querySelector(".scroll").replaceChildren(...tables);
}

function termTables(results, name) {
  return results.map(({ features }, input) => {
    const terms = Object.entries(features[name]).sort(([, a], [, b]) => b - a).slice(0, MOST_TERMS);
    const title = `Heaviest terms${results.length > 1 ? ` of input ${input + 1}` : ""}`;
    return tableOf(title, ["Term", "Weight"], terms.map(([term, weight]) => [term, weight.toFixed(3)]));
  });
}

function spanTables(results, name) {
  const texts = results.flatMap(({ spans }) => spans.map(({ span }) => span));
  if (!texts.length) return [];
  const values = cosines(results, name);
  return [tableOf("Spans", ["Span", "Most similar span", "Cosine"], texts.map((text, i) => {
    const [other, cosine] = nearest(values, texts.length, i, 1)[0] ?? [];
    return [text, texts[other] ?? "", cosine?.toFixed(3) ?? ""];
  }))];
}

function tableOf(title, heads, rows) {
  return element("table", { class: "nearest" },
    element("caption", {}, title),
    element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, cell))))));
}
