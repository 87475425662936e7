// Tokens, reading only, and a server that goes away, as a browser sees them.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { checkAccess, openPage, startBrowser, startServer } from './support.mjs';

let browser;
let server;

before(async () => {
  [browser, server] = await Promise.all([startBrowser(), startServer('--token', 'sesame')]);
});
after(async () => {
  await browser?.stop();
  await server?.stop();
});

test('a token is asked for, a wrong one is refused, and the right one opens everything', async () => {
  const { page, allowed } = await openPage(browser.context, server.url);
  allowed.failures = true;
  await page.goto(server.url);
  await page.getByLabel('Token').waitFor();
  await checkAccess(page, 'login');
  await page.getByLabel('Token').fill('open');
  await page.getByRole('button', { name: 'Open' }).click();
  await page.getByText('That is not the token').waitFor();
  await page.getByLabel('Token').fill('sesame');
  await page.getByRole('button', { name: 'Open' }).click();
  await page.getByText('Throughput').waitFor();
  await page.getByText('Live', { exact: true }).waitFor();
  assert.ok(!page.url().includes('sesame'));
  assert.equal(await page.evaluate(() => document.cookie), '');
  await page.close();
});

test('who may only look sees no button that changes anything', async () => {
  const { page, allowed } = await openPage(browser.context, server.url);
  allowed.failures = true;
  await page.goto(`${server.url}#/instance?id=expense-lunch`);
  await page.getByLabel('Token').fill('look');
  await page.getByRole('button', { name: 'Open' }).click();
  await page.getByText('expense-lunch').first().waitFor();
  await page.getByText('read only').waitFor();
  await checkAccess(page, 'read only');
  for (const name of ['Delete', 'Cancel', 'Raise event', 'Enqueue', 'Crash the worker']) {
    assert.equal(await page.getByRole('button', { name }).count(), 0, name);
  }
  await page.close();
});

test('the page says that the server is gone, and goes on when it is back', async () => {
  const first = await startServer();
  const { page, allowed } = await openPage(browser.context, first.url);
  allowed.failures = true;
  await page.goto(first.url);
  await page.getByText('Live', { exact: true }).waitFor();
  await first.stop();
  await page.getByText('Disconnected').waitFor();
  await page.getByText('The server is not answering').waitFor();
  await checkAccess(page, 'disconnected');
  const again = await startServer('--port', new URL(first.url).port);
  await page.getByText('Live', { exact: true }).waitFor();
  await page.close();
  await again.stop();
});
