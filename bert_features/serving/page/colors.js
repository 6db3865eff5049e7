// Values as colours and as short numbers. The colours are viridis, which readers with any kind of
// colour vision can order.

const STOPS = [
  [68, 1, 84], [72, 24, 106], [71, 45, 123], [66, 64, 134], [59, 82, 139], [51, 99, 141],
  [44, 114, 142], [38, 130, 142], [33, 145, 140], [31, 160, 136], [40, 174, 128], [63, 188, 115],
  [94, 201, 98], [132, 212, 75], [173, 220, 48], [216, 226, 25], [253, 231, 37],
];

const LEVELS = 256;
const TABLE = Array.from({ length: LEVELS }, (_, level) => {
  const place = (level / (LEVELS - 1)) * (STOPS.length - 1);
  const left = Math.min(Math.floor(place), STOPS.length - 2);
  return STOPS[left].map((value, i) =>
    Math.round(value + (place - left) * (STOPS[left + 1][i] - value)));
});

/** The [red, green, blue] of a value; values outside [low, high] have the colour of the nearer end. */
export function colorOf(value, [low, high]) {
  const share = (value - low) / (high - low);
  return TABLE[Math.round(Math.min(Math.max(share, 0), 1) * (LEVELS - 1))];
}

/** The colour, black or white, in which text is legible on a colour of the map. */
export function inkOn([red, green, blue]) {
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#000" : "#fff";
}

/** A value with two decimals where there is little room: .53, -.02, 1.00. */
export function shortNumber(value) {
  return value.toFixed(2).replace(/^(-?)0\./, "$1.");
}

/** A canvas of size × size pixels, one for each value of a square matrix. */
export function imageOf(values, size, range) {
  const canvas = document.createElement("canvas");
  paint(canvas, values, size, range);
  return canvas;
}

/** Gives a canvas one pixel for each value; `width` values make a row. */
export function paint(canvas, values, width, range) {
  canvas.width = width;
  canvas.height = values.length / width;
  const image = new ImageData(canvas.width, canvas.height);
  for (let i = 0; i < values.length; i++) {
    const color = colorOf(values[i], range);
    for (let part = 0; part < 3; part++) image.data[4 * i + part] = color[part];
    image.data[4 * i + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}
