// Takes the pictures in docs/images, of the sample application `duroxide dev`: `scripts/take-pictures`.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';

const [program, folder, minutes] = process.argv.slice(2);
const temporary = mkdtempSync(join(tmpdir(), 'dashboard-pictures-'));
const dev = spawn(program, ['dev', '--port', '0', '--output', 'jsonl'], {
  stdio: ['ignore', 'pipe', 'ignore'],
  env: { ...process.env, TMPDIR: temporary },
});
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});

/** The newest instance of an orchestration that passes the check, as soon as there is one. */
async function newest(base, orchestration, check) {
  for (let look = 0; look < 60; look += 1) {
    const list = await fetch(`${base}/api/v1/instances?name=${orchestration}&limit=100`);
    const { instances } = await list.json();
    for (const { id } of instances) {
      const about = await (await fetch(`${base}/api/v1/instance?${new URLSearchParams({ id })}`)).json();
      if (check(about)) return id;
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
  throw new Error(`no ${orchestration} is fit for a picture`);
}

try {
  const base = await new Promise((resolve, reject) => {
    createInterface({ input: dev.stdout }).on('line', (line) => {
      const told = JSON.parse(line);
      if (told.dashboard) resolve(told.dashboard.replace(/\/$/, ''));
    });
    dev.once('exit', (code) => reject(new Error(`duroxide dev ended with ${code}`)));
  });
  // The chart of the overview shows what arrived in the last minutes.
  await new Promise((resolve) => setTimeout(resolve, Number(minutes) * 60_000));

  const isRetried = (about) => about.state === 'completed' && about.events > 14;
  const hasEnded = (about) => about.state === 'completed';
  const isHeld = ({ waits }) => waits.some((wait) => wait.worker && wait.attempt > 1) && waits.some((wait) => wait.next_attempt_ms);
  const openTrouble = async (page) => {
    const node = page.locator('.node').filter({ has: page.locator('.bubble') }).last();
    await node.getByRole('button', { name: /^Children of/ }).click();
    await page.locator('.node .status.failed').waitFor();
  };
  const sights = {
    overview: { hash: 'overview', text: 'Throughput' },
    'overview-dark': { hash: 'overview', text: 'Throughput', scheme: 'dark' },
    list: { hash: 'instances', text: 'Next page' },
    timeline: { of: ['Import', isRetried], text: 'given up' },
    waiting: { of: ['Backup', isHeld], tab: 'waiting', text: 'attempt' },
    retrying: { of: ['Backup', isHeld], text: 'attempt' },
    tree: { of: ['Payroll', hasEnded], tab: 'tree', text: 'in trouble below', act: openTrouble },
    dark: { of: ['Album', hasEnded], text: 'given up', scheme: 'dark' },
    phone: { hash: 'instances', text: 'Next page', width: 380, height: 800 },
  };
  for (const [name, { hash, of, tab = 'timeline', text, act, scheme = 'light', width = 1360, height = 860 }] of Object.entries(sights)) {
    const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme });
    const page = await context.newPage();
    const shown = of ? `instance?${new URLSearchParams({ id: await newest(base, ...of), tab })}` : hash;
    await page.goto(`${base}/#/${shown}`);
    await page.getByText(text).first().waitFor();
    await page.locator('.link.live').waitFor();
    await act?.(page);
    await page.screenshot({ path: join(folder, `dashboard-${name}.png`) });
    await context.close();
    console.log(`dashboard-${name}.png`);
  }
} finally {
  await browser.close();
  const ended = new Promise((resolve) => dev.once('exit', resolve));
  if (dev.exitCode === null && dev.kill('SIGINT')) await ended;
  rmSync(temporary, { recursive: true, force: true });
}
