// The page: asks the server for the layers of what is typed, and says what it answers.

import { element } from "./elements.js";
import { ask, ServerError } from "./requests.js";
import { attention, collectTokens, cosines } from "./similarity.js";
import { outputsWithUnits, showUnits } from "./units.js";
import { showView } from "./views.js";

const EXAMPLES = [
  ["one word, three times", "After stealing money from the bank vault, the bank robber was seen fishing on the Mississippi river bank.", "", "separate"],
  ["two texts compared", "She put her money in the bank.", "We sat on the bank of the river.", "separate"],
  ["a pair", "Where did the cat sit?", "The cat sat on the mat.", "pair"],
  ["an unknown word", "We saw a 🦜 in the jungle.", "", "separate"],
];
// What the maps show: the output that every server has, and how it is named; see measuresOf.
const COSINE = {
  output: "all_layers", level: "token", option: "cosine similarity", title: "Similarity",
  value: "Cosine", of: "Cosine similarity", link: "with", most: "Most similar to", matrixOf: cosines,
};

const find = (id) => document.getElementById(id);
const state = { info: null, measures: [COSINE], token: "", newest: null };

/** Asks for what is typed. An older request is given up, so that its answer is never shown. */
async function submit() {
  const asked = readForm();
  if (!asked.texts[0].trim()) return showError("Type a text first.");
  state.newest?.abort();
  const mine = (state.newest = new AbortController());
  showError(null);
  showStatus("Computing …");
  find("result").setAttribute("aria-busy", "true");
  try {
    const view = await viewOf(asked, mine.signal);
    if (state.newest === mine) showAnswer(view);
  } catch (error) {
    if (state.newest === mine) showFailure(error);
  } finally {
    if (state.newest === mine) find("result").removeAttribute("aria-busy");
  }
}

function readForm() {
  const texts = [find("text-a").value, find("text-b").value];
  if (!texts[1].trim()) return { texts: texts.slice(0, 1), body: { texts: texts.slice(0, 1) } };
  const isPair = new FormData(find("ask")).get("mode") === "pair";
  return { texts, body: isPair ? { pairs: [texts] } : { texts } };
}

async function viewOf({ texts, body }, signal) {
  const request = { token: state.token, signal, onWait: showWait };
  state.info ??= await readInfo(request);
  const measure = state.measures[find("measure").selectedIndex] ?? COSINE;
  const { model, features, results } = await ask("v1/features", {
    ...request,
    body: { ...body, outputs: [measure.output], tokens: true },
  });
  if (model !== state.info.model) state.info = await readInfo(request); // the server was restarted
  const others = outputsWithUnits(state.info);
  const units = others.length ? await ask("v1/features", { ...request, body: { ...body, outputs: others } }) : null;
  showStatus("Comparing the tokens …");
  const layers = nameLayers(features, measure);
  const matrices = [];
  for (const { feature } of layers) {
    matrices.push(measure.matrixOf(results, feature));
    await new Promise((resolve) => setTimeout(resolve)); // keeps the page alive on long texts
    signal.throwIfAborted();
  }
  const tokens = collectTokens(results);
  return { texts, results, tokens, size: tokens.length, layers, matrices, measure, units, limit: limitOf(state.info) };
}

/** The layers of an answer: feature; name, as "Layer 3"; short, as "3". */
function nameLayers(features, measure) {
  const usable = features.filter(({ level }) => level === measure.level);
  if (!usable.length) {
    throw new ServerError(`The output "${measure.output}" of this server has no token vectors, which this page shows.`, 0);
  }
  return usable.map(({ name: feature, layers }) => {
    const [layer, ...more] = layers;
    if (more.length) return { feature, name: feature, short: feature };
    if (layer === "embeddings") return { feature, name: "Embeddings", short: "emb." };
    const number = layer < 0 ? state.info.layers + layer : layer; // as LAYERS count
    return { feature, name: `Layer ${number}`, short: String(number) };
  });
}

async function readInfo(request) {
  const info = await ask("v1/info", request);
  find("model").textContent = describeModel(info);
  state.measures = measuresOf(info);
  find("measures").hidden = state.measures.length === 1;
  find("measure").replaceChildren(...state.measures.map(({ option }) => element("option", {}, option)));
  return info;
}

/** Cosines, and each head of the server's outputs of attention between tokens. */
function measuresOf({ outputs }) {
  const [level, wanted] = ["token_pair", ({ features: [feature] }) => feature.level === "token_pair"];
  return [COSINE, ...outputs.filter(wanted).flatMap(({ name: output, features: [{ heads }] }) => heads.map((head, i) => {
    const option = typeof head === "number" ? `attention, head ${head}` : `attention, ${head} of the heads`;
    return {
      output, level, option, title: `Attention${option.slice(9)}`, value: "Attention", of: "Attention", link: "to",
      most: "Most attention from", matrixOf: (results, feature) => attention(results, feature, i),
    };
  }))];
}

function describeModel({ model, description, layers, hidden_size: width, max_seq_length: limit }) {
  const title = description && description !== model ? `${model}: ${description}` : model;
  return `${title} · ${layers} layers · width ${width} · up to ${limit} tokens`;
}

/** The most tokens of an input; null if long inputs are read in windows. */
function limitOf({ max_seq_length: limit, long_text: policy }) {
  return policy === "window" ? null : limit;
}

function showAnswer(view) {
  showStatus("");
  find("access").hidden = true;
  find("result").hidden = false;
  showView(view);
  showUnits(find("units"), view.units);
}

function showFailure(error) {
  showStatus("");
  if (!(error instanceof ServerError)) console.error(error);
  showError(error.message);
  if (!state.info) find("model").textContent = "";
  if (error.status === 401) {
    find("access").hidden = false;
    find("token").focus();
  }
}

function showWait(seconds) {
  showStatus(`The server is busy. Asking again in ${seconds} second${seconds === 1 ? "" : "s"} …`);
}

function showStatus(text) {
  find("status").textContent = text;
}

function showError(text) {
  find("error").hidden = !text;
  find("error").textContent = text ?? "";
}

/** How two texts are read is a question only once there are two. */
function showModes() {
  find("modes").disabled = !find("text-b").value.trim();
}

function fillIn([, first, second, mode]) {
  find("text-a").value = first;
  find("text-b").value = second;
  document.querySelector(`[name=mode][value=${mode}]`).checked = true;
  showModes();
  submit();
}

find("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
find("ask").addEventListener("keydown", (event) => {
  if (!event.target.matches("textarea") || event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  submit();
});
find("modes").addEventListener("change", submit);
find("measure").addEventListener("change", submit);
find("text-b").addEventListener("input", showModes);
find("access").addEventListener("submit", (event) => {
  event.preventDefault();
  state.token = find("token").value.trim();
  submit();
});

for (const example of EXAMPLES) {
  const button = element("button", { type: "button", class: "link" }, example[0]);
  button.addEventListener("click", () => fillIn(example));
  find("examples").append(button);
}
fillIn(EXAMPLES[0]);
