// What the pages show follows what happens, without a reload.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { begin, call, checkAccess, eventually, streamTells } from './support.mjs';

let server, page, check, open, row;
let end;

before(async () => {
  ({ server, page, check, open, row, end } = await begin());
});

after(async () => {
  await end?.();
});

/** Waits until an `Expense` asks for the decision. Before, it waits for an activity, and an event would pass it by. */
async function waitsForTheEvent(id) {
  const asks = async () => JSON.stringify(await call(server.url, `/instance?id=${id}`)).includes('waiting for Grace');
  await eventually(`${id} waits for the event`, asks);
}

test('the list changes by itself: a new instance appears, and its state follows', async () => {
  await open('instances');
  await row('order-1001').waitFor();
  await call(server.url, '/actions/start', { instance: 'live-1', orchestration: 'Expense', input: '5 EUR' });
  await waitsForTheEvent('live-1');
  await row('live-1').getByText('Waiting', { exact: true }).waitFor();
  await call(server.url, '/actions/raise', { instance: 'live-1', name: 'decision', data: 'Ada' });
  await row('live-1').getByText('Completed', { exact: true }).waitFor();
  await call(server.url, '/actions/delete', { instance: 'live-1' });
  await row('live-1').waitFor({ state: 'detached' });
  check();
});

test('an open instance changes by itself: state, history and timeline', async () => {
  await call(server.url, '/actions/start', { instance: 'live-2', orchestration: 'Expense', input: '6 EUR' });
  await open('instance?id=live-2&tab=waiting');
  await page.getByText('waits for this event').waitFor();
  await call(server.url, '/actions/raise', { instance: 'live-2', name: 'decision', data: 'Ada' });
  await page.locator('.title').getByText('Completed').waitFor();
  await page.getByRole('tab', { name: 'History' }).click();
  await page.getByText('Completed').nth(1).waitFor();
  check();
});

test('the page of an instance opens one stream of its own and stays with it', async () => {
  const streams = [];
  const note = (request) => request.url().includes('/api/v1/stream') && streams.push(request.url());
  await call(server.url, '/actions/start', { instance: 'live-4', orchestration: 'Expense', input: '8 EUR' });
  page.on('request', note);
  await open('instance?id=live-4&tab=waiting');
  await page.locator('.link.live').waitFor();
  await page.getByText('waits for this event').waitFor();
  await call(server.url, '/actions/raise', { instance: 'live-4', name: 'decision', data: 'Ada' });
  await page.locator('.title').getByText('Completed').waitFor();
  await page.locator('.link.live').waitFor();
  page.off('request', note);
  // The first is of the page before it knows what it shows.
  assert.ok(streams.length <= 2, `${streams.length} streams`);
  check();
});

/** Lets the server answer the next request of this address, and keeps the answer from the page until it is let go. */
async function hold(address) {
  let asked;
  let letGo;
  const isAnswered = new Promise((resolve) => (asked = resolve));
  const arrival = new Promise((resolve) => (letGo = resolve));
  await page.route(address, async (route) => {
    const response = await route.fetch();
    asked();
    await arrival;
    await route.fulfill({ response });
  }, { times: 1 });
  return { isAnswered, letGo };
}

test('an answer from before a change does not replace what the change brought', async () => {
  await call(server.url, '/actions/start', { instance: 'live-3', orchestration: 'Expense', input: '7 EUR' });
  await waitsForTheEvent('live-3');
  const events = await hold(/\/api\/v1\/instance\/events\?.*id=live-3/);
  await open('instance?id=live-3&tab=history');
  await events.isAnswered;
  await call(server.url, '/actions/raise', { instance: 'live-3', name: 'decision', data: 'Ada' });
  await eventually('it has ended', async () => (await call(server.url, '/instance?id=live-3')).state === 'completed');
  events.letGo();
  await page.getByText('Completed').nth(1).waitFor();

  const list = await hold(/\/api\/v1\/instances\?/);
  await open('instances');
  await list.isAnswered;
  const isTold = streamTells(server.url, (event, data) => event === 'instances' && data.removed.includes('live-3'));
  await call(server.url, '/actions/delete', { instance: 'live-3' });
  await isTold;
  list.letGo();
  await row('order-1001').waitFor({ state: 'attached' });
  await row('live-3').waitFor({ state: 'detached' });
  await page.unrouteAll({ behavior: 'wait' });
  check();
});

test('the stream rests while the page is hidden, and the list is right when it is seen again', async () => {
  await open('instances?q=hidden-');
  await page.getByText('Live', { exact: true }).waitFor();
  const hide = (hidden) => page.evaluate((value) => {
    Object.defineProperty(document, 'hidden', { configurable: true, get: () => value });
    document.dispatchEvent(new Event('visibilitychange'));
  }, hidden);
  await hide(true);
  await page.getByText('Paused', { exact: true }).waitFor();
  const { instances: before } = await call(server.url, '/overview');
  await call(server.url, '/actions/start', { instance: 'hidden-1', orchestration: 'Expense', input: 'x' });
  await streamTells(server.url, (event, data) => event === 'overview' && data.instances > before);
  assert.equal(await row('hidden-1').count(), 0);
  await hide(false);
  await page.getByText('Live', { exact: true }).waitFor();
  await row('hidden-1').waitFor();
  check();
});

test('the view Retrying lists what failed and is tried again, with the error', async () => {
  await eventually('it failed once', async () => (await call(server.url, '/instances?waits=retry')).instances.some((one) => one.id === 'sync-crm'));
  await open('instances');
  await page.getByRole('link', { name: 'Retrying', exact: true }).click();
  await page.waitForURL(/waits=retry/);
  await row('sync-crm').getByText('crm: 503 Service Unavailable').waitFor();
  await row('expense-lunch').waitFor({ state: 'detached' });
  await checkAccess(page, 'retrying');
  check();
});

test('the view Retrying shows the attempts that the store keeps, and their number as it grows', async () => {
  await open('instances?waits=retry');
  const shown = async () => Number(/attempt (\d+): nobody is at home/.exec(await row('delivery-5').textContent({ timeout: 20_000 }) ?? '')?.[1] ?? 0);
  await row('delivery-5').getByText('nobody is at home').waitFor();
  const before = await shown();
  assert.ok(before >= 2);
  await eventually('another attempt', async () => (await shown()) > before);
  check();
});

test('a view of what waits follows: who got its event goes, who begins to wait comes, with the reason', async () => {
  await call(server.url, '/actions/start', { instance: 'waits-1', orchestration: 'Expense', input: 'x' });
  await open('instances');
  await page.getByRole('link', { name: 'Waiting for an event', exact: true }).click();
  await row('waits-1').getByText('waits for event decision').waitFor();
  await call(server.url, '/actions/raise', { instance: 'waits-1', name: 'decision', data: 'Ada' });
  await row('waits-1').waitFor({ state: 'detached' });
  await call(server.url, '/actions/start', { instance: 'waits-2', orchestration: 'Expense', input: 'x' });
  await row('waits-2').getByText('waits for event decision').waitFor();
  await row('expense-lunch').getByText('waits for event decision').waitFor();
  check();
});

test('a list of descendants follows, too', async () => {
  await call(server.url, '/actions/start', { instance: 'family-1', orchestration: 'Settlement', input: 'all' });
  await open('instances?root=family-1');
  await row('family-1/europe/madrid').getByText('Failed', { exact: true }).waitFor();
  await call(server.url, '/actions/delete', { instance: 'family-1' });
  await row('family-1/europe/madrid').waitFor({ state: 'detached' });
  check();
});

test('the overview names what no worker serves, tells versions apart, and says what it counts', async () => {
  await open('overview');
  const trouble = page.getByRole('region', { name: 'Needs attention' });
  await trouble.getByText('of the newest 1,000 failed and blocked').waitFor();
  await trouble.getByText(/Activities with the tag gpu: no worker serves them/).waitFor();
  await trouble.getByRole('link', { name: 'training-3' }).waitFor();
  const legacy = trouble.getByRole('listitem').filter({ hasText: 'Report' }).filter({ hasText: '1.0.0' });
  await legacy.getByRole('link', { name: /failed/ }).first().click();
  await page.waitForURL(/name=Report/);
  assert.equal(new URLSearchParams(page.url().split('?')[1]).get('version'), '1.0.0');
  await open('overview');
  await page.getByRole('region', { name: 'Throughput' }).getByText('Failed or cancelled').waitFor();
  check();
});
