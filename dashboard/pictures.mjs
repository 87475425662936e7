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

/** The newest instance of an orchestration that passes the check. */
async function newest(base, orchestration, check) {
  const list = await fetch(`${base}/api/v1/instances?name=${orchestration}&limit=100`);
  const { instances } = await list.json();
  for (const { id } of instances) {
    const about = await (await fetch(`${base}/api/v1/instance?${new URLSearchParams({ id })}`)).json();
    if (check(about)) return id;
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

  const isRetried = (about) => about.state === 'completed' && about.events > 8;
  const sights = {
    overview: { hash: 'overview', text: 'Throughput' },
    list: { hash: 'instances', text: 'Next page' },
    timeline: { hash: `instance?id=${await newest(base, 'Import', isRetried)}`, text: 'steps' },
    tree: { hash: `instance?id=${await newest(base, 'Catalogue', (about) => about.state === 'completed')}&tab=tree`, text: 'children' },
    waiting: { hash: `instance?id=${await newest(base, 'Approval', (about) => about.state === 'waiting')}&tab=waiting`, text: 'waits for this event' },
    dark: { hash: `instance?id=${await newest(base, 'Album', (about) => about.state === 'completed')}`, text: 'steps', scheme: 'dark' },
    phone: { hash: 'instances', text: 'Next page', width: 380, height: 800 },
  };
  for (const [name, { hash, text, scheme = 'light', width = 1360, height = 860 }] of Object.entries(sights)) {
    const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme });
    const page = await context.newPage();
    await page.goto(`${base}/#/${hash}`);
    await page.getByText(text).first().waitFor();
    await page.getByText('Live', { exact: true }).first().waitFor();
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
