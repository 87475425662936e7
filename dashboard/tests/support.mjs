// Starts the sample server and a real browser, and speaks to the API as a program would.
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import assert from 'node:assert/strict';
import { chromium } from 'playwright-core';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Runs the sample server; answers its address once it listens. */
export async function startServer(...options) {
  const path = process.env.DASHBOARD_SERVER;
  assert.ok(path, 'DASHBOARD_SERVER names the sample server; scripts/test-dashboard sets it');
  const child = spawn(path, options, { stdio: ['ignore', 'pipe', 'ignore'] });
  const lines = createInterface({ input: child.stdout });
  const url = await new Promise((resolve, reject) => {
    lines.once('line', resolve);
    child.once('exit', (code) => reject(new Error(`the server ended with ${code}`)));
  });
  const stop = () =>
    new Promise((resolve) => {
      child.removeAllListeners('exit');
      child.once('exit', resolve);
      child.kill('SIGKILL');
    });
  return { url, stop };
}

export async function startBrowser() {
  const profile = mkdtempSync(join(tmpdir(), 'dashboard-browser-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    headless: true,
    viewport: { width: 1280, height: 860 },
    permissions: ['clipboard-read', 'clipboard-write'],
    args: [
      '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
      '--disable-background-networking', '--disable-component-update', '--disable-sync',
    ],
  });
  const stop = async () => {
    await context.close();
    rmSync(profile, { recursive: true, force: true });
  };
  return { context, stop };
}

/** A page that notes everything that must not happen. */
export async function openPage(context, base) {
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  const faults = [];
  const allowed = { failures: false };
  page.on('pageerror', (error) => faults.push(`error: ${error.message}`));
  page.on('dialog', (dialog) => {
    faults.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on('console', (message) => {
    const text = message.text();
    if (message.type() === 'error' && !/status of 40[49]/.test(text) && !(allowed.failures && /Failed to load resource|ERR_/.test(text))) faults.push(`console: ${text}`);
  });
  // Nothing may leave the machine.
  page.on('request', (request) => {
    const target = request.url();
    if (!target.startsWith(new URL(base).origin) && !target.startsWith('blob:') && !target.startsWith('data:')) faults.push(`request: ${target}`);
  });
  const check = () => assert.deepEqual(faults.splice(0), []);
  return { page, check, allowed };
}

/** A server with the samples, a browser, and what the tests of a file do with them. */
export async function begin(...options) {
  const [server, browser] = await Promise.all([startServer(...options), startBrowser()]);
  const { page, check, allowed } = await openPage(browser.context, server.url);
  // Everything that ends by itself has ended.
  await eventually('the samples have run', async () => {
    const { instances } = await call(server.url, '/instances?prefix=order-100');
    return instances.length === 3 && instances.every((row) => ['completed', 'failed'].includes(row.state));
  });
  // As in a new tab: nothing of the page before is taken for what the address shows.
  const open = async (hash) => {
    await page.goto('about:blank');
    await page.goto(`${server.url}#/${hash}`);
    await page.waitForLoadState('domcontentloaded');
  };
  const row = (id) => page.locator(`tr[data-id=${JSON.stringify(id)}]`);
  const confirm = () => page.getByTestId('confirm').click();
  const toast = (text) => page.getByRole('status').filter({ hasText: text }).first().waitFor();
  const end = async () => {
    await browser.stop();
    await server.stop();
  };
  return { server, browser, page, check, allowed, open, row, confirm, toast, end };
}

export async function call(base, path, body) {
  const response = await fetch(`${base}api/v1${path}`, body === undefined ? {} : {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-duroxide-action': '1' },
    body: JSON.stringify(body),
  });
  const answer = await response.json();
  assert.ok(response.ok, `${path}: ${response.status} ${JSON.stringify(answer)}`);
  return answer;
}

/** Listens to the stream of changes until an event passes the check. */
export async function streamTells(base, check) {
  const stop = new AbortController();
  const response = await fetch(`${base}api/v1/stream`, { signal: stop.signal });
  let text = '';
  for await (const part of response.body.pipeThrough(new TextDecoderStream())) {
    text += part;
    for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
      const lines = text.slice(0, end).split('\n');
      text = text.slice(end + 2);
      const field = (name) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
      if (field('data') && check(field('event'), JSON.parse(field('data')))) {
        stop.abort();
        return;
      }
    }
  }
}

/** Looks again until the check holds; the time-out is the test's failure. */
export async function eventually(what, check, patience = 20_000) {
  const end = Date.now() + patience;
  for (;;) {
    const found = await check();
    if (found) return found;
    assert.ok(Date.now() < end, `not in time: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Finds faults of accessibility by the rules of WCAG 2 A and AA. */
export async function checkAccess(page, what) {
  await page.evaluate(axe);
  const violations = await page.evaluate(async () => {
    const result = await window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] });
    return result.violations.map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => `${n.html.slice(0, 160)} ${n.failureSummary?.slice(0, 200)}`).join(' | ')}`);
  });
  assert.deepEqual(violations, [], what);
}
