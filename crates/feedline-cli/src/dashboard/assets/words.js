// Numbers and kinds, as a person reads them.

const GAP = '\u00a0';

/** Whole things: 12,400. */
export const count = (number) => Math.round(number).toLocaleString('en');

/** Three digits: 0.42, 3.14, 31.4, 314, 3,140, 31.4 k, 3.14 M. */
export function amount(number) {
  if (!(number > 0)) return '0';
  if (number < 9999.5) return digits(number);
  const scales = [
    [1e9, 'G'],
    [1e6, 'M'],
    [1e3, 'k'],
  ];
  const [scale, letter] = scales.find(([scale]) => number >= scale * 0.9995);
  return digits(number / scale) + GAP + letter;
}

function digits(number) {
  if (number < 9.995) return number.toFixed(2);
  return number < 99.95 ? number.toFixed(1) : count(number);
}

/** On a scale that ends at `top`: 0, 5 k, 10 k. */
export function scaled(number, top) {
  const [scale, letter] = [
    [1e9, 'G'],
    [1e6, 'M'],
    [1e3, 'k'],
  ].find(([scale]) => top >= scale) ?? [1, ''];
  const text = String(Number((number / scale).toPrecision(3)));
  return letter && number ? text + GAP + letter : text;
}

/** 512 MB. */
export function bytes(number) {
  const scales = [
    [1e12, 'TB'],
    [1e9, 'GB'],
    [1e6, 'MB'],
    [1e3, 'kB'],
  ];
  const [scale, unit] = scales.find(([scale]) => number >= scale * 0.9995) ?? [1, 'B'];
  return (scale === 1 ? count(number) : digits(number / scale)) + GAP + unit;
}

/** 61 %. */
export const percent = (share) => `${Math.round(100 * Math.min(Math.max(share, 0), 1))}${GAP}%`;

/** 0.42 s, 7.1 s, 3m07s, 2h05m, 4d03h. */
export function duration(secs) {
  if (secs < 1) return `${Math.max(secs, 0).toFixed(2)}${GAP}s`;
  if (secs < 10) return `${secs.toFixed(1)}${GAP}s`;
  const whole = Math.round(secs);
  const two = (number) => String(number).padStart(2, '0');
  if (whole < 60) return `${whole}${GAP}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h${two(Math.floor(whole / 60) % 60)}m`;
  return `${Math.floor(whole / 86400)}d${two(Math.floor(whole / 3600) % 24)}h`;
}

/** How long ago, without a digit that changes every moment. */
export function ago(secs) {
  if (secs < 60) return `${Math.floor(Math.max(secs, 0))}${GAP}s ago`;
  return secs < 3600 ? `${Math.floor(secs / 60)}${GAP}min ago` : `${duration(secs)} ago`;
}

/** 14:03:07, here. */
export const clock = (ms) => new Date(ms).toLocaleTimeString('en-GB');

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** What a feed counts as samples; batches that can't be cut count as one each. */
export const unitsOf = (view) => (view?.whole_batches ? 'batches' : 'samples');

const VERDICTS = {
  'loader-bound': ['warn', 'Loader-bound'],
  'held-back': ['warn', 'Held back'],
  'disk-bound': ['warn', 'Disk-bound'],
  'copy-bound': ['warn', 'Copy-bound'],
  stuck: ['bad', 'Stuck'],
  failed: ['bad', 'Failed'],
  'trainers-bound': ['good', 'All good'],
  balanced: ['good', 'Balanced'],
  loaded: ['good', 'All loaded'],
  quiet: ['calm', 'Quiet'],
};

/** Its tone, a short label, and the rest: no word twice. */
export function verdictWords({ kind, text }) {
  const [tone, label] = VERDICTS[kind] ?? ['calm', kind.replaceAll('-', ' ')];
  const plain = (words) => words.toLowerCase().replaceAll('-', ' ');
  const isTwice = plain(text).startsWith(plain(kind));
  return { tone, label, text: isTwice ? text.slice(kind.length).replace(/^:?\s*/, '') : text };
}

/** What happened: a word, and how it is drawn. */
export const HAPPENINGS = {
  joined: { word: 'joined', tone: 'good', form: 'up' },
  left: { word: 'left', tone: 'calm', form: 'down' },
  died: { word: 'died', tone: 'bad', form: 'cross' },
  detached: { word: 'detached', tone: 'bad', form: 'cross' },
  epoch: { word: 'epoch', tone: 'faint', form: 'tick' },
  abandoned: { word: 'broken off', tone: 'calm', form: 'cross' },
  ring: { word: 'ring', tone: 'calm', form: 'dot' },
  stuck: { word: 'loader stuck', tone: 'bad', form: 'cross' },
  failed: { word: 'failed', tone: 'bad', form: 'cross' },
  stopped: { word: 'stopped', tone: 'calm', form: 'square' },
  started: { word: 'started', tone: 'good', form: 'square' },
  ended: { word: 'ended', tone: 'calm', form: 'square' },
  vanished: { word: 'vanished', tone: 'bad', form: 'square' },
  silent: { word: 'silent', tone: 'warn', form: 'cross' },
  answers: { word: 'answers', tone: 'good', form: 'dot' },
};

export const happening = (kind) => HAPPENINGS[kind] ?? { word: kind, tone: 'calm', form: 'dot' };

/** One line for it. */
export const markText = (mark) => [mark.pid ? `pid ${mark.pid}` : '', mark.text].filter(Boolean).join(': ');

/** How a consumer gets its bytes. */
export function modeWords({ mode, copies_because }) {
  if (mode === 'copy') return copies_because ? `copies: ${copies_because}` : 'copies';
  return { cow: 'zero-copy', readonly: 'read-only' }[mode] ?? mode;
}

/** A command without the folders of its program and its script. */
export function shortCommand(command) {
  const bare = (word) => word.slice(word.lastIndexOf('/') + 1);
  const words = command.split(' ');
  return words.map((word, index) => (index === 0 || (index < 3 && word.endsWith('.py')) ? bare(word) : word)).join(' ');
}

/** What a consumer is doing. */
export function consumerState({ joined, waiting, resting, state }) {
  if (state === 'T' || state === 't') return ['bad', 'stopped'];
  if (waiting) return ['warn', 'waits'];
  if (!joined) return ['calm', 'attached'];
  return resting ? ['calm', 'rests'] : ['good', 'reads'];
}
