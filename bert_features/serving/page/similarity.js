// Tokens of an answer in one row, and the cosine of each with each.

/**
 * The tokens of all results, one after the other.
 *
 * Each: token; id; position in its input; input (index of the result); text (index of the typed
 * text: 0 or 1); offset ([start, end] in code points, or null); kind (plain, special, unknown, prompt).
 */
export function collectTokens(results) {
  return results.flatMap((result, input) =>
    result.tokens.map((token, position) => ({
      token,
      id: result.token_ids[position],
      position,
      input,
      text: results.length > 1 ? input : result.type_ids[position],
      offset: result.offsets[position],
      kind: kindOf(token, result.offsets[position]),
    })));
}

function kindOf(token, offset) {
  if (token === "[CLS]" || token === "[SEP]") return "special";
  if (token === "[UNK]") return "unknown";
  return offset ? "plain" : "prompt";
}

/** The cosines of all vectors of a feature with each other: Float32Array [tokens · tokens]. */
export function cosines(results, feature) {
  const vectors = results.flatMap((result) => result.features[feature]).map(unit);
  const size = vectors.length;
  const values = new Float32Array(size * size);
  for (let i = 0; i < size; i++) {
    for (let j = i; j < size; j++) {
      values[i * size + j] = values[j * size + i] = dot(vectors[i], vectors[j]);
    }
  }
  return values;
}

/** The attention of a head, its place in the answer: from rows to columns, 0 between two inputs. */
export function attention(results, feature, head) {
  const maps = results.map((result) => result.features[feature][head]);
  const size = maps.reduce((sum, map) => sum + map.length, 0);
  const values = new Float32Array(size * size);
  let start = 0;
  for (const map of maps) {
    map.forEach((row, i) => values.set(row, (start + i) * size + start));
    start += map.length;
  }
  return values;
}

function unit(vector) {
  const length = Math.sqrt(dot(vector, vector)) || 1; // a vector of zeros stays one
  const scaled = new Float32Array(vector);
  for (let i = 0; i < scaled.length; i++) scaled[i] /= length;
  return scaled;
}

/** Four sums at a time: an addition need not wait for the one before, which takes half the time. */
function dot(a, b) {
  let [first, second, third, fourth] = [0, 0, 0, 0];
  const whole = a.length - (a.length % 4);
  for (let i = 0; i < whole; i += 4) {
    first += a[i] * b[i];
    second += a[i + 1] * b[i + 1];
    third += a[i + 2] * b[i + 2];
    fourth += a[i + 3] * b[i + 3];
  }
  for (let i = whole; i < a.length; i++) first += a[i] * b[i];
  return first + second + third + fourth;
}

/** The ends of the colours: 1, and the lowest value, rounded down to a tenth. */
export function rangeOf(matrices) {
  let low = 0.9;
  for (const values of matrices) for (const value of values) if (value < low) low = value;
  return [Math.floor(low * 10) / 10, 1];
}

/** The tokens most similar to one: [index, value] of up to `count`, the highest first. */
export function nearest(values, size, index, count) {
  return Array.from(values.subarray(index * size, (index + 1) * size), (value, i) => [i, value])
    .filter(([i]) => i !== index)
    .sort((a, b) => b[1] - a[1])
    .slice(0, count);
}

/** A square matrix of at most `limit` rows: the means of square blocks of the matrix. */
export function shrink(values, size, limit) {
  const block = Math.ceil(size / limit);
  if (block === 1) return values;
  const small = Math.ceil(size / block);
  const sums = new Float32Array(small * small);
  const counts = new Uint16Array(small * small);
  for (let i = 0; i < values.length; i++) {
    const place = Math.floor(Math.floor(i / size) / block) * small + Math.floor((i % size) / block);
    sums[place] += values[i];
    counts[place] += 1;
  }
  return sums.map((sum, place) => sum / counts[place]);
}

/** The mean cosine of different tokens. */
export function meanOf(values, size) {
  const whole = values.reduce((sum, value) => sum + value, 0);
  const diagonal = Array.from({ length: size }, (_, i) => values[i * (size + 1)]);
  return (whole - diagonal.reduce((sum, value) => sum + value, 0)) / (size * (size - 1));
}

/** The token to begin with: the longest word that occurs again, or else the first word. */
export function tokenToPin(tokens) {
  const words = tokens.filter(({ token, kind }) => kind === "plain" && /\p{L}{3}/u.test(token));
  const seen = new Map(words.map(({ token }) => [token, 0]));
  for (const { token } of words) seen.set(token, seen.get(token) + 1);
  const again = words.filter(({ token }) => seen.get(token) > 1);
  const [longest] = again.sort((a, b) => b.token.length - a.token.length);
  return Math.max(0, tokens.indexOf(longest ?? words[0] ?? tokens[1]));
}

/** The token to compare it with first: the next of the same spelling, or else the most similar. */
export function tokenToCompare(tokens, pinned, values) {
  const same = tokens.findIndex((t, i) => i !== pinned && t.token === tokens[pinned].token);
  return same >= 0 ? same : (nearest(values, tokens.length, pinned, 1)[0]?.[0] ?? pinned);
}
