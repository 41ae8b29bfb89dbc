// The table of jobs: who reads, how fast, and who waits.

import { element, match, set, write } from './dom.js';
import { amount, consumerState, count, duration, modeWords, percent, plural, shortCommand } from './words.js';

const KEYS_PER_RUN = 2 ** 32;

const COLUMNS = [
  ['Job', 'job'],
  ['User', 'user'],
  ['Command', 'command'],
  ['Now', 'now'],
  ['Batch size', 'number'],
  ['Batches/s', 'number'],
  ['Samples/s', 'number'],
  ['Waits for data', 'share'],
  ['Behind', 'behind'],
  ['Leases', 'number'],
  ['Mode', 'mode'],
];

export class Jobs {
  #colours;
  #caption = element('caption', {});
  #rows = element('tbody', { role: 'rowgroup' });

  constructor(colours) {
    this.#colours = colours;
    const heads = COLUMNS.map(([title, kind]) =>
      element('th', { scope: 'col', role: 'columnheader', class: kind }, title),
    );
    const head = element('thead', { role: 'rowgroup' }, element('tr', { role: 'row' }, ...heads));
    // Roles, since a phone's style makes other boxes of it.
    this.element = element('table', { role: 'table' }, this.#caption, head, this.#rows);
  }

  /** Shows the jobs of one server, its `run`-th; of a feed that isn't live, what they did last. */
  show({ consumers, verdict, whole_batches: isWhole }, run, isLive) {
    write(this.#caption, consumers.length ? plural(consumers.length, 'job') : 'No jobs: nobody reads this feed');
    set(this.element, 'data-empty', consumers.length ? null : '');
    match(
      this.#rows,
      consumers,
      ({ id }) => id,
      makeRow,
      (row, consumer) => {
        set(row, 'data-pid', consumer.pid);
        set(row, 'data-named', verdict.pid && verdict.pid === consumer.pid ? '' : null);
        this.#showJob(row.children, consumer, run, isLive, isWhole);
      },
    );
  }

  #showJob(cells, consumer, run, isLive, isWhole) {
    const [job, user, command, now, size, batches, samples, waits, behind, leases, mode] = cells;
    const slot = this.#colours.of(run * KEYS_PER_RUN + consumer.id);
    const [tone, word] = isLive ? consumerState(consumer) : ['calm', '–'];
    set(job.firstChild, 'class', `swatch c${slot ?? 'none'}`);
    write(job.children[1], consumer.pid ? String(consumer.pid) : 'elsewhere');
    write(job.lastChild, consumer.rank ? `rank ${consumer.rank[0]} of ${consumer.rank[1]}` : '');
    write(user, consumer.user);
    write(command.firstChild, shortCommand(consumer.command) || 'in another container, or gone');
    set(command.firstChild, 'title', consumer.command);
    set(now.firstChild, 'data-tone', tone);
    write(now.firstChild, word);
    // It says so when it asks for its first batch.
    const own = consumer.joined ? 'own' : '';
    write(size, consumer.batch_size === null ? own : count(consumer.batch_size / (consumer.rank?.[1] ?? 1)));
    write(batches, amount(consumer.batches_per_sec));
    write(samples, isWhole ? '–' : amount(consumer.samples_per_sec));
    const [share, bar] = waits.firstChild.children;
    write(share, percent(consumer.wait_share));
    bar.firstChild.style.width = `${Math.min(consumer.wait_share, 1) * 100}%`;
    write(
      behind.firstChild,
      consumer.lag_samples ? `${count(consumer.lag_samples)} · ${duration(consumer.lag_secs)}` : '0',
    );
    write(behind.lastChild, consumer.skipped ? `skipped ${count(consumer.skipped)}` : '');
    const untaken = plural(consumer.lag_samples, ...(isWhole ? ['batch', 'batches'] : ['sample']));
    set(behind, 'title', `${untaken} that it has not taken, and how old the first of them is`);
    write(leases, count(consumer.leases));
    write(mode, modeWords(consumer));
  }
}

function makeRow() {
  const inner = {
    job: () => [element('i', { class: 'swatch' }), element('span', {}), element('small', {})],
    command: () => [element('span', {})],
    now: () => [element('span', { class: 'word' })],
    behind: () => [element('span', {}), element('small', {})],
    share: () => [
      element(
        'div',
        {},
        element('span', {}),
        element('div', { class: 'bar small', 'aria-hidden': 'true' }, element('i')),
      ),
    ],
  };
  const cells = COLUMNS.map(([title, kind]) =>
    element('td', { role: 'cell', class: kind, 'data-title': title }, ...(inner[kind]?.() ?? [])),
  );
  return element('tr', { role: 'row' }, ...cells);
}
