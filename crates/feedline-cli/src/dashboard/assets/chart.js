// The time line of a feed: throughput, waiting and fill above each other, and what happened, over the same minutes.

import { element, set, shape } from './dom.js';
import {
  AT,
  HISTORY,
  LINES,
  RING,
  SAMPLES,
  WAITING,
  areaOf,
  consumerLines,
  nearest,
  niceTop,
  pathText,
  runsOf,
  signPath,
} from './lines.js';
import { ago, amount, clock, happening, markText, percent, scaled } from './words.js';

const LEFT = 46;
const RIGHT = 8;
const TITLE = 20;
const GAP = 12;
const LANE = 26;
const AXIS = 18;
const COLOURS = 8;
/** Of lines that aren't one line. */
const LEGEND = { jobs: '╸', space: '╍', history: '╍' };

const PANELS = [
  {
    title: (units) => `Throughput, ${units}/s`,
    height: 104,
    format: scaled,
    legend: [
      ['source', 'source'],
      ['jobs', 'jobs', ', by colour'],
    ],
    series: [{ name: 'source', value: (point) => point[SAMPLES] }],
    line: 2,
  },
  {
    title: () => 'Share of time waiting',
    height: 64,
    top: 1,
    format: percent,
    legend: [
      ['space', 'source', ', for space'],
      ['jobs', 'jobs', ', for data'],
    ],
    series: [{ name: 'space', value: (point) => point[WAITING] }],
    line: 3,
  },
  {
    title: () => 'Fill',
    height: 52,
    top: 1,
    format: percent,
    legend: [
      ['ring', 'ring'],
      ['history', 'history'],
    ],
    series: [
      { name: 'ring', value: (point) => point[RING] },
      { name: 'history', value: (point) => point[HISTORY] },
    ],
  },
];

/** Gives every consumer a colour that no other one beside it has, while there are enough. */
export class Colours {
  #slots = new Map();

  meet(point) {
    const keys = (point[LINES] ?? []).map(([key]) => key);
    for (const key of keys.filter((key) => !this.#slots.has(key))) {
      const taken = new Set(keys.map((other) => this.#slots.get(other)));
      const free = [...Array(COLOURS).keys()].find((slot) => !taken.has(slot));
      this.#slots.set(key, free ?? this.#slots.size % COLOURS);
    }
  }

  of(key) {
    return this.#slots.get(key);
  }

  forgetAllBut(points) {
    const keys = new Set(points.flatMap((point) => (point[LINES] ?? []).map(([key]) => key)));
    for (const key of this.#slots.keys()) if (!keys.has(key)) this.#slots.delete(key);
  }
}

export class TimeLine {
  #svg = shape('svg', { role: 'img' });
  #tip = element('div', { class: 'tip', hidden: '' });
  #cursor = shape('line', { class: 'cursor', visibility: 'hidden' });
  #data = { points: [], marks: [], units: 'samples', from: 0, to: 1 };
  #picked = null;
  #colours;
  #width = 0;

  constructor(name, colours) {
    this.#colours = colours;
    const label = `Time line of ${name}; the arrow keys move through time`;
    this.element = element(
      'div',
      { class: 'timeline', tabindex: '0', role: 'group', 'aria-label': label },
      this.#svg,
      this.#tip,
    );
    new ResizeObserver(([entry]) => {
      this.#width = Math.round(entry.contentRect.width);
      this.#paint();
    }).observe(this.element);
    this.element.addEventListener('pointermove', (event) => this.#point(event));
    this.element.addEventListener('pointerdown', (event) => this.#point(event));
    this.element.addEventListener('pointerleave', () => this.#pick(null));
    this.element.addEventListener('blur', () => this.#pick(null));
    this.element.addEventListener('keydown', (event) => this.#step(event));
    this.#svg.setAttribute('height', totalHeight());
  }

  /** Shows the points and marks from one time to another. */
  draw(data) {
    this.#data = data;
    this.#paint();
  }

  #x(at) {
    const { from, to } = this.#data;
    return LEFT + ((at - from) / (to - from)) * (this.#width - LEFT - RIGHT);
  }

  #paint() {
    if (this.#width < 100) return;
    const { points, from, to } = this.#data;
    // One point before the left edge, so that lines come from there.
    const first = Math.max(points.findIndex((point) => point[AT] >= from) - 1, 0);
    const shown = points.slice(first).filter((point) => point[AT] <= to);
    this.#svg.setAttribute('viewBox', `0 0 ${this.#width} ${totalHeight()}`);
    this.#svg.setAttribute('width', this.#width);
    this.#svg.setAttribute('aria-label', this.#summary(shown));
    const parts = [];
    panelSpans().forEach(([top], index) => parts.push(...this.#panel(PANELS[index], top, shown)));
    const y = totalHeight() - LANE - AXIS;
    parts.push(...this.#lane(y), ...this.#axis(y + LANE), this.#cursor);
    this.#svg.replaceChildren(...parts);
    if (this.#picked !== null) this.#showTip();
  }

  /** Draws nothing beside the area between the scales. */
  #clipped(...parts) {
    const [width, height] = [this.#width - LEFT - RIGHT, totalHeight()];
    return shape('svg', { x: LEFT, width, height, viewBox: `${LEFT} 0 ${width} ${height}` }, ...parts);
  }

  #panel(panel, y, points) {
    const lines = panel.line ? consumerLines(points, panel.line) : [];
    const values = [
      ...points.flatMap((point) => panel.series.map(({ value }) => value(point) ?? 0)),
      ...lines.flatMap((line) => line.highest),
    ];
    const top = panel.top ?? niceTop(Math.max(0, ...values));
    const height = (value) => y + panel.height * (1 - Math.min(value / top, 1));
    const parts = [
      shape('text', { class: 'title', x: LEFT, y: y - 7 }, panel.title(this.#data.units)),
      legend(panel.legend, this.#width - RIGHT, y - 7, this.#width > 480),
    ];
    for (const share of panel.height > 90 ? [0, 0.5, 1] : [0, 1]) {
      const at = height(top * share);
      parts.push(shape('line', { class: share ? 'grid' : 'base', x1: LEFT, x2: this.#width - RIGHT, y1: at, y2: at }));
      parts.push(shape('text', { class: 'scale', x: LEFT - 6, y: at + 3.5 }, panel.format(top * share, top)));
    }
    const drawn = [];
    for (const { name, value } of panel.series) {
      const runs = runsOf(points.map((point) => [this.#x(point[AT]), point.length > 1 ? height(value(point)) : null]));
      if (name === 'ring' || name === 'source')
        drawn.push(shape('path', { class: `area ${name}`, d: areaOf(runs, y + panel.height) }));
      drawn.push(shape('path', { class: `line ${name}`, d: runs.map(pathText).join('') }));
    }
    for (const { key, values } of lines) {
      const runs = runsOf(values.map(([at, value]) => [this.#x(at), value === null ? null : height(value)]));
      drawn.push(shape('path', { class: `line job c${this.#colours.of(key)}`, d: runs.map(pathText).join('') }));
    }
    return [...parts, this.#clipped(...drawn)];
  }

  #lane(y) {
    const parts = [shape('text', { class: 'scale', x: LEFT - 6, y: y + LANE / 2 + 3.5 }, 'events')];
    const { marks, from, to } = this.#data;
    const spans = [...panelSpans(), [y, y + LANE / 2]];
    let lastEpoch = -Infinity;
    for (const mark of marks.filter(({ at }) => at >= from && at <= to)) {
      const { tone, form } = happening(mark.kind);
      const x = this.#x(mark.at);
      if (mark.kind === 'epoch') {
        // Short epochs: as many as can be told apart.
        if (x - lastEpoch < 6) continue;
        lastEpoch = x;
      }
      parts.push(
        shape('path', {
          class: `mark ${tone}`,
          d: spans.map(([top, bottom]) => `M${x.toFixed(1)},${top}V${bottom}`).join(''),
        }),
      );
      const sign = shape('path', { class: `sign ${tone}`, d: signPath(form, x, y + LANE / 2), 'data-kind': mark.kind });
      sign.append(shape('title', {}, `${clock(mark.at)} ${happening(mark.kind).word} ${markText(mark)}`));
      parts.push(sign);
    }
    return parts;
  }

  #axis(y) {
    const { from, to } = this.#data;
    const minutes = (to - from) / 60000;
    const texts = [
      [0, 'start', `−${minutes} min`],
      [0.5, 'middle', `−${minutes / 2} min`],
      [1, 'end', 'now'],
    ];
    return texts.map(([share, anchor, text]) =>
      shape('text', { class: 'when', 'text-anchor': anchor, x: this.#x(from + share * (to - from)), y: y + 12 }, text),
    );
  }

  #summary(points) {
    const known = points.filter((point) => point.length > 1);
    if (!known.length) return 'Charts: no numbers yet';
    const last = known.at(-1);
    const rates = known.map((point) => point[SAMPLES]);
    const waits = last[LINES].map(([, pid, , wait]) => `pid ${pid} waits ${percent(wait)}`);
    return (
      `Charts: the source gives ${amount(last[SAMPLES])} ${this.#data.units}/s, ` +
      `between ${amount(Math.min(...rates))} and ${amount(Math.max(...rates))} lately; ` +
      `ring ${percent(last[RING])} full; ${waits.join(', ') || 'no jobs'}`
    );
  }

  #point(event) {
    const x = event.clientX - this.element.getBoundingClientRect().left;
    const { from, to } = this.#data;
    const share = (x - LEFT) / (this.#width - LEFT - RIGHT);
    this.#pick(share < 0 || share > 1 ? null : from + share * (to - from));
  }

  #step(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === 'Escape') this.#pick(null);
    if (!step) return;
    event.preventDefault();
    const { from, to } = this.#data;
    const at = (this.#picked ?? to) + (step * (to - from)) / 60;
    this.#pick(Math.min(Math.max(at, from), to));
  }

  #pick(at) {
    this.#picked = at;
    if (at === null) {
      this.#tip.hidden = true;
      this.#cursor.setAttribute('visibility', 'hidden');
    } else {
      this.#showTip();
    }
  }

  #showTip() {
    const { points, marks, units, from, to } = this.#data;
    const at = Math.min(Math.max(this.#picked, from), to);
    const x = this.#x(at);
    const place = { x1: x, x2: x, y1: TITLE, y2: totalHeight() - AXIS, visibility: 'visible' };
    Object.entries(place).forEach(([name, value]) => set(this.#cursor, name, value));
    const reach = ((to - from) / (this.#width - LEFT - RIGHT)) * 7;
    const near = marks.filter((mark) => Math.abs(mark.at - at) <= reach).slice(-5);
    const point = nearest(points, at, Math.max(reach, 5000));
    const rows = [element('div', { class: 'when' }, `${clock(at)}, ${ago((to - at) / 1000)}`)];
    if (point) {
      rows.push(row('source', 'source', `${amount(point[SAMPLES])} ${units}/s`));
      for (const [key, pid, rate, wait] of point[LINES].slice(0, 10)) {
        rows.push(
          row(`job c${this.#colours.of(key)}`, `pid ${pid}`, `${amount(rate)} ${units}/s, waits ${percent(wait)}`),
        );
      }
      rows.push(row('ring', 'ring', `${percent(point[RING])} full`));
    }
    for (const mark of near) {
      const { tone, word } = happening(mark.kind);
      rows.push(element('div', { class: `happened ${tone}` }, `${word} ${markText(mark)}`));
    }
    this.#tip.replaceChildren(...rows);
    this.#tip.hidden = false;
    const width = this.#tip.offsetWidth;
    const side = x + 14 + width > this.#width ? x - 14 - width : x + 14;
    this.#tip.style.left = `${Math.max(0, Math.min(side, this.#width - width))}px`;
  }
}

/** From where to where each panel's lines go. */
function panelSpans() {
  let y = 0;
  return PANELS.map(({ height }) => {
    const top = y + TITLE;
    y = top + height + GAP;
    return [top, top + height];
  });
}

const totalHeight = () => PANELS.reduce((sum, panel) => sum + TITLE + panel.height + GAP, 0) + LANE + AXIS;

const row = (kind, name, text) =>
  element('div', { class: 'value' }, element('i', { class: kind }), element('b', {}, name), element('span', {}, text));

function legend(entries, right, y, isWide) {
  const text = shape('text', { class: 'legend', x: right, y, 'text-anchor': 'end' });
  entries.forEach(([kind, name, more], index) => {
    const keys = kind === 'jobs' ? ['c0', 'c1', 'c2'] : [kind];
    keys.forEach((key, part) =>
      text.append(shape('tspan', { class: `key ${key}`, dx: index && !part ? 12 : 0 }, LEGEND[kind] ?? '━')),
    );
    text.append(shape('tspan', { dx: 4 }, name + (isWide && more ? more : '')));
  });
  return text;
}
