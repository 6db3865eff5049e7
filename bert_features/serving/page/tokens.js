// The typed texts with their tokens: chips to point at and to pin, and the place of each in its text.

import { element, moveByArrows } from "./elements.js";

const KINDS = {
  special: "special token",
  unknown: "unknown, not in the vocabulary",
  prompt: "of the prompt that the server puts before the text",
};

/** Shows all inputs of an answer; onPoint(index or null) and onPick(index) report tokens. */
export function showInputs(room, { results, tokens, texts, limit }, { onPoint, onPick }) {
  const lists = element("div", {}, ...results.map((result, input) => {
    const own = tokens.map((token, index) => ({ ...token, index })).filter((t) => t.input === input);
    const typed = [...new Set(own.filter((t) => t.offset).map((t) => t.text))];
    const chips = element("div", { class: "chips", role: "toolbar", "aria-label": name(results, input) },
      ...own.map(chipOf));
    chips.firstElementChild.tabIndex = 0;
    moveByArrows(chips);
    return element("div", { class: "input" },
      ...(results.length > 1 ? [element("h3", {}, name(results, input))] : []),
      element("div", { class: "typed" }, ...typed.map((text) => markedText(texts[text], own.filter((t) => t.text === text), result.tokens_lost))),
      chips,
      element("p", { class: lossOf(result) ? "counts warning" : "counts" }, describeCounts(result, limit)));
  }));
  listen(lists, onPoint, onPick);
  room.replaceChildren(lists);
}

function name(results, input) {
  return results.length > 1 ? `Tokens of the ${["first", "second"][input]} text` : "Tokens";
}

function chipOf(token) {
  return element("button", {
    type: "button",
    class: `chip ${token.kind}`,
    tabindex: -1,
    "data-token": token.index,
    "aria-pressed": "false",
    "aria-label": KINDS[token.kind] && `${token.token}, ${KINDS[token.kind]}`,
  }, token.token);
}

/** A text in which the place of each token can be marked. Offsets count code points, not UTF-16. */
function markedText(text, tokens, tokensLost) {
  const characters = Array.from(text);
  const part = (start, end) => characters.slice(start, end).join("");
  const between = (start, end) => {
    const gap = part(start, end);
    return tokensLost && gap.trim() ? element("span", { class: "lost", title: "cut off" }, gap) : gap;
  };
  const paragraph = element("p", { dir: "auto" });
  let place = 0;
  for (const { offset, index, kind } of tokens) {
    if (!offset || offset[0] < place) continue; // a piece of the same character as the one before
    paragraph.append(between(place, offset[0]),
      element("span", { "data-token": index, class: kind }, part(...offset)));
    place = offset[1];
  }
  paragraph.append(between(place));
  return paragraph;
}

function listen(lists, onPoint, onPick) {
  const indexOf = (event) => event.target.closest?.("[data-token]")?.dataset.token;
  const point = (event) => {
    const index = indexOf(event);
    onPoint(index === undefined ? null : Number(index));
  };
  // Not pointerover, which also comes when the page scrolls under a pointer at rest.
  lists.addEventListener("pointermove", point);
  lists.addEventListener("pointerleave", () => point({ target: document.activeElement }));
  lists.addEventListener("focusin", point);
  lists.addEventListener("focusout", () => onPoint(null));
  lists.addEventListener("click", (event) => {
    const index = indexOf(event);
    if (index !== undefined) onPick(Number(index));
  });
}

/** Marks the pinned token and those that are pointed at, in the chips and in the texts. */
export function markTokens(room, pinned, pointed) {
  for (const node of room.querySelectorAll("[data-token]")) {
    const index = Number(node.dataset.token);
    node.classList.toggle("pinned", index === pinned);
    node.classList.toggle("pointed", pointed.includes(index));
    if (node.matches("button")) node.setAttribute("aria-pressed", index === pinned);
    if (index === (pointed.at(-1) ?? pinned)) bringIntoSight(node);
  }
}

/** Scrolls the list of a token, and not the page. */
function bringIntoSight(node) {
  const list = node.closest(".chips, .typed");
  const [inner, outer] = [node.getBoundingClientRect(), list.getBoundingClientRect()];
  if (inner.top < outer.top) list.scrollTop -= outer.top - inner.top;
  if (inner.bottom > outer.bottom) list.scrollTop += inner.bottom - outer.bottom;
}

const lossOf = (result) => result.tokens_lost + result.unknown_tokens;

/** The size of an input, what was cut from it and what the vocabulary lacks, in words. */
export function describeCounts({ tokens, tokens_lost: lost, unknown_tokens: unknown }, limit) {
  const size = `${count(tokens.length)}${limit ? ` of at most ${limit}` : ""}, with [CLS] and [SEP].`;
  const cut = lost ? `${count(lost)} did not fit and ${lost === 1 ? "was" : "were"} cut off.` : "Nothing was cut.";
  const gaps = unknown
    ? `${count(unknown)} ${unknown === 1 ? "is" : "are"} [UNK]: the vocabulary has no pieces for ${unknown === 1 ? "it" : "them"}.`
    : "No token is [UNK].";
  return `${size} ${cut} ${gaps}`;
}

function count(n) {
  return `${n} token${n === 1 ? "" : "s"}`;
}

/** Position, id and place of a token, in words. */
export function describeToken({ token, id, position, offset, kind }) {
  const place = offset ? [`characters ${offset[0]} to ${offset[1]}`] : [];
  const note = KINDS[kind] ? [KINDS[kind]] : [];
  return [`${token}: position ${position}`, `id ${id}`, ...place, ...note].join(", ");
}
