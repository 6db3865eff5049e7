// Making elements. Texts go in as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children; a string among the children becomes text. */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same for SVG. */
export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

/** Moves the focus among the children of a node by arrow keys; Tab reaches only one of them. */
export function moveByArrows(node, choose = () => {}) {
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  node.addEventListener("keydown", (event) => {
    const all = [...node.querySelectorAll("button")];
    const here = all.indexOf(document.activeElement);
    const step = steps[event.key];
    const next = step ? here + step : { Home: 0, End: all.length - 1 }[event.key];
    if (here < 0 || next === undefined || !all[next]) return;
    event.preventDefault();
    all[here].tabIndex = -1;
    all[next].tabIndex = 0;
    all[next].focus();
    choose(all[next]);
  });
}
