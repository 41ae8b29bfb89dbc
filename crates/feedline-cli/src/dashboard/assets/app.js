// The page: listens to the dashboard, has a card for each feed, and tells how it hears.

import { Card } from './card.js';
import { element, match, set, write } from './dom.js';
import { plural } from './words.js';

const RANGES = [
  [60, '1 min'],
  [300, '5 min'],
  [900, '15 min'],
];
const RETRY_MS = 1500;

const find = (id) => document.getElementById(id);
const page = { at: 0, keptSecs: 900, intervalSecs: 1, rangeSecs: Number(remembered('range')) || 300 };
const cards = new Map();
let source = null;
let updatedAt = performance.now();
let isLost = false;

function remembered(key) {
  try {
    return localStorage.getItem(`feedline-${key}`);
  } catch {
    return null;
  }
}

function remember(key, value) {
  try {
    localStorage.setItem(`feedline-${key}`, value);
  } catch {
    // A browser that keeps nothing still shows everything.
  }
}

// --- hearing ---

function listen() {
  source?.close();
  updatedAt = performance.now();
  source = new EventSource('/api/live');
  source.addEventListener('snapshot', (event) => receive(JSON.parse(event.data), true));
  source.addEventListener('update', (event) => receive(JSON.parse(event.data), false));
  source.addEventListener('error', () => lost(source.readyState === EventSource.CLOSED));
}

function receive(message, isWhole) {
  updatedAt = performance.now();
  isLost = false;
  page.at = message.at;
  if (isWhole) {
    [page.keptSecs, page.intervalSecs] = [message.kept_secs, message.interval_secs];
    write(find('folder'), message.folder);
    document.documentElement.dataset.version = message.version;
  }
  tell('live', 'live');
  show(message.feeds, isWhole);
}

/** The browser tries again by itself, unless the answer was no. */
async function lost(isRefused) {
  isLost = true;
  tell('lost', 'the dashboard is gone; trying again');
  if (!isRefused) return;
  setTimeout(listen, RETRY_MS);
  const answer = await fetch('/api/feeds', { method: 'HEAD' }).catch(() => null);
  if (answer?.status === 401 && isLost) tell('lost', 'the dashboard asks for its token: open the URL that it printed');
}

function watchSilence() {
  const secs = (performance.now() - updatedAt) / 1000;
  if (!isLost && !document.hidden && secs > 5 + 3 * page.intervalSecs)
    tell('lost', `no update for ${Math.round(secs)} s`);
}

function tell(state, text) {
  set(find('status'), 'data-state', state);
  write(find('status-text'), text);
  set(document.body, 'data-lost', state === 'lost' ? '' : null);
}

// --- showing ---

function show(feeds, isWhole) {
  const before = new Map([...cards].map(([name, card]) => [name, card.state.label]));
  const names = new Set(feeds.map(({ name }) => name));
  for (const name of cards.keys()) if (!names.has(name)) cards.delete(name);
  for (const feed of feeds) {
    const isNew = !cards.has(feed.name);
    if (isNew) cards.set(feed.name, new Card(feed.name));
    cards.get(feed.name).take(feed, isWhole || isNew, page);
  }
  const sorted = feeds.map(({ name }) => cards.get(name));
  match(
    find('feeds'),
    sorted,
    (card) => card.feed.name,
    (card) => card.element,
    () => {},
  );
  set(find('empty'), 'hidden', feeds.length ? '' : null);
  showIndex(sorted);
  showSummary(sorted);
  announce(sorted, before);
}

function showIndex(sorted) {
  set(find('index'), 'hidden', sorted.length > 1 ? null : '');
  const make = (card) =>
    element('a', { href: `#feed-${card.feed.name}` }, element('b', {}, card.feed.name), element('span', {}));
  match(
    find('index'),
    sorted,
    (card) => card.feed.name,
    make,
    (link, card) => {
      set(link, 'data-tone', card.state.tone);
      write(link.lastChild, card.state.label);
    },
  );
}

function showSummary(sorted) {
  const live = sorted.filter(({ feed }) => feed.phase === 'live');
  const jobs = live.reduce((sum, { feed }) => sum + feed.view.consumers.length, 0);
  write(find('summary'), sorted.length ? `${plural(live.length, 'feed')} · ${plural(jobs, 'job')}` : '');
  const bad = sorted.filter(({ state }) => state.tone === 'bad').length;
  document.title = `${bad ? '(!) ' : ''}Feedline${live.length ? `: ${plural(live.length, 'feed')}` : ''}`;
}

/** Says what changed to who listens to the page, and not every number. */
function announce(sorted, before) {
  const changed = sorted.filter(({ feed, state }) => before.get(feed.name) !== state.label);
  if (changed.length) write(find('changes'), changed.map(({ feed, state }) => `${feed.name}: ${state.label}`).join(', '));
}

// --- choosing ---

function showRanges() {
  const make = ([secs, text]) => {
    const button = element('button', { type: 'button' }, text);
    button.addEventListener('click', () => {
      page.rangeSecs = secs;
      remember('range', secs);
      showRanges();
      cards.forEach((card) => card.show(page));
    });
    return button;
  };
  match(
    find('ranges'),
    RANGES,
    ([secs]) => secs,
    make,
    (button, [secs]) => set(button, 'aria-pressed', secs === page.rangeSecs),
  );
}

function useTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
}

find('theme').addEventListener('click', () => {
  const system = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  const theme = (document.documentElement.dataset.theme ?? system) === 'dark' ? 'light' : 'dark';
  useTheme(theme);
  remember('theme', theme);
});

// A hidden page needs no updates: what it missed is in the snapshot.
document.addEventListener('visibilitychange', () => {
  if (document.hidden) source?.close();
  else listen();
});

// The token is in a cookie now.
if (location.search) history.replaceState(null, '', location.pathname + location.hash);
useTheme(remembered('theme'));
showRanges();
listen();
setInterval(watchSilence, 1000);
