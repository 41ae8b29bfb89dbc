// Points to lines: plain arithmetic.

// Where in a point things stand.
export const [AT, SAMPLES, BYTES, LOADING, COPYING, WAITING, RING, HISTORY, LINES] = [0, 1, 2, 3, 4, 5, 6, 7, 8];

/** The numbers of that time, if there are any. */
export function nearest(points, at, reach) {
  let best = null;
  for (const point of points) if (!best || Math.abs(point[AT] - at) <= Math.abs(best[AT] - at)) best = point;
  return best && best.length > 1 && Math.abs(best[AT] - at) <= reach ? best : null;
}

/** The line of each consumer: `[at, value]`, with `null` where it was not there. */
export function consumerLines(points, column) {
  const lines = new Map();
  points.forEach((point, index) => {
    for (const line of point[LINES] ?? []) {
      const known = lines.get(line[0]) ?? { key: line[0], values: [], highest: [0], last: index };
      if (known.last < index - 1) known.values.push([point[AT], null]);
      known.values.push([point[AT], line[column]]);
      known.highest[0] = Math.max(known.highest[0], line[column]);
      known.last = index;
      lines.set(line[0], known);
    }
  });
  return [...lines.values()];
}

/** Parts points into runs without a gap. */
export function runsOf(points) {
  const runs = [[]];
  for (const point of points) {
    if (point[1] === null) runs.push([]);
    else runs.at(-1).push(point);
  }
  return runs.filter((run) => run.length);
}

export const pathText = (run) =>
  `M${run.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join('L')}${run.length === 1 ? 'h.1' : ''}`;

export const areaOf = (runs, base) => runs.map((run) => `${pathText(run)}V${base}H${run[0][0].toFixed(1)}Z`).join('');

/** 1, 2, 2.5 or 5 times a power of ten, with some room above. */
export function niceTop(highest) {
  if (!(highest > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(highest * 1.05));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((top) => top >= highest * 1.05) ?? 10 * power;
}

/** A mark: its form tells what happened, its colour only how bad it is. */
export function signPath(form, x, y) {
  const forms = {
    up: `M${x},${y - 5}l5,9h-10z`,
    down: `M${x},${y + 5}l5,-9h-10z`,
    cross: `M${x - 4},${y - 4}l8,8m0,-8l-8,8`,
    tick: `M${x},${y - 5}v10`,
    square: `M${x - 4},${y - 4}h8v8h-8z`,
    dot: `M${x - 4},${y}a4,4 0 1,0 8,0a4,4 0 1,0 -8,0`,
  };
  return forms[form];
}
