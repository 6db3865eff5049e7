// The large heat map: a canvas that draws the part of the matrix that its scroll box shows.

import { colorOf, imageOf, inkOn, shortNumber } from "./colors.js";

const LARGEST_CELL = 44;
const LARGE_CELL = 26; // of "large cells", where the whole map has smaller ones
const CELL_WITH_LABEL = 11;
const CELL_WITH_VALUE = 34;
const LONGEST_LABEL = 92;
const FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace";

export class HeatMap {
  /**
   * box: the scroll box, with a child for the size of the whole map and the canvas in that.
   * onPoint(row, column, event) follows the pointer and the arrow keys; row is null where it left.
   * onPick(row, column) is a click or Enter.
   */
  constructor(box, { onPoint, onPick }) {
    this.box = box;
    this.room = box.firstElementChild;
    this.canvas = box.querySelector("canvas");
    this.marks = { pinned: null, row: null, column: null };
    this.large = false;
    this.size = 0;
    this.onPoint = onPoint;
    this.onPick = onPick;
    box.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.layOut()).observe(box.parentElement);
    this.canvas.addEventListener("pointermove", (event) => this.follow(event));
    this.canvas.addEventListener("pointerleave", () => this.leave());
    this.canvas.addEventListener("click", (event) => this.pick(event));
    this.canvas.addEventListener("keydown", (event) => this.move(event));
  }

  /** labels: one for each row; starts: rows at which another text begins; values: [rows · rows]. */
  show({ labels, starts, values, range }) {
    this.labels = labels;
    this.starts = starts;
    this.values = values;
    this.range = range;
    this.size = labels.length;
    this.image = imageOf(values, this.size, range);
    this.layOut();
  }

  mark(marks) {
    Object.assign(this.marks, marks);
    this.draw();
  }

  /** True if the whole map has cells that are too small to read. */
  get isDense() {
    return this.wholeCell < LARGE_CELL - 8;
  }

  layOut() {
    if (!this.size || !this.box.clientWidth) return;
    const styles = getComputedStyle(this.canvas);
    this.colors = { ink: styles.color, accent: styles.accentColor, back: styles.backgroundColor };
    const width = this.box.parentElement.querySelector(".readout").clientWidth;
    this.gutter = this.labelWidth(Math.min(LONGEST_LABEL, width / 4));
    const byHeight = Math.max(18, (0.85 * innerHeight - this.gutter) / this.size);
    this.wholeCell = Math.min(LARGEST_CELL, (width - this.gutter) / this.size);
    if (this.isDense) this.wholeCell = Math.min(this.wholeCell, byHeight);
    this.cell = this.large && this.isDense ? LARGE_CELL : this.wholeCell;
    if (this.cell < CELL_WITH_LABEL) this.gutter = 0;
    if (!this.gutter) this.cell = this.wholeCell = Math.min(byHeight, width / this.size);
    const whole = Math.ceil(this.gutter + this.size * this.cell);
    this.room.style.width = this.room.style.height = `${whole}px`;
    this.box.style.height = `${Math.min(whole, Math.max(320, 0.85 * innerHeight))}px`;
    this.fitCanvas();
    this.draw();
  }

  fitCanvas() {
    const scale = devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.box;
    const width = Math.min(clientWidth, this.room.offsetWidth);
    const height = Math.min(clientHeight, this.room.offsetHeight);
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    Object.assign(this.canvas.dataset, { cell: this.cell, gutter: this.gutter });
    this.scale = scale;
    this.width = width;
    this.height = height;
  }

  labelWidth(limit) {
    const context = this.canvas.getContext("2d");
    context.font = `12px ${FONT}`;
    const widest = Math.max(...this.labels.map((label) => context.measureText(label).width));
    return Math.ceil(Math.min(widest, limit)) + 8;
  }

  draw() {
    if (!this.size || !this.cell) return;
    const context = this.canvas.getContext("2d");
    context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    context.save();
    context.beginPath();
    context.rect(this.gutter, this.gutter, this.width, this.height);
    context.clip();
    this.drawCells(context);
    this.drawMarks(context);
    context.restore();
    if (this.gutter) this.drawLabels(context);
  }

  /** Where the left edge of a column is. */
  x(column) {
    return this.gutter + column * this.cell - this.box.scrollLeft;
  }

  y(row) {
    return this.gutter + row * this.cell - this.box.scrollTop;
  }

  /** The columns and the rows that are in sight: [first, end] of each. */
  inSight() {
    const part = (offset, length) => [
      Math.max(0, Math.floor(offset / this.cell)),
      Math.min(this.size, Math.ceil((offset + length - this.gutter) / this.cell)),
    ];
    return [part(this.box.scrollLeft, this.width), part(this.box.scrollTop, this.height)];
  }

  drawCells(context) {
    const whole = this.size * this.cell;
    context.imageSmoothingEnabled = this.cell < 1;
    context.drawImage(this.image, this.x(0), this.y(0), whole, whole);
    if (this.cell >= CELL_WITH_VALUE) this.drawValues(context);
  }

  drawValues(context) {
    const [[left, right], [top, bottom]] = this.inSight();
    Object.assign(context, { font: "11px system-ui, sans-serif", textAlign: "center", textBaseline: "middle" });
    for (let row = top; row < bottom; row++) {
      for (let column = left; column < right; column++) {
        const value = this.values[row * this.size + column];
        context.fillStyle = inkOn(colorOf(value, this.range));
        context.fillText(shortNumber(value), this.x(column + 0.5), this.y(row + 0.5));
      }
    }
  }

  drawMarks(context) {
    const whole = this.size * this.cell;
    const { pinned, row, column } = this.marks;
    const outline = (x, y, width, height, color, line) => {
      Object.assign(context, { strokeStyle: color, lineWidth: line });
      context.strokeRect(x, y, width, height);
    };
    const twice = (...place) => {
      outline(...place, "#000", 4);
      outline(...place, "#fff", 2);
    };
    for (const start of this.starts) {
      Object.assign(context, { fillStyle: this.colors.back });
      context.fillRect(this.x(start) - 1.5, this.y(0), 3, whole);
      context.fillRect(this.x(0), this.y(start) - 1.5, whole, 3);
    }
    if (pinned !== null) {
      outline(this.x(0), this.y(pinned), whole, this.cell, this.colors.accent, 2);
      outline(this.x(pinned), this.y(0), this.cell, whole, this.colors.accent, 2);
    }
    if (row !== null && column !== null) twice(this.x(column), this.y(row), this.cell, this.cell);
  }

  drawLabels(context) {
    const [columns, rows] = this.inSight();
    const room = this.gutter - 6;
    Object.assign(context, { textAlign: "right", textBaseline: "middle" });
    const label = (index, x, y, turn, marked) => {
      const isPinned = index === this.marks.pinned;
      context.font = `${isPinned || marked ? "bold " : ""}${Math.min(12, this.cell)}px ${FONT}`;
      context.fillStyle = isPinned ? this.colors.accent : this.colors.ink;
      context.save();
      context.translate(x, y);
      context.rotate(turn);
      context.fillText(this.labels[index], 0, 0, room);
      context.restore();
    };
    const { back } = this.colors;
    Object.assign(context, { fillStyle: back });
    context.fillRect(0, 0, this.width, this.gutter);
    context.fillRect(0, 0, this.gutter, this.height);
    for (let row = rows[0]; row < rows[1]; row++) {
      const y = this.y(row + 0.5);
      if (y > this.gutter) label(row, this.gutter - 4, y, 0, row === this.marks.row);
    }
    context.textAlign = "left";
    for (let column = columns[0]; column < columns[1]; column++) {
      const x = this.x(column + 0.5);
      if (x > this.gutter) label(column, x, this.gutter - 4, -Math.PI / 2, column === this.marks.column);
    }
    context.fillStyle = back;
    context.fillRect(0, 0, this.gutter - 1, this.gutter - 1);
  }

  /** The [row, column] under the pointer, or null. */
  cellAt(event) {
    const { left, top } = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - left, event.clientY - top];
    if (x < this.gutter || y < this.gutter) return null;
    const column = Math.floor((x - this.gutter + this.box.scrollLeft) / this.cell);
    const row = Math.floor((y - this.gutter + this.box.scrollTop) / this.cell);
    return row < this.size && column < this.size ? [row, column] : null;
  }

  follow(event) {
    const cell = this.cellAt(event);
    this.onPoint(cell ? cell[0] : null, cell ? cell[1] : null, event);
  }

  /** The cell that the arrow keys have reached stays when the pointer goes. */
  leave() {
    const isFocused = document.activeElement === this.canvas;
    this.onPoint(isFocused ? this.marks.row : null, isFocused ? this.marks.column : null);
  }

  pick(event) {
    const cell = this.cellAt(event);
    if (cell) this.onPick(...cell);
  }

  move(event) {
    const last = this.size - 1;
    const row = this.marks.row ?? this.marks.pinned ?? 0;
    const column = this.marks.column ?? row;
    const moves = {
      ArrowUp: [row - 1, column],
      ArrowDown: [row + 1, column],
      ArrowLeft: [row, column - 1],
      ArrowRight: [row, column + 1],
      Home: [row, 0],
      End: [row, last],
      PageUp: [0, column],
      PageDown: [last, column],
    };
    if (event.key === "Enter" || event.key === " ") this.onPick(row, column);
    else if (moves[event.key]) this.goTo(...moves[event.key].map((i) => Math.min(Math.max(i, 0), last)));
    else return;
    event.preventDefault();
  }

  goTo(row, column) {
    this.bring(row, column);
    this.onPoint(row, column);
  }

  /** Scrolls until a cell is in sight. */
  bring(row, column) {
    const near = (offset, length, index) => {
      const room = length - this.gutter - this.cell;
      return Math.min(Math.max(offset, index * this.cell - room), index * this.cell);
    };
    this.box.scrollTop = near(this.box.scrollTop, this.height, row);
    this.box.scrollLeft = near(this.box.scrollLeft, this.width, column);
  }
}
