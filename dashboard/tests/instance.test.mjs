// What the page of an instance draws: its timeline, its history and its family.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { begin, call, checkAccess, eventually } from './support.mjs';

let server, page, check, open, confirm;
let end;

before(async () => {
  ({ server, page, check, open, confirm, end } = await begin());
});

after(async () => {
  await end?.();
});

test('a bar of the timeline opens the pair of events, and the timeline zooms', async () => {
  await open('instance?id=order-1001');
  await page.getByRole('button', { name: /ChargeCard, attempt 1/ }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('ActivityScheduled').waitFor();
  await dialog.getByText('ActivityFailed').waitFor();
  await checkAccess(page, 'the dialog of a step');
  await page.keyboard.press('Escape');
  await page.getByLabel('Zoom in').click();
  await page.getByRole('button', { name: 'Whole' }).click();
  const map = await page.locator('.map').boundingBox();
  await page.mouse.move(map.x + 20, map.y + 20);
  await page.mouse.down();
  await page.mouse.move(map.x + map.width / 2, map.y + 20, { steps: 4 });
  await page.mouse.up();
  await page.locator('.brush').waitFor();
  check();
});

test('the timeline draws what queues, what is tried again, and the pause between attempts, with the errors', async () => {
  await open('instance?id=training-3');
  await page.locator('.attempt .bar.queued').waitFor();
  await open('instance?id=order-1001');
  await page.locator('.thread').first().waitFor();
  const box = (n) => page.getByRole('button', { name: new RegExp(`ChargeCard, attempt ${n}`) }).boundingBox();
  const [first, second] = [await box(1), await box(2)];
  assert.ok(second.x > first.x + first.width + 10, 'there is a gap between the attempts');
  assert.match(await page.getByRole('button', { name: /ChargeCard, attempt 1/ }).getAttribute('title'), /bank: connection reset by peer/);
  // The store keeps these attempts: the history has no event of them.
  await open('instance?id=delivery-5');
  await page.locator('.attempt .bar.tried').waitFor();
  await page.locator('.attempt .bar.ahead').waitFor();
  await page.getByText(/^attempt \d+, next in .* – nobody is at home$/).waitFor();
  await page.getByRole('button', { name: /RingTheBell, open, .*attempt \d+, next in/ }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('Next attempt').waitFor();
  await dialog.getByText('The last attempt: nobody is at home').waitFor();
  await page.keyboard.press('Escape');
  await checkAccess(page, 'a timeline with attempts that the store keeps');
  check();
});

test('the badge counts the attempts that have begun, and the one to come is said to come', async () => {
  await open('instance?id=delivery-5&tab=timeline');
  // Both are of the same moment.
  const told = await eventually('the third attempt is to come', async () => {
    const lane = await page.locator('.lane').filter({ hasText: 'RingTheBell' }).textContent();
    const found = /×(\d+).*attempt (\d+), next in/.exec(lane.replaceAll('\n', ' '));
    return found && Number(found[1]) > 1 && found;
  });
  assert.equal(Number(told[2]), Number(told[1]) + 1);
  check();
});

test('activities of one name that an instance waits for are told apart by their inputs', async () => {
  await open('instance?id=video-88&tab=waiting');
  for (const size of ['1080p', '720p', '480p']) {
    await page.getByRole('listitem').filter({ hasText: 'Transcode' }).filter({ hasText: size }).waitFor();
  }
  check();
});

test('an error stands beside its bar, and the line of now moves', async () => {
  await open('instance?id=settlement-q4/europe/madrid');
  await page.getByText('clearing: the bank of Madrid is closed').first().waitFor();
  await open('instance?id=report-2026-11/east');
  await page.locator('.remark').getByText('sales_east').waitFor();
  await open('instance?id=backup-nightly');
  const now = page.locator('.now').first();
  await now.waitFor();
  // The whole grows with the time, so the line moves in a part of it.
  const map = await page.locator('.map').boundingBox();
  await page.mouse.move(map.x + map.width * 0.3, map.y + 20);
  await page.mouse.down();
  await page.mouse.move(map.x + map.width - 1, map.y + 20, { steps: 4 });
  await page.mouse.up();
  const left = () => now.evaluate((line) => parseFloat(line.style.left));
  const before = await left();
  await eventually('it moves', async () => (await left()) > before);
  check();
});

test('a failure far below shows above, and a branch is read when it is opened', async () => {
  await eventually('the grandchild failed', async () => (await call(server.url, '/instances?root=settlement-q4&state=failed')).instances.length === 1);
  const asked = [];
  page.on('request', (request) => {
    const parent = new URL(request.url()).searchParams.get('parent');
    if (parent) asked.push(parent);
  });
  const node = (id) => page.locator('.node').filter({ has: page.getByRole('link', { name: id, exact: true }) });
  await open('instance?id=settlement-q4&tab=tree');
  await node('settlement-q4').getByText('1 in trouble below').waitFor();
  await node('settlement-q4/europe').getByText('1 in trouble below').waitFor();
  assert.equal(await node('settlement-q4/asia').getByText('in trouble').count(), 0);
  assert.equal(await page.getByLabel('Children of settlement-q4/asia').count(), 0);
  assert.ok(!asked.includes('settlement-q4/europe'), 'a closed branch was read');
  await page.getByLabel('Children of settlement-q4/europe').click();
  await node('settlement-q4/europe/madrid').getByText('Failed').waitFor();
  assert.ok(asked.includes('settlement-q4/europe'));
  await checkAccess(page, 'an opened tree');
  check();
});

test('who sees more than fifty in trouble is told that there are more', async () => {
  await page.route(/\/api\/v1\/instances\?.*root=settlement-q4.*state=failed/, async (route) => {
    const response = await route.fetch();
    const answer = await response.json();
    await route.fulfill({ json: { ...answer, next: 'more', count: { count: 50, is_more: true } } });
  });
  await open('instance?id=settlement-q4&tab=tree');
  await page.getByText('50+ in trouble below').waitFor();
  await page.getByText('1+ in trouble below').waitFor();
  await page.unrouteAll({ behavior: 'wait' });
  check();
});

test('what has ended can be started again with its input, and a long output is opened line by line', async () => {
  await call(server.url, '/actions/start', { instance: 'tall-1', orchestration: 'Hello', input: Array.from({ length: 40 }, (_, n) => `line ${n}`).join('\n') });
  await open('instance?id=tall-1');
  await page.locator('.title').getByText('Completed').waitFor();
  const output = page.getByLabel('Output', { exact: true });
  const isCut = () => output.evaluate((box) => box.scrollHeight > box.clientHeight + 1);
  assert.equal(await isCut(), true);
  await page.getByRole('button', { name: 'All lines' }).last().click();
  assert.equal(await isCut(), false);
  await page.getByRole('button', { name: 'Start again' }).click();
  assert.equal(await page.getByLabel('Orchestration', { exact: true }).inputValue(), 'Hello');
  assert.match(await page.getByLabel(/Input, as it is/).inputValue(), /^line 0\nline 1\n/);
  await page.getByLabel('Instance id (made up if empty)').fill('tall-2');
  await confirm();
  await page.waitForURL(/id=tall-2/);
  check();
});

test('the oldest events come first from the beginning, and the search says what it covers', async () => {
  const id = 'order-1001';
  const { events } = await call(server.url, `/instance/events?id=${id}&limit=1000`);
  // As if a part of a history were as short as this.
  const part = Math.floor(events.length / 3);
  await page.route('**/instance/events?**', (route) => {
    const address = new URL(route.request().url());
    address.searchParams.set('limit', String(part));
    return route.continue({ url: address.href });
  });
  const numbers = async () => (await page.locator('ol .num').allTextContents()).map(Number);
  const shows = (first, last) => eventually(`${first} to ${last}`, async () => {
    const shown = await numbers();
    return shown[0] === first && shown.at(-1) === last;
  });
  await open(`instance?id=${id}&tab=history&history=raw`);
  await shows(events.length, events.length - part + 1);
  await page.getByRole('button', { name: 'Newest first' }).click();
  await shows(1, part);
  await page.getByLabel('Search the history').fill('OrchestrationStarted');
  await page.getByText(`Searched events 1 to ${part}, with payloads as far as they are loaded; newer ones are not loaded.`).waitFor();
  await page.getByLabel('Search the history').fill('');
  while (await page.getByRole('button', { name: 'Load newer events' }).count()) {
    const before = (await numbers()).length;
    await page.getByRole('button', { name: 'Load newer events' }).click();
    await eventually('more of them', async () => (await numbers()).length > before);
  }
  assert.deepEqual(await numbers(), events.map((event) => event.event_id));
  await page.getByLabel('Search the history').fill('OrchestrationStarted');
  await shows(1, 1);
  assert.equal(await page.getByText(/^Searched events/).count(), 0, 'all of them');
  await page.unrouteAll({ behavior: 'wait' });
  check();
});

test('the history is searched, switched to raw, and downloaded', async () => {
  await open('instance?id=order-1001&tab=history');
  await page.getByLabel('Search the history').fill('ReserveStock');
  await eventually('one line', async () => (await page.locator('ol > li').count()) === 1);
  await page.getByRole('button', { name: 'Raw' }).click();
  await page.waitForURL(/history=raw/);
  const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Download' }).click()]);
  assert.equal(file.suggestedFilename(), 'order-1001-1.json');
  check();
});
